"""Columns of Arrow tables as NumPy arrays, by their buffers: pyarrow's own ways import pandas where there is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]

MISSING = int(np.iinfo(np.int64).min)  # stands for null among integers


def numbers(column: pa.ChunkedArray, null: int = MISSING) -> Array:
    """An int32 or int64 column as int64; `null` where null.

    >>> numbers(pa.chunked_array([pa.array([7, None], pa.int32())])).tolist() == [7, MISSING]
    True
    """
    width = np.int32 if column.type == pa.int32() else np.int64
    parts = [_values(chunk, width, null) for chunk in column.chunks]
    return np.concatenate([np.empty(0, np.int64), *parts])


def string_ids(column: pa.ChunkedArray) -> tuple[Array, tuple[str, ...]]:
    """A dictionary column as ids of its strings, −1 where null.

    >>> string_ids(pa.chunked_array([pa.array(["a", None, "a"]).dictionary_encode()]))[0].tolist()
    [0, -1, 0]
    """
    chunks = column.unify_dictionaries().chunks
    ids = [_values(chunk.indices, np.int32, -1) for chunk in chunks]
    strings = tuple(chunks[0].dictionary.to_pylist()) if chunks else ()
    return np.concatenate([np.empty(0, np.int64), *ids]), strings


def booleans(column: pa.ChunkedArray) -> Array:
    """A bool column; false where null.

    >>> booleans(pa.chunked_array([pa.array([True, None, False])])).tolist()
    [True, False, False]
    """
    parts = [_bits(chunk.buffers()[1], chunk) & is_present(chunk) for chunk in column.chunks if len(chunk)]
    return np.concatenate([np.empty(0, np.bool_), *parts])


def lists(column: pa.ChunkedArray) -> tuple[Array, Array, Array]:
    """A list<int64> column: all values, where each row's begin and end (rows + 1 of them), and whether a row is there.

    >>> [part.tolist() for part in lists(pa.chunked_array([pa.array([[4, 8], None, [2]])]))]
    [[4, 8, 2], [0, 2, 2, 3], [True, False, True]]
    """
    ends, values, present = [np.zeros(1, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.bool_)]
    for chunk in column.chunks:
        if not len(chunk):
            continue
        rows = slice(chunk.offset, chunk.offset + len(chunk) + 1)
        offsets = np.frombuffer(chunk.buffers()[1], np.int32, count=rows.stop)[rows].astype(np.int64)
        values.append(_values(chunk.values, np.int64, 0)[offsets[0] : offsets[-1]])
        ends.append(offsets[1:] - offsets[0] + ends[-1][-1])
        present.append(is_present(chunk))
    return np.concatenate(values), np.concatenate(ends), np.concatenate(present)


def _values(array: pa.Array, width: Any, null: int) -> Array:
    """An integer array's values as int64, `null` where it has none."""
    values = fixed_width(array, width).astype(np.int64)
    return values if array.buffers()[0] is None else np.where(is_present(array), values, null)


def fixed_width(array: pa.Array, width: Any) -> Array:
    """An array's values as its buffer holds them; whatever lies there where null."""
    if not len(array):
        return np.empty(0, width)
    return np.frombuffer(array.buffers()[1], width, count=array.offset + len(array))[array.offset :]


def is_present(array: pa.Array) -> Array:
    """Which elements of an array are not null."""
    bitmap = array.buffers()[0]
    return np.ones(len(array), np.bool_) if bitmap is None else _bits(bitmap, array)


def _bits(bitmap: pa.Buffer, array: pa.Array) -> Array:
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(np.bool_)
