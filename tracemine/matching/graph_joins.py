"""Matches of a pattern, and the order and disjoining of a graph pattern's bindings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tracemine.columns import codes
from tracemine.matching.graph_where import NONE
from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import BoolArray, Categories, Column, IntArray, Numbers, Rows

_ROUNDS: Final = 16  # of choosing among overlapping matches all at once; what is left then is chosen one by one


class Found(Struct, frozen=True):
    """Matches of a pattern: rows in order of time, match by match, as in `Matches`."""

    rows: IntArray
    offsets: IntArray
    variables: npt.NDArray[Any]  # of integers: position in the pattern's `variables`, then in the rule's
    evidence: npt.NDArray[np.int8]  # of each match the weakest of what it rests on; −1: name and order
    left_out: int  # nodes from which there were too many ways, or rows of no partition

    def take(self, which: IntArray) -> Found:
        """Return some of the matches, in that order."""
        lengths = np.diff(self.offsets)[which]
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        at = np.repeat(self.offsets[:-1][which] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Found(self.rows[at], offsets, self.variables[at], self.evidence[which], self.left_out)


def none_found(left_out: int) -> Found:
    """Return no matches."""
    return Found(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.uint8), np.zeros(0, np.int8), left_out)


def places_of(rows: Rows, graph: NodeGraph, partition_by: Sequence[str]) -> IntArray:
    """Return a number for each node, equal where all partition_by columns are; −1: activities differ, or a null."""
    null = np.zeros(rows.count, np.bool_)
    keys = [np.zeros(rows.count, np.int64)]
    for name in partition_by:
        values, known = _values(rows.columns[name])
        whole = values.dtype.kind in "biu"
        keys.append(values.astype(np.int64) if whole else np.unique(values, return_inverse=True)[1])
        null |= ~known
    code = codes(*keys)
    begin = graph.activity_begin[:-1]
    code = np.where(null, NONE, code)[graph.activity]
    least, most = np.minimum.reduceat(code, begin), np.maximum.reduceat(code, begin)
    return np.where(least == most, least, NONE)


def _values(column: Column) -> tuple[npt.NDArray[np.generic], BoolArray]:
    if isinstance(column, Categories):
        return column.codes, column.codes >= 0
    valid = column.valid if isinstance(column, Numbers) else None
    return column.values, np.ones(len(column.values), np.bool_) if valid is None else valid


def disjoint(bound: IntArray, count: int) -> IntArray:
    """Return, of matches in order of preference, those that share no node with one that stands before them."""
    left, stands = np.arange(len(bound)), list[IntArray]()
    used = np.zeros(count + 1, np.bool_)  # the last one answers −1
    for _ in range(_ROUNDS):
        if not len(left):
            break
        first = np.full(count + 1, len(bound))
        for column in bound[left].T:
            np.minimum.at(first, column, left)
        first[NONE] = -1
        sure = (first[bound[left]] == left[:, None]) | (bound[left] < 0)
        taken = left[sure.all(axis=1)]
        stands.append(taken)
        used[bound[taken]] = True
        used[NONE] = False
        left = left[~used[bound[left]].any(axis=1)]
    return np.sort(np.concatenate([*stands, _one_by_one(bound, left)]))


def _one_by_one(bound: IntArray, left: IntArray) -> IntArray:
    """Return as disjoint, for as many rounds as it takes."""
    stands, used = list[int](), set[int]()
    for at, nodes in zip(left.tolist(), bound[left].tolist(), strict=True):
        own = {node for node in nodes if node >= 0}
        if used.isdisjoint(own):
            used |= own
            stands.append(at)
    return np.array(stands, np.int64)
