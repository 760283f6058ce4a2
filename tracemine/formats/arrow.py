"""NumPy columns to Arrow columns, without a Python object a row.

Arrow is built from buffers: `pa.array` imports pandas where that is installed, which costs more than a small trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]

MISSING = int(np.iinfo(np.int64).min)  # in an integer column of the scanner: not there


def _validity(present: Array | None) -> pa.Buffer | None:
    if present is None or bool(present.all()):
        return None
    return pa.py_buffer(np.packbits(present, bitorder="little"))


def _fixed_width(values: Array, arrow_type: pa.DataType, present: Array | None) -> pa.Array:
    return pa.Array.from_buffers(
        arrow_type, len(values), [_validity(present), pa.py_buffer(np.ascontiguousarray(values))]
    )


def integers(values: Array, arrow_type: pa.DataType, present: Array | None = None) -> pa.Array:
    """An int32 or int64 column; null where `present` is false, where MISSING, and where the type cannot hold the value.

    >>> integers(np.array([7, MISSING, 2**40]), pa.int32()).to_pylist()
    [7, None, None]
    """
    width = np.dtype(arrow_type.to_pandas_dtype())
    fits = values != MISSING
    if values.dtype != width:
        limits = np.iinfo(width)
        fits &= (values >= limits.min) & (values <= limits.max)
        values = np.where(fits, values, 0).astype(width)
    return _fixed_width(values, arrow_type, fits if present is None else fits & present)


def row_numbers(rows: Array) -> pa.Array:
    """Rows of another table; null where negative.

    >>> row_numbers(np.array([3, -1])).to_pylist()
    [3, None]
    """
    return _fixed_width(rows.astype(np.int64, copy=False), pa.int64(), rows >= 0)


def floats(values: Array) -> pa.Array:
    """A float32 column; null where not a number, or beyond what 32 bits hold.

    >>> floats(np.array([1.5, np.nan, 1e300])).to_pylist()
    [1.5, None, None]
    """
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    return _fixed_width(narrow, pa.float32(), np.isfinite(narrow))


def triples(ids: Array, strings: Sequence[str], parse: Callable[[str], tuple[int, int, int] | None]) -> pa.Array:
    """Three int32 a row, parsed once from each distinct string; null where there is no string or it does not parse.

    >>> triples(np.array([0, -1]), ["1 2 3"], lambda text: tuple(map(int, text.split()))).to_pylist()
    [[1, 2, 3], None]
    """
    table = np.zeros((len(strings) + 1, 3), np.int32)
    present = np.zeros(len(strings) + 1, np.bool_)
    for used in _used(ids, strings):
        triple = parse(strings[used])
        if triple is not None:
            table[used], present[used] = triple, True
    values = _fixed_width(table[ids].reshape(-1), pa.int32(), None)
    return pa.Array.from_buffers(pa.list_(pa.int32(), 3), len(ids), [_validity(present[ids])], children=[values])


def texts(ids: Array, strings: Sequence[str], of: Callable[[str], str | None] | None = None) -> pa.Array:
    """A dictionary<int32, string> column of `strings[id]` or `of(string)`; null where the id is -1 or `of` gives None.

    The dictionary holds each text once, and only texts that occur.

    >>> texts(np.array([2, -1, 0]), ["b", "x", "B"], str.lower).to_pylist()
    ['b', None, 'b']
    """
    code = np.full(len(strings) + 1, -1, np.int32)  # the last entry answers the id -1
    values: dict[str, int] = {}
    for used in _used(ids, strings):
        text = strings[used] if of is None else of(strings[used])
        if text is not None:
            code[used] = values.setdefault(text, len(values))
    codes = code[ids]
    present = codes >= 0
    indices = _fixed_width(np.maximum(codes, 0), pa.int32(), present)
    if not values:  # an index must point into the dictionary even where it is null
        values[""] = 0
    return pa.DictionaryArray.from_arrays(indices, _strings(list(values)))


def _used(ids: Array, strings: Sequence[str]) -> list[int]:
    used = np.zeros(len(strings) + 1, np.bool_)
    used[ids] = True
    return np.flatnonzero(used[:-1]).tolist()


def _strings(values: Sequence[str]) -> pa.Array:
    encoded = [value.encode("utf-8", "replace") for value in values]  # a lone surrogate escape becomes "?"
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    large = pa.LargeStringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))
    return large.cast(pa.string())


def distinct(values: Array) -> tuple[Array, Array]:
    """Codes 0 … n-1 of equal values, and the n values, in order of appearance. A hash, not a sort.

    >>> codes, firsts = distinct(np.array([30, 10, 30]))
    >>> codes.tolist(), firsts.tolist()
    ([0, 1, 0], [30, 10])
    """
    encoded = _fixed_width(values.astype(np.int64, copy=False), pa.int64(), None).dictionary_encode()
    codes = np.frombuffer(encoded.indices.buffers()[1], np.int32, len(values))
    firsts = np.frombuffer(encoded.dictionary.buffers()[1], np.int64, len(encoded.dictionary))
    return codes, firsts


def take(values: Array, rows: Array, nothing: int = -1) -> Array:
    """`values[row]`; `nothing` where the row is negative.

    >>> take(np.array([10, 20]), np.array([1, -1])).tolist()
    [20, -1]
    """
    if not len(values):
        return np.full(len(rows), nothing, values.dtype)
    return np.where(rows >= 0, values[rows], values.dtype.type(nothing))


def lists(values: Array, ends: Array, present: Array | None = None) -> pa.Array:
    """A list<int64> column: row i holds `values[ends[i-1]:ends[i]]`; null where `present` is false.

    >>> lists(np.array([4, 8, 2]), np.array([2, 2, 3]), present=np.array([True, False, True])).to_pylist()
    [[4, 8], None, [2]]
    """
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    items = _fixed_width(values.astype(np.int64, copy=False), pa.int64(), None)
    kind = pa.list_(pa.int64())
    return pa.Array.from_buffers(kind, len(ends), [_validity(present), pa.py_buffer(offsets)], children=[items])


def booleans(values: Array) -> pa.Array:
    """A bool column without nulls.

    >>> booleans(np.array([True, False])).to_pylist()
    [True, False]
    """
    bits = pa.py_buffer(np.packbits(values != 0, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])
