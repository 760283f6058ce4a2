"""Fills before a graph that writes a part of the memory: included if they have no other consumer.

A fusion group has calls that save traffic together; a fill of a large tensor of which the next call writes a small
slice is not among them. Rebuilt without it, the graph would write a part of memory from outside. With it the memory is
the graph's own, and need not exist. One kernel then saves what the fills took too, which no finding claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tracemine.flow.record import Flow, IntArray
from tracemine.fusion.record import Groups
from tracemine.verify.rebuild.call_forms import FILLS, fills_new
from tracemine.verify.rebuild.recorded import Recorded

SAYS = "memory that is filled with numbers before a part of it is written is filled by the graph itself"


def fills_before(recorded: Recorded, groups: Groups, nodes: Sequence[int]) -> set[int]:
    """Return further nodes that fill what these write in part, where all that read the fills are among them."""
    writes, members = recorded.flow.writes, set(nodes)
    by_members = np.isin(writes.node, np.array(nodes, np.int64))
    found: set[int] = set()
    for buffer in np.unique(writes.buffer[by_members]).tolist():
        here = np.flatnonzero(writes.buffer == buffer)
        inside = by_members[here]
        before = here[: int(np.argmax(inside))]
        if not len(before) or writes.bytes[here[inside]].min() >= writes.bytes[before[0]]:
            continue  # it is the graph's own, or written as a whole
        beside = set(writes.node[before].tolist())
        made = fills_new(recorded.facts(int(writes.node[before[0]])))
        if made and _only_fill(recorded, groups, beside) and _readers(recorded.flow, before) <= members | beside:
            found |= beside
    return found


def _only_fill(recorded: Recorded, groups: Groups, nodes: Iterable[int]) -> bool:
    """Return whether all that nodes do is to fill memory, as part of no other group."""
    owned = recorded.flow.nodes
    spans = ((n, owned.activity[owned.activity_begin[n] : owned.activity_begin[n + 1]]) for n in nodes)
    return all(recorded.facts(n).operator in FILLS and (groups.activity_group[rows] < 0).all() for n, rows in spans)


def _readers(flow: Flow, writes: IntArray) -> set[int]:
    return set(flow.edges.consumer[np.isin(flow.edges.write, writes)].tolist())
