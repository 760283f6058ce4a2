"""Arrow columns to numpy, by their buffers: pyarrow's own conversions would import pandas where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from tracemine import columns
from tracemine.columns import fixed_width, is_present
from tracemine.rows.table import BoolArray, Categories, IntArray, Numbers

_WIDTH = {pa.int32(): np.int32, pa.int64(): np.int64, pa.float32(): np.float32}


def numbers(column: pa.ChunkedArray) -> Numbers:
    """Return an int32, int64 or float32 column as Numbers; a null's value is 0."""
    width = _WIDTH[column.type]
    wide = np.float64 if width is np.float32 else np.int64
    chunks = [fixed_width(chunk, width) for chunk in column.chunks]
    values = columns.joined(chunks, wide)
    if not column.null_count:
        return Numbers(values)
    valid = np.concatenate([is_present(chunk) for chunk in column.chunks])
    return Numbers(np.where(valid, values, 0), valid)


def rows_of(column: pa.ChunkedArray) -> IntArray:
    """Return a column of row numbers as int64, −1 where null: for taking from another table, never for a rule."""
    return columns.numbers(column, null=-1)


def categories(column: pa.ChunkedArray) -> Categories:
    """Return a dictionary column as Categories.

    >>> names = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int32()), pa.array(["a", "b"]))
    >>> found = categories(pa.chunked_array([names]))
    >>> found.codes.tolist(), found.values
    ([1, -1, 0], ('a', 'b'))
    """
    return Categories(*columns.string_codes(column))


def take(categories: Categories, rows: IntArray) -> Categories:
    """Return the category at each of `rows`; null where the row number is −1."""
    if not len(categories.codes):
        return Categories(np.full(len(rows), -1, np.int32), categories.values)
    return Categories(np.where(rows >= 0, categories.codes[rows], -1).astype(np.int32, copy=False), categories.values)


def take_numbers(numbers: Numbers, rows: IntArray) -> Numbers:
    """Return the number at each of `rows`; null where the row number is −1."""
    known = rows >= 0
    if not len(numbers.values):
        return Numbers(np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_))
    if numbers.valid is not None:
        known = known & numbers.valid[rows]
    return Numbers(np.where(known, numbers.values[rows], 0), None if known.all() else known)


def mapped(categories: Categories, to: Callable[[str], str | None]) -> Categories:
    """Return the categories that `to` makes of each distinct value, called once a value that occurs."""
    values: dict[str, int] = {}
    codes = np.full(len(categories.values) + 1, -1, np.int32)  # the last answers for code −1
    for code in columns.used(categories.codes, categories.values):
        result = to(categories.values[code])
        if result is not None:
            codes[code] = values.setdefault(result, len(values))
    return Categories(codes[categories.codes], tuple(values))


def coded(values: Sequence[str | None], of: IntArray) -> Categories:
    """Return Categories whose row i is `values[of[i]]`: a few results spread over many rows.

    >>> found = coded(["x", None, "x"], np.array([0, 1, 2, 2]))
    >>> found.codes.tolist(), found.values
    ([0, -1, 0, 0], ('x',))
    """
    distinct: dict[str, int] = {}
    codes = [-1 if value is None else distinct.setdefault(value, len(distinct)) for value in values]
    return Categories(np.array([*codes, -1], np.int32)[of], tuple(distinct))


def spread(values: Sequence[int | None], of: IntArray) -> Numbers:
    """Return Numbers whose row i is `values[of[i]]`; null where that is None, or `of` is −1."""
    known = np.array([*(value is not None for value in values), False], np.bool_)
    filled = np.array([*(value or 0 for value in values), 0], np.int64)
    return Numbers(filled[of], known[of])


def joined(first: Categories, other: Categories) -> Categories:
    """Return `first`, and `other` where that is null.

    >>> one, two = Categories(np.array([0, -1], np.int32), ("a",)), Categories(np.array([0, 0], np.int32), ("b",))
    >>> found = joined(one, two)
    >>> [found.values[code] for code in found.codes]
    ['a', 'b']
    """
    merged = {value: code for code, value in enumerate(dict.fromkeys((*first.values, *other.values)))}
    codes = [np.array([*(merged[v] for v in each.values), -1], np.int32)[each.codes] for each in (first, other)]
    return Categories(np.where(first.codes >= 0, codes[0], codes[1]).astype(np.int32), tuple(merged))


def named_at(names: Categories, rows: IntArray, *wanted: str) -> BoolArray:
    """Return whether what stands at each of `rows` has one of these names; false where the row number is −1.

    >>> named_at(Categories(np.array([1, 0], np.int32), ("a", "b")), np.array([1, 0, -1]), "a", "c").tolist()
    [True, False, False]
    """
    known = np.array([*(value in wanted for value in names.values), False], np.bool_)
    found: BoolArray = known[take(names, rows).codes]
    return found


def is_named(names: Categories, wanted: str) -> BoolArray:
    """Return, for each row of `ops`, whether it has this name; one more for −1."""
    known = np.array([*(value == wanted for value in names.values), False], np.bool_)
    return np.append(known[names.codes], False)


def blocks_of(activities: pa.Table) -> IntArray:
    """Return of how many blocks each activity is; 0 where that is not recorded."""
    grid = activities["grid"].combine_chunks()
    blocks, present = np.zeros(len(grid), np.int64), ~np.asarray(grid.is_null())
    values = np.asarray(grid.flatten())
    if len(values) == 3 * int(present.sum()):
        blocks[present] = values.reshape(-1, 3).astype(np.int64).prod(axis=1)
    return blocks
