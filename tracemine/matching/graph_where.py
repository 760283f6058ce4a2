"""Evaluate the WHERE of a graph pattern over bound nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

import numpy as np

from tracemine.matching.graph_pattern import LAYOUTS, Comparison, Operand
from tracemine.rows.graph import MOST_AXES, NO_AXIS, NodeTensors
from tracemine.rows.table import BoolArray, IntArray

NONE: Final = -1
_SIGNS: Final[dict[str, Callable[[IntArray, IntArray], BoolArray]]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def compared(test: Comparison, vertices: Mapping[str, IntArray], tensors: NodeTensors) -> BoolArray:
    """Return which partial matches pass a comparison; what is not known does not."""
    if test.left.kind == "shape":
        (one, one_rank), (other, other_rank) = (_shape(side, vertices, tensors) for side in (test.left, test.right))
        equal = (one == other).all(axis=1) & (one_rank == other_rank)
        passed: BoolArray = (equal if test.sign == "=" else ~equal) & (one_rank >= 0) & (other_rank >= 0)
        return passed
    texts: dict[str, int] = {}
    count = len(next(iter(vertices.values())))
    (one, known), (other, other_known) = (
        _numbers_of(side, vertices, tensors, texts, count) for side in (test.left, test.right)
    )
    return _SIGNS[test.sign](one, other) & known & other_known


def _entry(side: Operand, vertices: Mapping[str, IntArray], tensors: NodeTensors) -> IntArray:
    return tensors.of[side.column.partition("_")[0]][vertices[cast("str", side.name)]]


def _shape(side: Operand, vertices: Mapping[str, IntArray], tensors: NodeTensors) -> tuple[IntArray, IntArray]:
    entry = _entry(side, vertices, tensors)
    if side.column.endswith("_memory"):
        return _memory(entry, tensors)
    return tensors.shape[entry], tensors.rank[entry]


def _numbers_of(
    side: Operand, vertices: Mapping[str, IntArray], tensors: NodeTensors, texts: dict[str, int], count: int
) -> tuple[IntArray, BoolArray]:
    """Return one side of a comparison as numbers, and where it is known; a text is its place among `texts`."""
    everywhere = np.ones(count, np.bool_)
    if side.name is None:
        value = side.value if isinstance(side.value, int) else texts.setdefault(str(side.value), len(texts))
        return np.full(count, value), everywhere
    if side.column == "axis":
        axis = tensors.axis[vertices[side.name]]
        return axis, axis != NO_AXIS
    what = side.column.partition("_")[2]
    entry = _entry(side, vertices, tensors)
    if what in ("shape", "memory"):
        sizes, rank = _shape(side, vertices, tensors)
        at, inside = _axis_at(cast("int", side.index), rank)
        return sizes[np.arange(count), at], inside
    if what == "rank":
        rank = tensors.rank[entry]
        return rank, rank >= 0
    if what == "dtype":
        found = _places(tensors.dtypes, texts)[tensors.dtype[entry]]
        return found, found >= 0
    layout = _layouts(entry, tensors)
    return _places(LAYOUTS, texts)[layout], layout >= 0


def _axis_at(index: int, rank: IntArray) -> tuple[IntArray, BoolArray]:
    """Return the column of an axis among MOST_AXES, which tensors fill from the end, and which tensors have it."""
    inside = (index < rank) if index >= 0 else (-index <= rank)
    return np.where(inside, MOST_AXES + (index - rank if index >= 0 else index), 0), inside


def _places(names: Sequence[str], texts: dict[str, int]) -> IntArray:
    """Return the place of each name among `texts`, which takes those that are new; behind them NONE."""
    return np.array([*(texts.setdefault(name, len(texts)) for name in names), NONE], np.int64)


def _layouts(entry: IntArray, tensors: NodeTensors) -> IntArray:
    """Return the position in LAYOUTS of each tensor's layout, −1: strides not known. Axes of length 1 do not count."""
    shape, strides, rank = tensors.shape[entry], tensors.strides[entry], tensors.rank[entry]
    contiguous = _dense(shape, strides, range(MOST_AXES - 1, -1, -1))
    last = (rank == 4) | (rank == 5)
    for axes in (4, 5):  # the second axis, the channels', lies innermost
        front = MOST_AXES - axes
        own = _dense(shape, strides, [front + 1, *range(MOST_AXES - 1, front + 1, -1), front])
        last &= np.where(rank == axes, own, True)
    return np.where(tensors.has_strides[entry], np.where(contiguous, 0, np.where(last, 1, 2)), NONE)


def _memory(entry: IntArray, tensors: NodeTensors) -> tuple[IntArray, IntArray]:
    """Return sizes above 1 in the order in which each tensor lies, and how many; −1: it has gaps, or is not known."""
    shape, strides = tensors.shape[entry], tensors.strides[entry]
    wide = shape > 1
    order = np.argsort(np.where(wide, -strides, np.iinfo(np.int64).min), axis=1, kind="stable")
    shape, strides = (np.take_along_axis(each, order, axis=1) for each in (shape, strides))
    dense = _dense(shape, strides, range(MOST_AXES - 1, -1, -1)) & tensors.has_strides[entry]
    rank = np.where(dense & ~(shape == 0).any(axis=1), wide.sum(axis=1), NONE)
    return np.where((shape > 1) & (rank >= 0)[:, None], shape, NONE), rank


def _dense(shape: IntArray, strides: IntArray, axes: Sequence[int]) -> BoolArray:
    """Return whether tensors lie without gaps, the first of these axes innermost."""
    dense, wanted = np.ones(len(shape), np.bool_), np.ones(len(shape), np.int64)
    for axis in axes:
        dense &= (shape[:, axis] <= 1) | (strides[:, axis] == wanted)
        wanted = wanted * np.maximum(shape[:, axis], 1)
    return dense
