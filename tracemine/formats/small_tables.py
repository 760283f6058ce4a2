"""Tables of a timeline from rows in Python, for recordings of some thousand rows: what a row does not give is null."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tracemine.formats.arrow import MISSING, booleans, floats, integers, lists, texts
from tracemine.ops.dtypes import itemsize
from tracemine.timeline import TABLES

_MOST_ELEMENTS = 1 << 60


def small_table(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return a table of a timeline from its rows, each by the names of its columns.

    >>> small_table("steps", [{"name": "run", "start_ns": 0, "dur_ns": 5}]).to_pylist()[0]["number"] is None
    True
    """
    schema = TABLES[name].schema
    columns = [_column([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def tensor_row(
    op_row: int,
    position: int,
    number: int,
    dtype: str | None,
    shape: list[int],
    numel: int,
    device: str,
    *,
    is_output: bool,
) -> dict[str, Any]:
    """Return a row of `tensors`, of a tensor that is all of the storage of this number."""
    return {
        "op_row": op_row,
        "is_output": is_output,
        "position": position,
        "tensor_id": number,
        "storage_id": number,
        "offset_elements": 0,
        "numel": min(max(numel, 1), _MOST_ELEMENTS),
        "itemsize_bytes": itemsize(dtype or ""),
        "device": device,
        "dtype": dtype,
        "shape": shape,
    }


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    make = next((make for is_kind, make in _MAKERS if is_kind(kind)), None)
    # Grids and blocks no such recording has.
    return pa.nulls(len(values), kind) if make is None else make(values, kind)


def _texts(values: list[Any], kind: pa.DataType) -> pa.Array:
    codes: dict[str, int] = {}
    ids = [-1 if value is None else codes.setdefault(value, len(codes)) for value in values]
    return texts(np.array(ids, np.int64), list(codes))


def _lists(values: list[Any], kind: pa.DataType) -> pa.Array:
    ends = np.cumsum([len(value or ()) for value in values], dtype=np.int64)
    present = np.array([value is not None for value in values], np.bool_)
    return lists(np.array([item for value in values for item in value or ()], np.int64), ends, present)


def _integers(values: list[Any], kind: pa.DataType) -> pa.Array:
    known = [value if value is not None and MISSING < value <= -(MISSING + 1) else MISSING for value in values]
    return integers(np.array(known, np.int64), kind)


def _booleans(values: list[Any], kind: pa.DataType) -> pa.Array:
    return booleans(np.array([bool(value) for value in values], np.bool_))


def _floats(values: list[Any], kind: pa.DataType) -> pa.Array:
    return floats(np.array([np.nan if value is None else value for value in values], np.float64))


_MAKERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[list[Any], pa.DataType], pa.Array]], ...] = (
    (pa.types.is_dictionary, _texts),
    (lambda kind: bool(kind == pa.list_(pa.int64())), _lists),
    (pa.types.is_integer, _integers),
    (pa.types.is_boolean, _booleans),
    (pa.types.is_float32, _floats),
)
