"""Arrow's columns as NumPy arrays and back, by their buffers: pyarrow's own ways import pandas where there is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]

_LARGEST_CODE = 2**62  # of a combination of keys
_LARGEST_TEXTS = 2**31 - 1  # bytes of a column's texts

MISSING = int(np.iinfo(np.int64).min)  # represents null among integers


def numbers(column: pa.ChunkedArray, null: int = MISSING) -> Array:
    """Return an int32 or int64 column as int64; `null` where null.

    >>> numbers(pa.chunked_array([pa.array([7, None], pa.int32())])).tolist() == [7, MISSING]
    True
    """
    width = np.int32 if column.type == pa.int32() else np.int64
    return joined([_values(chunk, width, np.int64(null)) for chunk in column.chunks], np.int64)


def string_ids(column: pa.ChunkedArray) -> tuple[Array, tuple[str, ...]]:
    """Return a dictionary column as ids of its strings, −1 where null.

    >>> string_ids(pa.chunked_array([pa.array(["a", None, "a"]).dictionary_encode()]))[0].tolist()
    [0, -1, 0]
    """
    codes, strings = string_codes(column)
    return codes.astype(np.int64), strings


def string_codes(column: pa.ChunkedArray) -> tuple[Array, tuple[str, ...]]:
    """Return the same with ids as int32, of half the memory."""
    chunks = column.unify_dictionaries().chunks if column.num_chunks > 1 else column.chunks
    strings = tuple(chunks[0].dictionary.to_pylist()) if chunks else ()
    return joined([_values(chunk.indices, np.int32, np.int32(-1)) for chunk in chunks], np.int32), strings


def booleans(column: pa.ChunkedArray) -> Array:
    """Return a bool column; false where null.

    >>> booleans(pa.chunked_array([pa.array([True, None, False])])).tolist()
    [True, False, False]
    """
    parts = [_bits(chunk.buffers()[1], chunk) & is_present(chunk) for chunk in column.chunks if len(chunk)]
    return np.concatenate([np.empty(0, np.bool_), *parts])


def lists(column: pa.ChunkedArray) -> tuple[Array, Array, Array]:
    """Return a list<int64> column: all values, where each row's begin and end (rows + 1 of them), and a mask of rows.

    >>> [part.tolist() for part in lists(pa.chunked_array([pa.array([[4, 8], None, [2]])]))]
    [[4, 8, 2], [0, 2, 2, 3], [True, False, True]]
    """
    ends, values, present = [np.zeros(1, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.bool_)]
    for chunk in column.chunks:
        if not len(chunk):
            continue
        rows = slice(chunk.offset, chunk.offset + len(chunk) + 1)
        offsets = np.frombuffer(chunk.buffers()[1], np.int32, count=rows.stop)[rows].astype(np.int64)
        values.append(_values(chunk.values, np.int64, np.int64(0))[offsets[0] : offsets[-1]])
        ends.append(offsets[1:] - offsets[0] + ends[-1][-1])
        present.append(is_present(chunk))
    return np.concatenate(values), np.concatenate(ends), np.concatenate(present)


def _values(array: pa.Array, width: Any, null: np.integer) -> Array:
    """Return an integer array's values as its buffer holds them, `null` where it has none."""
    values = fixed_width(array, width)
    if array.buffers()[0] is None or not array.null_count:
        return values
    return np.where(is_present(array), values, null)


def joined(parts: Sequence[Array], width: Any) -> Array:
    """Return arrays of any widths one after another, as one of this width, in memory of its own.

    >>> joined([np.array([1], np.int32), np.array([2])], np.int64).tolist(), joined([], np.int32).tolist()
    ([1, 2], [])
    """
    return parts[0].astype(width) if len(parts) == 1 else np.concatenate([np.empty(0, width), *parts])


def sorted_unique(values: Array) -> Array:
    """Return the distinct values of one axis, in order: `np.unique` hashes since NumPy 2.3, ten times as slow for many,
    and imports masked arrays.

    >>> sorted_unique(np.array([5, 3, 5])).tolist()
    [3, 5]
    """
    ordered = np.sort(values)
    found: Array = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    return found


def unique_pairs(one: Array, other: Array) -> tuple[Array, Array]:
    """Return the distinct pairs of integers, in order; `np.unique` of several axes imports masked arrays.

    >>> [each.tolist() for each in unique_pairs(np.array([2, 1, 2]), np.array([0, 7, 0]))]
    [[1, 2], [7, 0]]
    """
    rows = examples(codes(one, other))
    return one[rows], other[rows]


def is_among(values: Array, chosen: Array) -> Array:
    """Return which integers are among others: `np.isin` hashes where they lie far apart, and imports masked arrays.

    >>> is_among(np.array([5, 3, 5]), np.array([5, 2**40])).tolist(), is_among(np.array([1]), np.array([])).tolist()
    ([True, False, True], [False])
    """
    if not len(chosen):
        return np.zeros(values.shape, np.bool_)
    if int(chosen.max()) - int(chosen.min()) <= 4 * (len(values) + len(chosen)):
        return np.isin(values, chosen, kind="table")
    ordered = np.sort(chosen)
    at = np.searchsorted(ordered, values)
    found: Array = ordered[np.minimum(at, len(ordered) - 1)] == values
    return found


def uncovered(begin: Array, end: Array) -> Array:
    """Return how much of each span none of those before it covers; spans in order of their begins.

    >>> uncovered(np.array([10, 12, 15, 30]), np.array([20, 14, 22, 40])).tolist()
    [10, 0, 2, 10]
    """
    before = np.concatenate((begin[:1], np.maximum.accumulate(end)[:-1]))
    found: Array = np.maximum(end - np.maximum(begin, before), 0)
    return found


def codes(*keys: Array) -> Array:
    """Return a number for each entry, equal where all keys are: without holes, in the order of the keys' values.

    >>> codes(np.array([7, 2, 7]), np.array([0, 1, 0])).tolist()
    [1, 0, 1]
    """
    count = len(keys[0])
    heads = np.flatnonzero(np.logical_or.reduce([key[1:] != key[:-1] for key in keys])) + 1
    if 4 * len(heads) > count or not count:
        return compact(*ordered(*keys))[0]
    heads = np.append(0, heads)  # equal ones in a row are numbered once
    number = compact(*ordered(*(key[heads] for key in keys)))[0]
    return np.repeat(number, np.diff(heads, append=count))


def ordered(*keys: Array) -> tuple[Array, int]:
    """Return the same with holes, which costs no sorting as a rule, and a number that all are below.

    >>> [each.tolist() for each in ordered(np.array([7, 2, 7]), np.array([0, 1, 0]))[:1]]
    [[10, 1, 10]]
    """
    code, size = np.zeros(len(keys[0]), np.int64), 1
    table = _table_size(len(code))
    for key in keys:
        least = int(key.min()) if len(key) else 0
        width = int(key.max(initial=least)) - least + 1
        if width == 1:
            continue
        if size <= table < size * width:  # while it costs no sorting: few combinations occur as a rule
            code, size = compact(code, size)
        part = key - least if width < _LARGEST_CODE else np.unique(key, return_inverse=True)[1]
        width = min(width, len(code) + 1) if width >= _LARGEST_CODE else width
        if size * width >= _LARGEST_CODE:
            code, size = compact(code, size)
        if size * width >= _LARGEST_CODE:
            part, width = compact(part, width)
        code, size = code * width + part, size * width
    return code, size


def _table_size(count: int) -> int:
    """Return how many codes a table may have room for: a larger one would cost more than sorting `count` of them."""
    return 24 * count + 4_096


def compact(code: Array, size: int) -> tuple[Array, int]:
    """Return codes below `size`, renumbered without holes and in order; and how many there are.

    >>> compact(np.array([9, 4, 9]), 10)[0].tolist()
    [1, 0, 1]
    """
    if size > _table_size(len(code)):
        values, number = np.unique(code, return_inverse=True)
        return number.astype(np.int64), len(values)
    occurs = np.zeros(size, np.bool_)
    occurs[code] = True
    values = np.flatnonzero(occurs)
    place = np.empty(size, np.int32)  # filled where a code occurs: adding up the whole table takes three times as long
    place[values] = np.arange(len(values), dtype=np.int32)
    return place[code].astype(np.int64), len(values)


def examples(code: Array) -> Array:
    """Return for each code, of those without holes, an entry that has it.

    >>> examples(np.array([1, 0, 1])).tolist()
    [1, 2]
    """
    found = np.empty(int(code.max(initial=-1)) + 1, np.int64)
    found[code] = np.arange(len(code))
    return found


def ranges(first: Array, count: Array) -> Array:
    """Return the numbers of ranges, one range after another (int32).

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    found: Array = np.arange(int(count.sum()), dtype=np.int32)
    found += np.repeat((first - (np.cumsum(count) - count)).astype(np.int32), count)
    return found


def fixed_width(array: pa.Array, width: Any) -> Array:
    """Return an array's values as its buffer holds them; whatever lies there where null."""
    if not len(array):
        return np.empty(0, width)
    return np.frombuffer(array.buffers()[1], width, count=array.offset + len(array))[array.offset :]


def is_present(array: pa.Array) -> Array:
    """Return which elements of an array are not null."""
    bitmap = array.buffers()[0]
    return np.ones(len(array), np.bool_) if bitmap is None else _bits(bitmap, array)


def _bits(bitmap: pa.Buffer, array: pa.Array) -> Array:
    end = array.offset + len(array)
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8, count=-(-end // 8)), count=end, bitorder="little")
    return bits[array.offset :].view(np.bool_)


# --- from Python and NumPy to Arrow -----------------------------------------------------------------------------------


def validity(present: Array | None) -> pa.Buffer | None:
    """Return which elements are there, as Arrow has it; None where all are."""
    if present is None or bool(present.all()):
        return None
    return pa.py_buffer(np.packbits(present, bitorder="little"))


def from_numbers(values: Array, arrow_type: pa.DataType, present: Array | None = None) -> pa.Array:
    """Return an Arrow array of values that have its width already; null where `present` is false."""
    if present is not None and not present.any():
        return _nothing(arrow_type, len(values))
    return pa.Array.from_buffers(
        arrow_type, len(values), [validity(present), pa.py_buffer(np.ascontiguousarray(values))]
    )


def _nothing(arrow_type: pa.DataType, count: int) -> pa.Array:
    """Return a column of nulls. Those of a table have the same zeros: many traces lack a third of all columns."""
    zeros = _zeros(count)
    return pa.Array.from_buffers(arrow_type, count, [zeros, zeros])


@lru_cache(maxsize=4)
def _zeros(count: int) -> pa.Buffer:
    """Return zeros for a column of the widest numbers."""
    return pa.py_buffer(np.zeros(count, np.int64))


def texts(ids: Array, strings: Sequence[str], of: Callable[[str], str | None] | None = None) -> pa.Array:
    """Return a dictionary<int32, string> column of `strings[id]` or `of(string)`; null for id -1 or where that is None.

    The dictionary holds each text once, and only texts that occur.

    >>> texts(np.array([2, -1, 0]), ["b", "x", "B"], str.lower).to_pylist()
    ['b', None, 'b']
    """
    if not len(ids) or ids.max() < 0:
        return pa.DictionaryArray.from_arrays(_nothing(pa.int32(), len(ids)), strings_of([""]))
    code = np.full(len(strings) + 1, -1, np.int32)  # the last entry answers the id -1
    values: dict[str, int] = {}
    for each in used(ids, strings):
        text = strings[each] if of is None else of(strings[each])
        if text is not None:
            code[each] = values.setdefault(text, len(values))
    codes = code[ids]
    present = codes >= 0
    indices = from_numbers(np.maximum(codes, 0), pa.int32(), present)
    if not values:  # an index must point into the dictionary even where it is null
        values[""] = 0
    return pa.DictionaryArray.from_arrays(indices, strings_of(list(values)))


def rows_that(column: pa.ChunkedArray, holds: Callable[[str], object]) -> npt.NDArray[np.bool_]:
    """Return which rows have a text of which something holds, asked once of each distinct text; null has none.

    >>> column = pa.chunked_array([pa.array(["a", None, "Bb"]).dictionary_encode()])
    >>> rows_that(column, str.islower).tolist()
    [True, False, False]
    """
    ids, strings = string_ids(column)
    found: npt.NDArray[np.bool_] = np.array([*(bool(holds(text)) for text in strings), False], np.bool_)[ids]
    return found


def used(ids: Array, strings: Sequence[str]) -> list[int]:
    """Return the ids that occur."""
    found = np.zeros(len(strings) + 1, np.bool_)
    found[ids] = True
    return np.flatnonzero(found[:-1]).tolist()


def with_columns(table: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Return a table with these columns in place of those of their names.

    >>> with_columns(pa.table({"a": [1], "b": [2]}), {"b": pa.array([3])}).to_pydict()
    {'a': [1], 'b': [3]}
    """
    for name, column in columns.items():
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
    return table


def strings_of(values: Sequence[str]) -> pa.Array:
    """Return a column of texts without nulls."""
    encoded = [value.encode("utf-8", "replace") for value in values]  # a lone surrogate escape becomes "?"
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    if offsets[-1] > _LARGEST_TEXTS:
        raise OverflowError("texts of more than 2 GB")
    return pa.StringArray.from_buffers(
        len(encoded), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(encoded))
    )


def of_values(values: Sequence[Any], arrow_type: pa.DataType) -> pa.Array:
    """Return a column of Python values; null where None. For texts, lists of texts, integers, float64 and booleans.

    Raises OverflowError for a number that the type cannot hold.

    >>> of_values(["a", None], pa.string()).to_pylist(), of_values([3, None], pa.int64()).to_pylist()
    (['a', None], [3, None])
    >>> of_values([("a", "b"), ()], pa.list_(pa.string())).to_pylist(), of_values([True, False], pa.bool_()).to_pylist()
    ([['a', 'b'], []], [True, False])
    """
    present = np.array([value is not None for value in values], np.bool_)
    if pa.types.is_list(arrow_type):
        lists = [value or () for value in values]
        offsets = np.cumsum([0, *map(len, lists)]).astype(np.int32)
        items = strings_of([item for each in lists for item in each])
        buffers = [validity(present), pa.py_buffer(offsets)]
        return pa.Array.from_buffers(arrow_type, len(values), buffers, children=[items])
    if pa.types.is_string(arrow_type):
        texts = strings_of([value or "" for value in values])
        return pa.Array.from_buffers(arrow_type, len(values), [validity(present), *texts.buffers()[1:]])
    if pa.types.is_boolean(arrow_type):
        bits = np.packbits(np.array(values, np.bool_), bitorder="little")
        return pa.Array.from_buffers(arrow_type, len(values), [validity(present), pa.py_buffer(bits)])
    plain = np.array([value or 0 for value in values], np.dtype(arrow_type.to_pandas_dtype()))
    return from_numbers(plain, arrow_type, present)
