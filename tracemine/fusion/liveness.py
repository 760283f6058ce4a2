"""Which results are wanted after their step: what is still there at its end need not be, as memory is used again late.

Python lets go of an intermediate when nothing needs it; its bytes stay until something else takes the memory, often
early in the next step. A result that is kept is still there when the next step makes its own.
"""

from __future__ import annotations

import numpy as np

from tracemine.columns import sorted_unique
from tracemine.flow.record import BoolArray, Flow, IntArray

# Blocks of one size change places from step to step: a result's memory may go to one of the next few tensors instead of
# to the same result's successor.
_ROTATION = 4


def lasting(flow: Flow) -> BoolArray:
    """For each write whether it may be wanted after its step.

    Only tensors made during the recording that have a consumer are looked at; what is written into others, and what
    has none, is live-out if it is there. A step that is not followed by one with as many nodes is judged by the
    one before; without that, what is there is wanted.
    """
    writes = flow.writes
    wanted: BoolArray = writes.live_out.copy()
    if not len(writes):
        return wanted
    step = np.maximum.accumulate(flow.nodes.step_row)
    begin = np.searchsorted(step, sorted_unique(step))
    size = np.diff(np.append(begin, len(step)))
    which = np.searchsorted(begin, np.arange(len(step)), "right") - 1  # of each node its step, counted from 0
    own = which[writes.node]
    alike = np.append(size[1:] == size[:-1], False)
    made = np.isin(writes.buffer, writes.buffer[writes.fresh | writes.made])
    passing = writes.live_out & made & flow.read_by_others
    followed = passing & alike[own]
    again = writes.node + size[own]  # the node that makes the same in the next step
    late = writes.gone_node > again + _ROTATION
    wanted[followed] = (writes.gone_node < 0)[followed] | late[followed]
    last = np.flatnonzero(passing & ~alike[own] & (own > 0))
    last = last[alike[own[last] - 1]]
    before = _same_before(writes.node, last, size[own[last] - 1])
    found = before >= 0
    judged = before[found]
    wanted[last[found]] = wanted[judged] & ~(passing[judged] & ~wanted[judged])
    return wanted


def _same_before(node: IntArray, chosen: IntArray, back: IntArray) -> IntArray:
    """The write with the same number among its node's, so many nodes before; −1 where that node wrote not as much."""
    order = np.argsort(node, kind="stable")
    first = np.searchsorted(node[order], np.arange(int(node.max()) + 2))
    rank = np.empty(len(node), np.int64)
    rank[order] = np.arange(len(node)) - first[node[order]]
    count = np.diff(first)
    there = node[chosen] - back
    same = count[there] == count[node[chosen]]
    place = np.minimum(first[there] + rank[chosen], len(node) - 1)
    return np.where(same, order[place], -1)
