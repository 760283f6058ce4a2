"""Which interval lies in which, a thread at a time, without a Python loop over intervals.

Everything here follows from one definition that needs no assumption about the input. Intervals stand in *time order*:
by start, the longer first, then by the profiler's own numbering. The **innermost interval around** something is the
last one in that order that starts no later and ends no earlier. On properly nested intervals that is what everyone
means by innermost; on others (integer-µs rounding, annotations that end late) it still has exactly one answer.
"""

from __future__ import annotations

import numpy as np

from tracemine.columns import Array
from tracemine.timeline.arrow import take

_END_OF_TIME = np.iinfo(np.int64).max
ROUNDS = 64  # of jumps; real traces need about 20. What is then left is settled by _last_reaching


def time_order(start: Array, *ties: Array) -> Array:
    """Return the rows by start, equal starts by the first of `ties`, then the next …, then as they stand.

    >>> time_order(np.array([5, 0, 5]), np.array([-1, -9, -2])).tolist()
    [1, 2, 0]
    """
    order = np.argsort(start, kind="stable")  # timsort: nearly free where the rows stand in runs, as a trace's do
    ordered = start[order]
    tied = ordered[1:] == ordered[:-1]
    if ties and tied.any():
        in_tie = np.append(tied, False) | np.append(False, tied)
        rows = order[in_tie]
        order[in_tie] = rows[np.lexsort([key[rows] for key in (*ties[::-1], start)])]
    return order


class Nesting:
    """Intervals of many threads, to be asked what lies around what.

    `start`, `end` (int64) and `thread` (small ints from 0) have one entry a row and stand in time order.

    >>> outer_and_inner = Nesting(np.array([0, 2]), np.array([9, 5]), np.array([0, 0]))
    >>> outer_and_inner.parents().tolist()
    [-1, 0]
    >>> outer_and_inner.innermost(np.array([3, 6]), np.array([4, 7]), np.array([0, 0])).tolist()
    [1, 0]
    """

    def __init__(self, start: Array, end: Array, thread: Array) -> None:
        # `_row` lists the rows thread by thread; None where that is how they stand already.
        self._row, self._first = _by_thread(thread)
        self._start = start if self._row is None else start[self._row]
        self._end = np.empty(len(start) + 1, np.int64)
        self._end[:-1] = end if self._row is None else end[self._row]
        self._end[-1] = _END_OF_TIME  # position -1, "nothing around it", encloses everything
        self._around = _enclosing(self._end, self._first)

    def parents(self) -> Array:
        """Return for each row the row of the innermost interval around it, -1 where there is none (int32)."""
        if self._row is None:
            return self._around
        parents = np.empty(len(self._row), np.int32)
        parents[self._row] = take(self._row, self._around)
        return parents

    def innermost(self, start: Array, end: Array, thread: Array, only: Array | None = None) -> Array:
        """For each query the row of the innermost interval of its thread around [start, end], -1 if none (int32).

        With `only` (a flag for each row) it is the innermost of those that are flagged.
        """
        flagged = np.ones(len(self._end), np.bool_)  # by position; the last answers "none"
        if only is not None:
            flagged[:-1] = only if self._row is None else only[self._row]
        found = np.full(len(start), -1, np.int32)
        query_row, query_first = _by_thread(thread)
        for t in range(min(len(self._first), len(query_first)) - 1):
            low, high = self._first[t], self._first[t + 1]
            queries = slice(query_first[t], query_first[t + 1])
            which = queries if query_row is None else query_row[queries]
            if low == high or queries.start == queries.stop:
                continue
            position = (np.searchsorted(self._start[low:high], start[which], "right") - 1).astype(np.int32)
            position[position >= 0] += low
            ending = end[which]
            position = self._climb(position, ending, low)
            other = np.flatnonzero(~flagged[position])
            while len(other):
                before = position[other] - 1
                before[before < low] = -1
                position[other] = self._climb(before, ending[other], low)
                other = other[~flagged[position[other]]]
            found[which] = position
        return found if self._row is None else take(self._row, found)

    def _climb(self, position: Array, end: Array, low: int) -> Array:
        """From the last interval begun, outwards until one ends late enough; none of the thread lies before `low`."""
        short = np.flatnonzero(self._end[position] < end)
        for _ in range(ROUNDS):
            position[short] = self._around[position[short]]
            short = short[self._end[position[short]] < end[short]]
            if not len(short):
                return position
        position[short] = _last_reaching(self._end[:-1], position[short], end[short], np.full(len(short), low))
        return position


def _by_thread(thread: Array) -> tuple[Array | None, Array]:
    """Rows grouped by thread in the order given (None: they stand so already), and each thread's first position."""
    count = int(thread.max()) + 1 if len(thread) else 0
    grouped = not bool((thread[1:] < thread[:-1]).any())
    # A stable sort of 16-bit integers is a counting sort in NumPy.
    key = thread if grouped else thread.astype(np.uint16) if count < 1 << 16 else thread
    rows = None if grouped else np.argsort(key, kind="stable").astype(np.int32)
    return rows, np.searchsorted(thread if rows is None else thread[rows], np.arange(count + 1))


def _enclosing(end: Array, first: Array) -> Array:
    """For each position the nearest one before it in its thread that ends no earlier, -1 where there is none.

    All positions jump left at once. A position's jump always passes only over intervals that end before it does, so
    following the jump of the one it landed on, finished or not, passes over such intervals too: a run of siblings
    is crossed in log(n) rounds.
    """
    around = np.arange(-1, len(end) - 2, dtype=np.int32)
    around[first[:-1][first[:-1] < len(around)]] = -1
    own = end[:-1]
    left = np.flatnonzero(end[around] < own).astype(np.int32)
    for _ in range(ROUNDS):
        around[left] = around[around[left]]
        left = left[end[around[left]] < own[left]]
        if not len(left):
            return around
    low = first[np.searchsorted(first, left, "right") - 1]
    around[left] = _last_reaching(own, left - 1, own[left], low)
    return around


def _last_reaching(end: Array, position: Array, least: Array, low: Array) -> Array:
    """Return the last position from `position` down to `low` whose end is at least `least`, -1 where there is none.

    For the few that many rounds of jumps did not settle: in log(n) steps each by the maxima of blocks of 2, 4, 8 …
    """
    maxima = [end]
    while len(maxima[-1]) > 1:
        below = maxima[-1]
        maxima.append(np.maximum.reduceat(below, np.arange(0, len(below), 2)))
    # Up: `bound` counts the blocks of this size still to the left; an odd one out is looked into or passed.
    bound = position.astype(np.int64) + 1
    level, block = np.full(len(bound), -1), np.zeros(len(bound), np.int64)
    for height, highest in enumerate(maxima):
        odd = np.flatnonzero((level < 0) & (bound % 2 == 1))
        holds = odd[highest[bound[odd] - 1] >= least[odd]]
        level[holds], block[holds] = height, bound[holds] - 1
        bound >>= 1
    # Down: into the later half wherever that holds one.
    for height in range(len(maxima) - 2, -1, -1):
        inside = np.flatnonzero(level > height)
        later = np.minimum(2 * block[inside] + 1, len(maxima[height]) - 1)
        block[inside] = later - (maxima[height][later] < least[inside])
    return np.where((level >= 0) & (block >= low), block, -1)
