"""Timelines from rows in Python, for recordings of some thousand rows: what a row does not give is null."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tracemine.ops.dtypes import itemsize
from tracemine.timeline import TABLES, IngestReport, Meta, Timeline
from tracemine.version import __version__

_MOST_ELEMENTS = 1 << 60
Row = dict[str, Any]  # by the names of columns


def small_timeline(tables: Mapping[str, Sequence[Row]], **meta: Any) -> Timeline:
    """Return a timeline of these tables; `meta`: what it says of itself.

    >>> small_timeline({"steps": [{"name": "run", "start_ns": 0, "dur_ns": 5}]}, source="a", format="b").steps.num_rows
    1
    """
    made = {name: pa.Table.from_pylist([*rows], schema=TABLES[name].schema) for name, rows in tables.items()}
    return Timeline(meta=Meta(tracemine_version=__version__, **meta), **made)


def small_report(
    events: Mapping[str, int],
    says: Iterable[str],
    *,
    skipped: Mapping[str, int] | None = None,
    dropped: Mapping[str, int] | None = None,
    truncated: bool = False,
) -> IngestReport:
    """Return a report of what is not nothing."""

    def some(counts: Mapping[str, int] | None) -> dict[str, int]:
        return {name: count for name, count in sorted((counts or {}).items()) if count}

    return IngestReport(
        events=some(events), skipped=some(skipped), dropped=some(dropped), warnings=tuple(filter(None, says)),
        truncated=truncated,
    )  # fmt: skip


def node_row(
    row: int, name: str, given: Sequence[tuple[str | None, Sequence[int]]], facts: Mapping[str, str | None]
) -> Row:
    """Return a row of `ops` of what takes tensors of these types and sizes, with facts as inputs that are none."""
    words = [f"{fact}={value}" for fact, value in facts.items() if value]
    return {
        "kind": "op",
        "name": name,
        "input_shapes": json.dumps([*([*sizes] for _, sizes in given), *([] for _ in words)]),
        "input_dtypes": json.dumps([*(dtype or "" for dtype, _ in given), *("" for _ in words)]),
        "concrete_inputs": json.dumps([*("" for _ in given), *words]),
        "execution_node_id": row,
    }


def tensor_row(
    op_row: int,
    position: int,
    number: int,
    dtype: str | None,
    shape: Sequence[int],
    numel: int,
    device: str,
    *,
    is_output: bool,
) -> Row:
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
