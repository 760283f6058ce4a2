"""Codes of rows: equal for one place or one combination of values."""

from __future__ import annotations

from typing import Any

import numpy as np

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
    code = np.zeros(len(columns[0].values), np.int64)
    for column in columns:
        _, part = np.unique(column.values, return_inverse=True)
        part = part.astype(np.int64) + 1
        if column.valid is not None:
            part = np.where(column.valid, part, 0)
        _, code = np.unique(code * (part.max(initial=0) + 1) + part, return_inverse=True)
        code = code.astype(np.int64)
    return code


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


def distinct(first: Categories, *others: Categories) -> tuple[list[Any], IntArray]:
    """Return each distinct combination of values, and for each row the position of its own; −1 where `first` is null.

    >>> one = Categories(np.array([0, -1, 0], np.int32), ("a",))
    >>> distinct(one, Categories(np.array([0, 0, -1], np.int32), ("b",)))
    ([('a', None), ('a', 'b')], array([ 1, -1,  0]))
    """
    rows = np.flatnonzero(first.codes >= 0)
    code, size = first.codes[rows].astype(np.int64), len(first.values)
    for column in others:
        code, size = _compact(code * (len(column.values) + 1) + column.codes[rows] + 1, size * (len(column.values) + 1))
    code, size = _compact(code, size)
    example = np.empty(size, np.int64)
    example[code] = rows
    of = np.full(len(first.codes), -1, np.int64)
    of[rows] = code
    combinations = [
        tuple(column.values[at] if (at := int(column.codes[row])) >= 0 else None for column in (first, *others))
        for row in example.tolist()
    ]
    return combinations, of


def _compact(code: IntArray, size: int) -> tuple[IntArray, int]:
    """Return codes below `size`, renumbered without holes and in order; and how many there are."""
    if size > 4 * len(code) + 1_000_000:  # a table of all codes would cost more than sorting those that occur
        values, compact = np.unique(code, return_inverse=True)
        return compact.astype(np.int64), len(values)
    occurs = np.zeros(size, np.bool_)
    occurs[code] = True
    number = np.cumsum(occurs) - 1
    return number[code], int(occurs.sum())
