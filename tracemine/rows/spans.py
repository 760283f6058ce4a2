"""Spans of time, and how much of others they cover."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracemine.columns import sorted_unique, uncovered
from tracemine.rows.table import BoolArray, IntArray


class Spans(Struct, frozen=True):
    """Disjoint spans in order, nanoseconds since an origin.

    >>> spans = Spans.of(np.array([30, 10, 12]), np.array([40, 20, 22]))
    >>> spans.until(np.array([0, 15, 25, 99])).tolist()
    [0, 5, 12, 22]
    """

    begin: IntArray
    dur: IntArray
    before: IntArray  # how much of them lies before each

    @staticmethod
    def of(begin: IntArray, end: IntArray) -> Spans:
        """Return spans that may overlap as disjoint ones."""
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], end[order]
        dur = uncovered(begin, end)
        return Spans(np.maximum.accumulate(end) - dur, dur, np.cumsum(dur) - dur)

    @property
    def end(self) -> IntArray:
        """When each ends."""
        return self.begin + self.dur

    def within(self, begin: IntArray, end: IntArray) -> IntArray:
        """Return how much of the spans lies within each of others.

        >>> spans = Spans.of(np.array([30, 10, 12]), np.array([40, 20, 22]))
        >>> spans.within(np.array([0, 15]), np.array([15, 99])).tolist()
        [5, 17]
        """
        return self.until(end) - self.until(begin)

    def meet(self, begin: IntArray, end: IntArray) -> BoolArray:
        """Return which of other spans touch one of these."""
        if not len(self.begin):
            return np.zeros(len(begin), np.bool_)
        at = np.searchsorted(self.begin, end, side="right") - 1
        found: BoolArray = (at >= 0) & (self.begin[at] + self.dur[at] >= begin)
        return found

    def until(self, time: IntArray) -> IntArray:
        """Return how much of the spans lies before each time."""
        if not len(self.begin):
            return np.zeros(len(time), np.int64)
        at = np.searchsorted(self.begin, time, side="right") - 1
        until: IntArray = np.where(at < 0, 0, self.before[at] + np.minimum(time - self.begin[at], self.dur[at]))
        return until


def exposed(begin: IntArray, end: IntArray, others: Spans) -> IntArray:
    """Return of each span how much neither those before it nor the others cover; all in order of their begins.

    >>> exposed(np.array([0, 5]), np.array([10, 20]), Spans.of(np.array([8, 30]), np.array([12, 40]))).tolist()
    [8, 8]
    """
    first = np.maximum(begin, end - uncovered(begin, end))  # what those before it do not cover is its end
    bare: IntArray = (end - first) - others.within(first, end)
    return bare


def common(first: Spans, other: Spans) -> Spans:
    """Return what two sets of spans have in common.

    >>> one, two = Spans.of(np.array([0, 10]), np.array([5, 20])), Spans.of(np.array([3]), np.array([12]))
    >>> common(one, two).begin.tolist(), common(one, two).end.tolist()
    ([3, 10], [5, 12])
    """
    edges = sorted_unique(np.concatenate((first.begin, first.end, other.begin, other.end)))
    if len(edges) < 2:
        return Spans.of(edges[:0], edges[:0])
    begin, end = edges[:-1], edges[1:]
    both = (first.within(begin, end) > 0) & (other.within(begin, end) > 0)
    return Spans.of(begin[both], end[both])


def close_as_one(begin: IntArray, end: IntArray, least_ns: int) -> IntArray:
    """Return spans as [n, 2], those as one between which less lies.

    >>> close_as_one(np.array([0, 12, 50]), np.array([10, 20, 60]), 5).tolist()
    [[0, 20], [50, 60]]
    """
    far = np.append(True, begin[1:] - end[:-1] >= least_ns)[: len(begin)]
    firsts = np.flatnonzero(far)
    lasts = np.append(firsts[1:] - 1, len(begin) - 1)[: len(firsts)]
    return np.stack((begin[firsts], end[lasts]), axis=1)
