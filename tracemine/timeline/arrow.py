"""NumPy columns to Arrow columns, without a Python object a row.

Arrow is built from buffers: `pa.array` imports pandas where that is installed, which costs more than a small trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from tracemine.columns import MISSING as MISSING
from tracemine.columns import Array, from_numbers, ranges, used, validity
from tracemine.columns import texts as texts
from tracemine.timeline.schema import TABLES

_FEW = 1 << 16  # values that are sorted before Arrow's functions are loaded


def integers(values: Array, arrow_type: pa.DataType, present: Array | None = None) -> pa.Array:
    """Return an int32 or int64 column; null where `present` is false, where MISSING, and where the type is too narrow.

    >>> integers(np.array([7, MISSING, 2**40]), pa.int32()).to_pylist()
    [7, None, None]
    """
    width = np.dtype(arrow_type.to_pandas_dtype())
    fits = values != MISSING
    if values.dtype != width:
        limits = np.iinfo(width)
        fits &= (values >= limits.min) & (values <= limits.max)
        values = np.where(fits, values, 0).astype(width)
    return from_numbers(values, arrow_type, fits if present is None else fits & present)


def row_numbers(rows: Array) -> pa.Array:
    """Return rows of another table; null where negative.

    >>> row_numbers(np.array([3, -1])).to_pylist()
    [3, None]
    """
    return from_numbers(rows.astype(np.int64, copy=False), pa.int64(), rows >= 0)


def floats(values: Array) -> pa.Array:
    """Return a float32 column; null where not a number, or beyond what 32 bits hold.

    >>> floats(np.array([1.5, np.nan, 1e300])).to_pylist()
    [1.5, None, None]
    """
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    return from_numbers(narrow, pa.float32(), np.isfinite(narrow))


def triples(ids: Array, strings: Sequence[str], parse: Callable[[str], tuple[int, int, int] | None]) -> pa.Array:
    """Return three int32 a row, parsed once from each distinct string; null where there is none or it does not parse.

    >>> triples(np.array([0, -1]), ["1 2 3"], lambda text: tuple(map(int, text.split()))).to_pylist()
    [[1, 2, 3], None]
    """
    table = np.zeros((len(strings) + 1, 3), np.int32)
    present = np.zeros(len(strings) + 1, np.bool_)
    for each in used(ids, strings):
        triple = parse(strings[each])
        if triple is not None:
            table[each], present[each] = triple, True
    values = from_numbers(table[ids].reshape(-1), pa.int32(), None)
    return pa.Array.from_buffers(pa.list_(pa.int32(), 3), len(ids), [validity(present[ids])], children=[values])


def distinct(values: Array) -> tuple[Array, Array]:
    """Return codes 0 … n-1 of equal values, and the n values, in order of appearance.

    A hash where there are many, not a sort.

    >>> codes, firsts = distinct(np.array([30, 10, 30]))
    >>> codes.tolist(), firsts.tolist()
    ([0, 1, 0], [30, 10])
    """
    if len(values) and bool((values == values[0]).all()):  # as of one process: a tenth of the time
        return np.zeros(len(values), np.int32), values[:1].astype(np.int64)
    if len(values) < _FEW:
        return _distinct_of_few(values)
    encoded = from_numbers(values.astype(np.int64, copy=False), pa.int64(), None).dictionary_encode()
    codes = np.frombuffer(encoded.indices.buffers()[1], np.int32, len(values))
    firsts = np.frombuffer(encoded.dictionary.buffers()[1], np.int64, len(encoded.dictionary))
    return codes, firsts


def _distinct_of_few(values: Array) -> tuple[Array, Array]:
    """Return the same, sorted: Arrow's hash comes with all that Arrow computes, which takes longer to load."""
    order = np.argsort(values, kind="stable")
    begins = np.append(True, np.diff(values[order]) != 0)[: len(values)]
    first = order[begins]
    by_appearance = np.argsort(first)
    code = np.empty(len(first), np.int32)
    code[by_appearance] = np.arange(len(first), dtype=np.int32)
    codes = np.empty(len(values), np.int32)
    codes[order] = code[np.cumsum(begins) - 1]
    return codes, values[first[by_appearance]].astype(np.int64)


def take(values: Array, rows: Array, nothing: int = -1) -> Array:
    """Return `values[row]`; `nothing` where the row is negative.

    >>> take(np.array([10, 20]), np.array([1, -1])).tolist()
    [20, -1]
    """
    if not len(values):
        return np.full(len(rows), nothing, values.dtype)
    return np.where(rows >= 0, values[rows], values.dtype.type(nothing))


def lists(values: Array, ends: Array, present: Array | None = None) -> pa.Array:
    """Return a list<int64> column: row i holds `values[ends[i-1]:ends[i]]`; null where `present` is false.

    >>> lists(np.array([4, 8, 2]), np.array([2, 2, 3]), present=np.array([True, False, True])).to_pylist()
    [[4, 8], None, [2]]
    """
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    items = from_numbers(values.astype(np.int64, copy=False), pa.int64(), None)
    kind = pa.list_(pa.int64())
    return pa.Array.from_buffers(kind, len(ends), [validity(present), pa.py_buffer(offsets)], children=[items])


def lists_of(values: Sequence[tuple[int, ...] | None], of: Array) -> pa.Array:
    """Return a list<int64> column of `values[of]`; null where that is None.

    >>> lists_of([(4, 8), None], np.array([1, 0, 0])).to_pylist()
    [None, [4, 8], [4, 8]]
    """
    flat = np.array([size for each in values for size in each or ()], np.int64)
    count = np.array([len(each or ()) for each in values], np.int64)
    there = np.array([each is not None for each in values], np.bool_)
    return lists(flat[ranges((np.cumsum(count) - count)[of], count[of])], np.cumsum(count[of]), there[of])


def booleans(values: Array) -> pa.Array:
    """Return a bool column without nulls.

    >>> booleans(np.array([True, False])).to_pylist()
    [True, False]
    """
    bits = pa.py_buffer(np.packbits(values != 0, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])


def table_of(name: str, columns: Mapping[str, Array | pa.Array], rows: int) -> pa.Table:
    """Return a table of the timeline; what a format does not record is null.

    NumPy's arrays become of the column's type: integers are null where MISSING, rows of other tables where negative.

    >>> found = table_of("memory", {"start_ns": np.array([5]), "op_row": np.array([-1])}, 1)
    >>> found["start_ns"].to_pylist(), found["op_row"].to_pylist(), found["bytes"].to_pylist()
    ([5], [None], [None])
    """
    absent, schema = np.full(rows, MISSING), TABLES[name].schema
    given = (columns.get(field.name, absent if pa.types.is_integer(field.type) else None) for field in schema)
    arrays = [
        pa.nulls(rows, field.type) if values is None else _column(values, field)
        for field, values in zip(schema, given, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _column(values: Array | pa.Array, field: pa.Field) -> pa.Array:
    if not isinstance(values, np.ndarray):
        return values
    if field.name.endswith("_row"):
        return row_numbers(values)
    if pa.types.is_boolean(field.type):
        return booleans(values)
    return floats(values) if pa.types.is_floating(field.type) else integers(values, field.type)


def int_triples(parts: Sequence[Array]) -> pa.Array:
    """Return three int32 a row; null where one of them is not recorded or out of range.

    >>> int_triples([np.array([1, MISSING]), np.array([2, 2]), np.array([3, 3])]).to_pylist()
    [[1, 2, 3], None]
    """
    present = np.ones(len(parts[0]), np.bool_)
    for part in parts:
        present &= (part >= 0) & (part < 1 << 31)
    flat = np.where(np.repeat(present, 3), np.stack(parts, axis=1).reshape(-1), 0).astype(np.int32)
    values = from_numbers(flat, pa.int32(), None)
    return pa.Array.from_buffers(pa.list_(pa.int32(), 3), len(present), [validity(present)], children=[values])


def positive(ids: Array) -> Array:
    """Return ids of which 0 means "none"; the same array where none is."""
    none = (ids <= 0) & (ids != MISSING)
    return np.where(none, MISSING, ids) if none.any() else ids
