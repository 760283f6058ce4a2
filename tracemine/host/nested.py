"""The innermost event of a thread at each moment."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracemine.rows.table import BoolArray, IntArray

_MOST_ROUNDS = 10_000  # real traces take some twenty


class Segments(Struct, frozen=True):
    """Stretches of threads in which one event is the innermost: in order of thread and time, without holes between a
    thread's first event and its last. Rows of events; −1: none.
    """

    thread: IntArray
    begin: IntArray
    end: IntArray
    event: IntArray
    before: IntArray  # the event that begins or ends where the segment begins
    after: IntArray  # the event that begins or ends where it ends

    def of(self, chosen: BoolArray | IntArray) -> Segments:
        """Return some of them."""
        return Segments(*(getattr(self, name)[chosen] for name in self.__struct_fields__))


def innermost(begin: IntArray, end: IntArray, thread: IntArray) -> Segments:
    """Return which event is the innermost at each moment: the last to begin of those that have not ended.

    `thread`: a small number from 0 on.

    >>> found = innermost(np.array([0, 2, 20]), np.array([10, 5, 30]), np.array([0, 0, 0]))
    >>> found.begin.tolist(), found.end.tolist(), found.event.tolist()
    ([0, 2, 5, 10, 20], [2, 5, 10, 20, 30], [0, 1, 0, -1, 2])
    """
    rows = np.lexsort((begin - end, begin, thread))  # thread by thread, each in order of time, the longer first
    begin, end, thread = begin[rows], end[rows], thread[rows]
    parent = _around(end, thread)
    count = len(rows)
    time, of = np.concatenate((end, begin)), np.concatenate((np.arange(count), np.arange(count)))
    order = np.lexsort((time, thread[of]))
    time, of, begins = time[order], of[order], order >= count
    begun = np.cumsum(begins) - 1  # events stand in this order, so that is the last one to have begun
    last = np.append((time[1:] != time[:-1]) | (thread[of[1:]] != thread[of[:-1]]), True)[: len(time)]
    moment, event, at = time[last], begun[last], of[last]
    ended = np.flatnonzero(end[event] <= moment)
    while len(ended):
        event[ended] = parent[event[ended]]
        ended = ended[event[ended] >= 0]
        ended = ended[end[event[ended]] <= moment[ended]]
    same = np.flatnonzero(thread[at[1:]] == thread[at[:-1]])
    owner = np.where(event >= 0, np.append(rows, -1)[event], -1)
    return Segments(thread[at[same]], moment[same], moment[same + 1], owner[same], rows[at[same]], rows[at[same + 1]])


def _around(end: IntArray, thread: IntArray) -> IntArray:
    """Return for each event the last one before it on its thread that ends no earlier, −1: none.

    All jump left at once, and each jump passes only over what ends earlier: runs of siblings take log(n) rounds.
    """
    around = np.arange(-1, len(end) - 1)
    around[np.append(True, thread[1:] != thread[:-1])[: len(end)]] = -1
    ends = np.append(end, np.iinfo(np.int64).max)
    left = np.flatnonzero(ends[around] < end)
    for _ in range(_MOST_ROUNDS):
        if not len(left):
            return around
        around[left] = around[around[left]]
        left = left[ends[around[left]] < end[left]]
    around[left] = -1
    return around
