"""Codes of rows: equal for one place or one combination of values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tracemine.columns import codes, compact, examples
from tracemine.rows.table import Categories, IntArray, Numbers


def segments(step: Numbers) -> IntArray:
    """Return 1 + the step's row, 0 outside steps: never null, so that it can partition.

    >>> segments(Numbers(np.array([0, 7]), np.array([True, False]))).tolist()
    [1, 0]
    """
    values = step.values.astype(np.int64) + 1
    return values if step.valid is None else np.where(step.valid, values, 0)


def combination_codes(*columns: Numbers) -> IntArray:
    """Return a code for each distinct combination of values, null being a value of its own.

    >>> combination_codes(Numbers(np.array([0, 0, 1])), Numbers(np.array([7, 7, 7]))).tolist()
    [0, 0, 1]
    """
    keys: list[IntArray] = []
    for column in columns:
        if column.valid is not None:
            keys.append(column.valid.astype(np.int64))
        values = column.values.astype(np.int64, copy=False)
        keys.append(values if column.valid is None else np.where(column.valid, values, 0))
    return codes(*keys)


def grouped_running_maximum(values: IntArray, groups: IntArray) -> IntArray:
    """Return the running maximum within each group; equal groups stand side by side, in ascending order.

    >>> grouped_running_maximum(np.array([3, 1, 2, 5]), np.array([0, 0, 1, 1])).tolist()
    [3, 3, 2, 5]
    """
    result = np.empty_like(values)
    bounds = np.r_[0, np.flatnonzero(np.diff(groups)) + 1, len(values)]
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        np.maximum.accumulate(values[low:high], out=result[low:high])
    return result


def first_rows(codes: npt.NDArray[np.integer], count: int) -> IntArray:
    """Return the first row of each of `count` codes, and of the code −1 last; −1: no row has it.

    >>> first_rows(np.array([1, 0, 1, -1]), 3).tolist()
    [1, 0, -1, 3]
    """
    found = np.full(count + 1, -1, np.int64)
    found[codes[::-1]] = np.arange(len(codes))[::-1]  # of several rows the one written last stays
    return found


def distinct(first: Categories, *others: Categories) -> tuple[list[Any], IntArray]:
    """Return each distinct combination of values, and for each row the position of its own; −1 where `first` is null.

    >>> one = Categories(np.array([0, -1, 0], np.int32), ("a",))
    >>> distinct(one, Categories(np.array([0, 0, -1], np.int32), ("b",)))
    ([('a', None), ('a', 'b')], array([ 1, -1,  0]))
    """
    rows = np.flatnonzero(first.codes >= 0)
    code, size = first.codes[rows].astype(np.int64), len(first.values)
    for column in others:
        code, size = compact(code * (len(column.values) + 1) + column.codes[rows] + 1, size * (len(column.values) + 1))
    code, _ = compact(code, size)
    of = np.full(len(first.codes), -1, np.int64)
    of[rows] = code
    combinations = [
        tuple(column.values[at] if (at := int(column.codes[row])) >= 0 else None for column in (first, *others))
        for row in rows[examples(code)].tolist()
    ]
    return combinations, of
