"""Trees held as parent rows, and intervals on threads: a row's ancestors, and the interval that holds a moment."""

from __future__ import annotations

import numpy as np

from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline

_ENGINE = "autograd::engine::"


def nearest(parent: IntArray, marked: BoolArray) -> IntArray:
    """Return, for each row of a tree, the nearest marked row at or above it; −1 where there is none.

    Paths are halved until all have ended, those that have no more. Parents stand before children; a damaged row that
    does not has none.

    >>> nearest(np.array([-1, 0, 1, 2]), np.array([False, True, False, False])).tolist()
    [-1, 1, 1, 1]
    """
    if not marked.any():
        return np.full(len(parent), -1, np.int64)
    rows = np.arange(len(parent))
    jump = np.where(marked, rows, np.where(parent < rows, parent, -1))
    ended = np.append(marked, True)  # the last one answers −1
    left = rows
    while len(left := left[~ended[jump[left]]]):
        jump[left] = jump[jump[left]]
    return jump


def engine_of(timeline: Timeline) -> IntArray:
    """Return the innermost node of the autograd engine around each operator, a row of `ops`; −1: none."""
    names = categories(timeline.ops["name"])
    return nearest(rows_of(timeline.ops["parent_row"]), names.that(lambda name: name.startswith(_ENGINE)))


def above(marked: IntArray, parent: IntArray) -> IntArray:
    """Return, for each row, the nearest marked row above it, itself not counted; `marked` is what `nearest` found."""
    return taken(marked, parent)


def outermost(marked: IntArray, parent: IntArray) -> IntArray:
    """Return, for each row, the outermost marked row at or above it; −1: none. `marked` is what `nearest` found.

    >>> outermost(np.array([0, 0, 2]), np.array([-1, 0, 1])).tolist()
    [0, 0, 0]
    """
    up = taken(above(marked, parent), marked)
    top = np.where((up >= 0) & (up < marked), up, marked)
    while True:
        further = taken(top, top)
        if (further == top).all():
            return top
        top = further


def last_begun(thread: IntArray, begin: IntArray, on: IntArray, at: IntArray) -> IntArray:
    """Return, for each moment `at` on a thread, the last that begins there at it or before; −1: none."""
    if not len(begin):
        return np.full(len(at), -1, np.int64)
    order = np.lexsort((begin, thread))
    moments, moment = np.unique(np.concatenate((begin, at)), return_inverse=True)
    key = (np.concatenate((thread, on)) + 2) * len(moments) + moment.reshape(-1)
    place = np.searchsorted(key[: len(begin)][order], key[len(begin) :], side="right") - 1
    found = order[np.maximum(place, 0)]
    return np.where((place >= 0) & (thread[found] == on), found, -1)


def within(thread: IntArray, begin: IntArray, end: IntArray, on: IntArray, at: IntArray) -> IntArray:
    """Return, for each moment `at` on a thread, the interval that holds it, its end left out; −1: none.

    Intervals of one thread do not overlap.

    >>> one = np.zeros(2, np.int64)
    >>> within(one, np.array([0, 20]), np.array([10, 30]), np.zeros(3, np.int64), np.array([9, 10, 20])).tolist()
    [0, -1, 1]
    """
    found = last_begun(thread, begin, on, at)
    return np.where((found >= 0) & (at < taken(end, found)), found, -1)


def taken(values: IntArray, rows: IntArray) -> IntArray:
    """Return `values[rows]`, −1 where the row is −1.

    >>> taken(np.array([5, 7]), np.array([1, -1])).tolist()
    [7, -1]
    """
    return np.where(rows >= 0, values[rows], -1) if len(values) else np.full(len(rows), -1, np.int64)


def first_known(one: IntArray, other: IntArray) -> IntArray:
    """Return `one`, and `other` where that is −1."""
    return np.where(one >= 0, one, other)
