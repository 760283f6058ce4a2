"""Arrange rows into partitions, each in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracemine.columns import compact
from tracemine.rows.table import BoolArray, Categories, Column, Flags, IntArray, Rows

Order = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Arrangement:
    """Rows in partition order: `order` lists row numbers (None: as they stand), partition i is bounds[i]:bounds[i + 1].

    A row with a null in a partition_by or order_by column is in no partition: which stream it ran on, or when, is not
    known, so neither is what stands beside it. Such rows are counted in `left_out`.
    """

    order: Order | None
    bounds: IntArray
    left_out: int


def arrange(rows: Rows, partition_by: Sequence[str], order_by: Sequence[str]) -> Arrangement:
    """Sorts rows by partition and then by order_by, equal ones as they stand; does nothing where they are sorted.

    >>> from tracemine.rows.table import Numbers
    >>> rows = Rows("activities", 4, {"stream": Numbers(np.array([7, 5, 7, 5])), "start_ns": Numbers(np.arange(4))})
    >>> arranged = arrange(rows, ["stream"], ["start_ns"])
    >>> arranged.order.tolist(), arranged.bounds.tolist()
    ([1, 3, 0, 2], [0, 2, 4])
    """
    columns = [rows.columns[name] for name in (*partition_by, *order_by)]
    known = _all_known(columns)
    order: Order | None = None if known is None else np.flatnonzero(known)
    left_out = 0 if order is None else rows.count - len(order)

    keys = [_values(rows.columns[name], order) for name in order_by]
    parts: npt.NDArray[np.generic] = np.zeros(rows.count - left_out, np.uint16)
    count = 1
    for name in partition_by:
        parts, count = _combine(parts, count, _values(rows.columns[name], order))
    if not _sorted([parts, *keys]):
        # Most row sets are in order of time already; a stable sort by partition then keeps that order.
        by_key = None if _sorted(keys) else np.lexsort(keys[::-1])
        by_part = np.argsort(parts if by_key is None else parts[by_key], kind="stable")
        by_both = by_part if by_key is None else by_key[by_part]
        parts = parts[by_both]
        order = by_both if order is None else order[by_both]
    inner = np.flatnonzero(parts[1:] != parts[:-1]) + 1
    return Arrangement(order, np.concatenate(([0], inner, [len(parts)])).astype(np.int64), left_out)


def _all_known(columns: Sequence[Column]) -> BoolArray | None:
    """Return rows where no column is null; None where there are no nulls."""
    known = [
        column.codes >= 0 if isinstance(column, Categories) else column.valid
        for column in columns
        if not isinstance(column, Flags)
    ]
    masks = [mask for mask in known if mask is not None]
    if not masks:
        return None
    mask = np.logical_and.reduce(masks)
    return None if mask.all() else mask


def _values(column: Column, order: Order | None) -> npt.NDArray[np.generic]:
    values: npt.NDArray[np.generic] = column.codes if isinstance(column, Categories) else column.values
    return values if order is None else values[order]


def _combine(
    parts: npt.NDArray[np.generic], count: int, values: npt.NDArray[np.generic]
) -> tuple[npt.NDArray[np.generic], int]:
    """Number pairs (part, value) densely, in order. Small numbers stay uint16, which numpy sorts in linear time."""
    if not len(values):
        return parts, count
    low, high = values.min(), values.max()
    if values.dtype.kind in "iu" and int(high) - int(low) < 1 << 15:
        codes, width = (values - low).astype(np.uint16), int(high) - int(low) + 1
    else:
        distinct, inverse = np.unique(values, return_inverse=True)
        codes, width = inverse, len(distinct)
    if width == 1:
        return parts, count
    if count == 1:
        return codes, width
    pairs = parts.astype(np.int64) * width + codes
    if count * width <= 1 << 16:
        return pairs.astype(np.uint16), count * width
    number, pairs_there = compact(pairs, count * width)
    return number.astype(np.uint16 if pairs_there <= 1 << 16 else np.int64), pairs_there


def _sorted(keys: Sequence[npt.NDArray[np.generic]]) -> bool:
    """Return whether rows stand in the order of these keys, the first one first."""
    if not keys or len(keys[0]) < 2:
        return True
    rises: BoolArray | None = None
    for key in reversed(keys):
        before, after = key[:-1], key[1:]
        rises = after >= before if rises is None else (after > before) | ((after == before) & rises)
    return rises is None or bool(rises.all())
