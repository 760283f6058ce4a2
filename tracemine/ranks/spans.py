"""TimeSpans of time on one rank's clock: how much of them lies before a moment, and within a span."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracemine.columns import uncovered
from tracemine.rows.table import IntArray


class TimeSpans(Struct, frozen=True):
    """Disjoint spans in order, nanoseconds.

    >>> spans = TimeSpans.of(np.array([30, 10, 12]), np.array([40, 20, 22]))
    >>> spans.begin.tolist(), spans.end.tolist(), spans.within(np.array([0, 15]), np.array([15, 99])).tolist()
    ([10, 30], [22, 40], [5, 17])
    """

    begin: IntArray
    end: IntArray

    @staticmethod
    def of(begin: IntArray, end: IntArray) -> TimeSpans:
        """Return spans that may overlap and stand in any order as disjoint ones; those that touch are joined."""
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], np.maximum.accumulate(end[order]) if len(end) else end
        first = np.append(True, begin[1:] > end[:-1])[: len(begin)]
        last = np.append(first[1:], True)[: len(begin)]
        return TimeSpans(begin[first], end[last])

    def until(self, time: IntArray) -> IntArray:
        """Return how much of the spans lies before each time."""
        if not len(self.begin):
            return np.zeros(len(time), np.int64)
        dur = self.end - self.begin
        before = np.cumsum(dur) - dur
        at = np.searchsorted(self.begin, time, side="right") - 1
        covered: IntArray = np.where(at < 0, 0, before[at] + np.minimum(time - self.begin[at], dur[at]))
        return covered

    def within(self, begin: IntArray, end: IntArray) -> IntArray:
        """Return how much of the spans lies within each of others."""
        return self.until(end) - self.until(begin)

    def gaps(self, begin: int, end: int) -> TimeSpans:
        """Return what lies between the spans, from `begin` to `end`.

        >>> gaps = TimeSpans(np.array([3, 8]), np.array([5, 9])).gaps(0, 12)
        >>> gaps.begin.tolist(), gaps.end.tolist()
        ([0, 5, 9], [3, 8, 12])
        """
        starts, ends = np.append(begin, self.end), np.append(self.begin, end)
        starts, ends = np.clip(starts, begin, end), np.clip(ends, begin, end)
        return TimeSpans(starts[ends > starts], ends[ends > starts])


def exposed(begin: IntArray, end: IntArray, computing: TimeSpans) -> IntArray:
    """Return of each collective how long nothing else ran; of several that overlap, the earlier is charged.

    Arguments in order of their begin.

    >>> exposed(np.array([0, 5]), np.array([10, 20]), TimeSpans.of(np.array([8]), np.array([12]))).tolist()
    [8, 8]
    """
    if not len(begin):
        return begin
    alone = uncovered(begin, end)
    own = end - alone  # what is left of each is its end
    bare: IntArray = alone - computing.within(own, end)
    return bare
