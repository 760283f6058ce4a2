"""Columns of the tables `tensors` and `instructions` by runs of instructions, before these have rows in `ops`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from tracemine.columns import Array, texts
from tracemine.formats.xla.hlo import Shape
from tracemine.formats.xla.instructions import ScheduledInstruction, trips
from tracemine.formats.xla.join import Joined
from tracemine.formats.xla.recording import Strings
from tracemine.formats.xla.repeats import EqualRuns
from tracemine.formats.xla.storages import Storages, tensor_rows
from tracemine.formats.xla.values import ArrayPart
from tracemine.timeline.arrow import MISSING, booleans, integers, lists_of, row_numbers

_RECORDED: Final = {  # how a profiler of torch writes an element type
    "pred": "bool", "s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64", "u8": "uint8", "u16": "uint16",
    "u32": "uint32", "u64": "uint64", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
    "c64": "complex64", "c128": "complex128", "f8e5m2": "float8_e5m2", "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2fnuz": "float8_e5m2fnuz", "f8e4m3fnuz": "float8_e4m3fnuz", "f8e8m0fnu": "float8_e8m0fnu",
}  # fmt: skip


def recorded_dtype(name: str) -> str:
    """Return an element type as a timeline has it.

    >>> recorded_dtype("bf16"), recorded_dtype("s4")
    ('bfloat16', 's4')
    """
    return _RECORDED.get(name, name)


def tensor_columns(storages: Storages, found: Joined, runs: EqualRuns) -> tuple[dict[str, pa.Array], Array]:
    """Return columns of what all runs take and give, without `op_row`; and how many of the rows each run has."""
    given, count, storage = tensor_rows(storages, runs)
    shapes: dict[tuple[Shape, ArrayPart | None], int] = {}
    of = np.array([shapes.setdefault((t.shape, t.part), len(shapes)) for t in given], np.int64)
    parts = [part or ArrayPart(0, shape.dims, shape.strides) for shape, part in shapes]
    facts = np.array([(t.given, t.position, t.list_index, found.device[t.run]) for t in given], np.int64).reshape(-1, 4)
    is_output, position, list_index, device = facts.T
    strings = Strings()
    dtype = np.array([strings[recorded_dtype(shape.dtype)] for shape, _ in shapes], np.int64)
    size = np.array([max(shape.bits // 8, 1) for shape, _ in shapes], np.int64)
    numel = np.array([*map(_count, parts)], np.int64)
    offset = np.array([part.offset for part in parts], np.int64)
    names = [f"cuda:{ordinal}" for ordinal in range(int(device.max(initial=-1)) + 1)]

    def made(row: Array) -> dict[str, pa.Array]:
        shape = of[row]
        return {
            "is_output": booleans(is_output[row]),
            "position": integers(position[row], pa.int32()),
            "list_index": integers(np.where(list_index < 0, MISSING, list_index)[row], pa.int32()),
            "offset_elements": integers(offset[shape], pa.int64()),
            "numel": integers(numel[shape], pa.int64()),
            "itemsize_bytes": integers(size[shape], pa.int64()),
            "device": texts(device[row], names),
            "dtype": texts(dtype[shape], [*strings]),
            "shape": lists_of([part.dims for part in parts], shape),
            "strides": lists_of([part.strides for part in parts], shape),
        }

    ids = integers(storage, pa.int64())
    columns = runs.spread(count, made) | {"tensor_id": ids, "storage_id": ids}
    return columns, count.astype(np.int32)[runs.like]


def _count(part: ArrayPart) -> int:
    return int(np.prod(part.dims, dtype=np.int64))


def instruction_columns(
    items: Sequence[ScheduledInstruction], needed: Array, of: Array, found: Joined, runs: EqualRuns
) -> dict[str, pa.Array]:
    """Return columns of what instruction each run is of, without `op_row`; `of`: which of the items that is, of which
    some are `needed` of the iteration before.
    """
    facts = [_facts(item) for item in items]
    looped = np.array([fact["loop"] is not None for fact in facts], np.bool_)
    gives = np.array([any(each.value in item.values.kept for each in item.results) for item in items], np.bool_)

    def made(row: Array) -> dict[str, pa.Array]:
        run = runs.examples[row]
        one = of[run]
        columns = {name: column([fact[name] for fact in facts], one) for name, column in _COLUMNS.items()}
        return columns | {
            "turn": integers(np.where(looped[one], found.turn[run].astype(np.int64), MISSING), pa.int64()),
            "needs_turn": _known(needed[one], looped[one]),
            "gives_result": booleans(gives[one]),
        }

    columns = runs.spread(np.ones(len(runs.examples), np.int64), made)
    return columns | {"execution": row_numbers(found.execution)}


def _facts(item: ScheduledInstruction) -> dict[str, str | int | None]:
    body, module = item.body, item.values.module
    loop = module.instructions.get(item.loop) if item.loop else None
    return {
        "program": item.program,
        "program_name": module.name,
        "name": item.instruction.name,
        "opcode": item.instruction.opcode,
        "body": " ".join(sorted(body.opcodes)),
        "library": body.library or None,
        "precision": body.precision or None,
        "dtypes": " ".join(sorted(map(recorded_dtype, body.dtypes))),
        "multiplies": recorded_dtype(body.multiplies) or None,
        "flops": body.flops or None,
        "loop": None if loop is None else loop.name,
        "trips": None if loop is None else trips(loop) or None,
    }


def _texts(values: Sequence[str | int | None], of: Array) -> pa.Array:
    strings = Strings()
    ids = np.array([strings.of(None if value is None else str(value)) for value in values], np.int64)
    return texts(ids[of], [*strings])


def _numbers(values: Sequence[str | int | None], of: Array) -> pa.Array:
    known = [value if isinstance(value, int) and abs(value) < 1 << 62 else MISSING for value in values]
    return integers(np.array(known, np.int64)[of], pa.int64())


def _known(values: Array, present: Array) -> pa.Array:
    bits = [pa.py_buffer(np.packbits(each, bitorder="little")) for each in (present, values)]
    return pa.Array.from_buffers(pa.bool_(), len(values), bits)


_TEXTS: Final = (*("program_name", "name", "opcode", "body", "library", "precision", "dtypes", "multiplies", "loop"),)
_COLUMNS: Final[dict[str, Callable[[Sequence[str | int | None], Array], pa.Array]]] = {
    **dict.fromkeys(_TEXTS, _texts),
    **dict.fromkeys(("program", "flops", "trips"), _numbers),
}
