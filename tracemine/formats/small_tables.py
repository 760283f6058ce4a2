"""Timelines from rows in Python, for recordings of some thousand rows: what a row does not give is null."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import Struct

from tracemine.ops.dtypes import itemsize
from tracemine.timeline import TABLES, IngestReport, Meta, Timeline
from tracemine.version import __version__

_MOST_ELEMENTS = 1 << 60
_LATEST_US = 1 << 51
Row = dict[str, Any]  # by the names of columns
TensorShape = tuple[str | None, Sequence[int]]  # dtype and sizes
Operand = tuple[int, TensorShape, int | None]  # number of a storage, and of the tensor that fills it: shape, elements


class TimedEvent(Struct):
    """An event of a JSON file, in microseconds. A time that cannot be is −1 ns."""

    ts: int | float = math.nan
    dur: int | float = math.nan
    start_ns: int = -1
    dur_ns: int = -1

    def __post_init__(self) -> None:
        self.start_ns, self.dur_ns = (round(us * 1_000) if 0 <= us < _LATEST_US else -1 for us in (self.ts, self.dur))


def small_timeline(
    path: str,
    tables: Mapping[str, Sequence[Row]],
    *,
    events: Mapping[str, int],
    says: Iterable[str],
    truncated: bool = False,
    skipped: Mapping[str, int] | None = None,
    dropped: Mapping[str, int] | None = None,
    **meta: Any,
) -> Timeline:
    """Return a timeline of these tables, and what became of each event; `meta`: what else it says of itself."""
    found, left_out, lost = (
        {name: count for name, count in sorted((each or {}).items()) if count} for each in (events, skipped, dropped)
    )
    warnings = tuple(filter(None, says))
    report = IngestReport(events=found, skipped=left_out, dropped=lost, warnings=warnings, truncated=truncated)
    made = {name: pa.Table.from_pylist([*rows], schema=TABLES[name].schema) for name, rows in tables.items()}
    return Timeline(meta=Meta(tracemine_version=__version__, source=Path(path).name, ingest=report, **meta), **made)


def node_row(row: int, name: str, given: Sequence[TensorShape], facts: Mapping[str, str | None]) -> Row:
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


def tensor_rows(
    op_row: int, reads: Iterable[tuple[int, Operand]], writes: Iterable[tuple[int, Operand]], device: str
) -> Iterator[Row]:
    """Yield rows of `tensors` of what an operator reads and writes, by position; of unknown size one element."""
    for is_output, operands in ((False, reads), (True, writes)):
        for position, (number, (dtype, sizes), elements) in operands:
            yield {
                "op_row": op_row,
                "is_output": is_output,
                "position": position,
                "tensor_id": number,
                "storage_id": number,
                "offset_elements": 0,
                "numel": min(elements or 1, _MOST_ELEMENTS),
                "itemsize_bytes": itemsize(dtype or ""),
                "device": device,
                "dtype": dtype,
                "shape": [] if elements is None else sizes,
            }
