"""The Python function that leads to time in no call: profilers say of calls alone where they come from."""

from __future__ import annotations

import numpy as np

from tracemine.rows.ancestors import taken
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import IntArray
from tracemine.timeline import Timeline

_LONG_NS = 200_000  # from so long on a function that lasted through it is recorded
_MOST_ROUNDS = 20_000


def shared_path(parent: IntArray, one: IntArray, other: IntArray) -> IntArray:
    """Return the innermost call path that holds both, of each pair; of one that is not known, the other. −1: none.

    >>> shared_path(np.array([-1, 0, 0]), np.array([1, -1]), np.array([2, 2])).tolist()
    [0, 2]
    """
    one, other = np.where(one >= 0, one, other), np.where(other >= 0, other, one)
    apart = np.flatnonzero(one != other)
    for _ in range(_MOST_ROUNDS):  # callers stand before callees: the later one is no caller of the other
        if not len(apart):
            break
        late, early = np.maximum(one[apart], other[apart]), np.minimum(one[apart], other[apart])
        up = taken(parent, late)
        one[apart], other[apart] = np.where(up < late, up, -1), early
        apart = apart[one[apart] != other[apart]]
        lost = (one[apart] < 0) | (other[apart] < 0)
        one[apart[lost]] = other[apart[lost]] = -1
        apart = apart[~lost]
    return one


def lasting_path(
    timeline: Timeline, thread_of_calls: IntArray, thread: IntArray, begin: IntArray, end: IntArray
) -> IntArray:
    """Return the function that lasted through most of each interval that ends before a late launch; −1: none is known.

    That is recorded of what had the device wait for 200 µs and longer.
    """
    api = timeline.api
    lasting = rows_of(api["before_stack_row"])
    paths = np.full(len(begin), -1, np.int64)
    rows = np.flatnonzero(lasting >= 0)
    asked = np.flatnonzero(end - begin >= _LONG_NS)
    if not len(rows) or not len(asked):
        return paths
    called = rows_of(api["start_ns"]).astype(np.int64)
    rows = rows[np.argsort(called[rows], kind="stable")]
    for at in asked.tolist():  # few: a device waited for each
        place = int(np.searchsorted(called[rows], end[at]))
        near = rows[place : place + 8]
        near = near[(thread_of_calls[near] == thread[at]) & (called[near] - end[at] < end[at] - begin[at])]
        if len(near):
            paths[at] = lasting[near[0]]
    return paths
