"""The tensors of a timeline as bytes of their storages."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracemine.columns import MISSING, Array, booleans, lists, numbers, rows_that
from tracemine.flow.order import Order
from tracemine.flow.record import BoolArray, IntArray
from tracemine.timeline import Timeline

_END_OF_MEMORY = 1 << 44  # a tensor that claims bytes beyond is none; sums of what is below stay within 64 bits
_NOT_ON_A_GPU = frozenset({"cpu", "meta"})


class Tensors(Struct, frozen=True):
    """One entry a row of `tensors`. Begin, end and bytes are 0 where it is not usable.

    What lies between begin and end is what it can touch; where strides were not recorded, it is taken for contiguous.
    """

    op: IntArray  # position in the Order, −1: not an operator
    is_output: BoolArray
    position: IntArray
    storage: IntArray  # small numbers instead of ids
    begin: IntArray
    end: IntArray
    bytes: IntArray  # of distinct elements
    dense: BoolArray  # its elements fill all from begin to end
    usable: BoolArray  # on a GPU, not empty, and of a size that can be
    _shape: tuple[Array, Array]
    _strides: tuple[Array, Array]

    @staticmethod
    def of(timeline: Timeline, order: Order) -> Tensors:
        """Return all tensors of a timeline."""
        table = timeline.tensors
        itemsize, numel = numbers(table.column("itemsize_bytes")), numbers(table.column("numel"))
        # Where dtypes were not recorded, a storage is measured in elements, and a tensor's bytes are at least those.
        itemsize = np.where(itemsize == MISSING, 1, itemsize)
        offset = numbers(table.column("offset_elements"))
        shape, shape_ends, _ = lists(table.column("shape"))
        strides, stride_ends, has_strides = lists(table.column("strides"))
        matching = has_strides & (np.diff(shape_ends) == np.diff(stride_ends))
        reach, distinct, sound = _extent(
            len(numel),
            np.repeat(np.arange(len(numel)), np.where(matching, np.diff(shape_ends), 0)),
            shape[np.repeat(matching, np.diff(shape_ends))].astype(np.float64),
            strides[np.repeat(matching, np.diff(stride_ends))].astype(np.float64),
        )
        reach = np.where(matching, reach, numel.astype(np.float64))
        distinct = np.where(matching, np.minimum(distinct, reach), reach)
        usable = _on_gpu(timeline) & sound & (numel > 0) & (itemsize > 0) & (offset >= 0) & (distinct > 0)
        usable &= ((offset.astype(np.float64) + reach) * itemsize < _END_OF_MEMORY) & (numel < _END_OF_MEMORY)
        item = np.where(usable, itemsize, 0)
        begin = np.where(usable, offset, 0) * item
        return Tensors(
            op=_positions(numbers(table.column("op_row")), order.position),
            is_output=booleans(table.column("is_output")),
            position=numbers(table.column("position")),
            storage=np.unique(numbers(table.column("storage_id")), return_inverse=True)[1],
            begin=begin,
            end=begin + np.where(usable, reach, 0).astype(np.int64) * item,
            bytes=np.where(usable, distinct, 0).astype(np.int64) * item,
            dense=distinct >= reach,
            usable=usable,
            _shape=(shape, shape_ends),
            _strides=(strides, stride_ends),
        )

    def layouts(self, rows: IntArray) -> list[int]:
        """Return a number for each row: equal ones have the same shape and strides; −1 for dense ones."""
        known: dict[tuple[bytes, bytes], int] = {}
        found = np.full(len(rows), -1)
        for at in np.flatnonzero(~self.dense[rows]).tolist():
            row = int(rows[at])
            shape, strides = (v[e[row] : e[row + 1]].tobytes() for v, e in (self._shape, self._strides))
            found[at] = known.setdefault((shape, strides), len(known))
        layouts: list[int] = found.tolist()
        return layouts


def _extent(count: int, row: IntArray, size: Array, step: Array) -> tuple[Array, Array, BoolArray]:
    """Return elements from the first to the last, distinct ones, and whether no size and no stride is negative.

    In floating point, where nothing overflows: what is below 2⁵³ is exact, and more is no tensor.
    """
    reach = np.bincount(row, (size - 1) * step, count) + 1
    distinct = np.ones(count)
    np.multiply.at(distinct, row, np.where(step == 0, 1.0, size))
    return reach, distinct, np.bincount(row, (size < 0) | (step < 0), count) == 0


def _on_gpu(timeline: Timeline) -> BoolArray:
    return rows_that(timeline.tensors.column("device"), lambda name: name.partition(":")[0] not in _NOT_ON_A_GPU)


def _positions(op_row: IntArray, position: IntArray) -> IntArray:
    inside = (op_row >= 0) & (op_row < len(position))
    return np.append(position, -1)[np.where(inside, op_row, len(position))]
