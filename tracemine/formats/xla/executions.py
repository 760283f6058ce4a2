"""Which instruction each activity carries out: one row for each execution of an instruction of a compiled module."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from tracemine.columns import Array, codes, examples, is_among, texts
from tracemine.formats.kineto.launches import named
from tracemine.formats.kineto.stacks import CallPaths
from tracemine.formats.xla.hlo import Shape
from tracemine.formats.xla.host import EqualRuns, enclosing, first_of
from tracemine.formats.xla.instructions import ScheduledInstruction, trips
from tracemine.formats.xla.join import Joined, joined, programs_of, repeated
from tracemine.formats.xla.recording import Columns, Recording, Strings
from tracemine.formats.xla.storages import Storages, depends, tensor_rows
from tracemine.formats.xla.values import ArrayPart, TakenArray
from tracemine.timeline.arrow import MISSING, booleans, integers, lists_of, row_numbers, take

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


def _hlo_texts(values: Sequence[str | int | None], of: Array) -> pa.Array:
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
    **dict.fromkeys(_TEXTS, _hlo_texts),
    **dict.fromkeys(("program", "flops", "trips"), _numbers),
}

EVIDENCE: Final = ("compiler",)

_OUTER: Final = re.compile(r"^(?:p?jit\([^()]*\)/)+")  # of an op_name
_ENCLOSES: Final = (re.compile("command_buffer::execute"), re.compile("GpuExecutable::ExecuteThunks"))
_COPY: Final = re.compile(r"^memcpy\d", re.IGNORECASE)  # a kernel that a graph's copy became
_APART: Final = (
    "Kernels of {} command buffers cannot be distinguished: record once more with "
    'XLA_FLAGS="--xla_gpu_enable_command_buffer=".'
)
_MOST: Final = (1 << 31) - 1
_NO_PATHS: Final = CallPaths(np.empty(0, np.int32), np.empty(0, np.int32))


class Executions(msgspec.Struct, frozen=True, kw_only=True):
    """Executions of instructions, in any order; the timeline's `ops` are these and the host's annotations.

    `rows`: launch (row of `host`, −1: not recorded); number, which grows as they were executed (−1: what it takes and
    gives is not known); kind, which instruction it is of; tensors, how many rows of `tensors` it has.
    """

    rows: Columns
    columns: Columns  # texts of each instruction, ids in `texts` (−1: none), by the names of columns of `ops`
    stack: Array  # of each instruction a row of `paths`, −1
    texts: list[str]
    paths: CallPaths = _NO_PATHS  # whose frames are ids in `texts`
    of_activity: Array  # for each activity an execution, −1: its instruction is not known
    copies: Array  # activities that are copies though they are recorded as kernels
    copied_bytes: Array  # of each of these
    tensors: dict[str, pa.Array] | None = None  # columns of that table but `op_row`, by execution
    instructions: dict[str, pa.Array] | None = None  # likewise, a row each
    warnings: tuple[str, ...] = ()


def executions_of(recording: Recording) -> Executions:
    """Return executions as far as it is known which instruction each activity is of.

    Where the modules are recorded, what command buffers replayed too. Else that says the buffer's name, and has no row.
    """
    if recording.modules:
        return _of_programs(recording)
    gpu = recording.gpu
    rows = np.flatnonzero((gpu["hlo_op"] >= 0) & (gpu["launch"] >= 0) & (gpu["graph_id"] <= 0))
    code = codes(gpu["launch"][rows], gpu["hlo_op"][rows]) if len(rows) else rows
    example = rows[first_of(code)]
    of_activity = np.full(len(gpu["launch"]), -1, np.int32)
    of_activity[rows] = code
    texts = [f"xla::{text}" for text in recording.strings]
    return Executions(
        rows={
            "launch": gpu["launch"][example],
            "number": np.full(len(example), -1, np.int32),
            "kind": gpu["hlo_op"][example],
            "tensors": np.zeros(len(example), np.int32),
        },
        columns={"name": np.arange(len(texts), dtype=np.int32)},
        stack=np.full(len(texts), -1, np.int32),
        texts=texts,
        of_activity=of_activity,
        copies=rows[:0],
        copied_bytes=rows[:0],
    )


def _of_programs(recording: Recording) -> Executions:
    programs, items = programs_of(recording.modules)
    found = joined(programs, _kernels(recording), recording.strings)
    runs = repeated(found)
    storages = Storages(items)
    for run in runs.examples.tolist():
        storages.add(run, found)
    of = codes(found.item)
    used = found.item[examples(of)]
    needs = np.array(depends(items), np.bool_)[used]
    items = [items[at] for at in used.tolist()]
    strings = Strings()
    texts = [_texts(item) for item in items]
    stack, paths = _stacks(items, strings)
    names = texts[0] if texts else ()
    columns = {name: np.array([strings.of(text[name]) for text in texts], np.int32) for name in names}
    first = np.full(len(found.item), -1, np.int32)
    owned = np.flatnonzero(found.owner >= 0)[::-1]
    first[found.owner[owned]] = owned
    unknown = is_among(runs.examples, np.array(storages.unknown, np.int64))
    tensors, tensor_counts = tensor_columns(storages, found, runs)
    # What a graph copies is recorded as a kernel.
    copies = np.flatnonzero((found.owner >= 0) & named(recording.gpu["name"], recording.strings, _COPY))
    size = [sum((each.updates * each.shape.bits + 7) // 8 for each in item.results) for item in items]
    return Executions(
        rows={
            "launch": recording.gpu["launch"][first],
            "number": np.where(unknown[runs.like], -1, np.arange(len(found.item), dtype=np.int32)),
            "kind": of,
            "tensors": tensor_counts,
        },
        columns=columns,
        stack=stack,
        texts=[*strings],
        paths=paths,
        of_activity=found.owner,
        copies=copies,
        copied_bytes=np.array(size, np.int64)[of[found.owner[copies]]],
        tensors=tensors,
        instructions=instruction_columns(items, needs, of, found, runs),
        warnings=(_APART.format(f"{found.apart:,}"),) if found.apart else (),
    )


def _kernels(recording: Recording) -> Columns:
    """Return the columns of activities with those that say how each was launched."""
    gpu, host = recording.gpu, recording.host
    buffer, execution = (take(enclosing(recording, pattern), gpu["launch"]) for pattern in _ENCLOSES)
    commands = take(np.clip(host["commands"], 0, _MOST).astype(np.int32), buffer, 0)
    in_graph = (gpu["graph_node_id"] != MISSING) & (gpu["graph_id"] > 0)
    node = np.where(in_graph, np.minimum(gpu["graph_node_id"] & 0xFFFF_FFFF, _MOST), -1).astype(np.int32)
    return gpu | {"node": node, "commands": commands, "execution": execution}


def _texts(item: ScheduledInstruction) -> dict[str, str | None]:
    """Return the texts of an instruction's rows of `ops`."""
    instruction, kind = item.instruction, item.body.kind
    given: list[TakenArray | None] = [None] * len(instruction.operands)
    for read in item.reads:
        given[read.position] = read
    taken = [read for read in given if read is not None]
    updated = {result.into for result in item.results}
    arguments = ", ".join(
        f"{'Tensor(a!)' if position in updated else 'Tensor'} operand{position}" for position in range(len(given))
    )
    module_path = _OUTER.sub("", instruction.origin.op_name)
    return {
        "name": f"xla::{kind}",
        "module": module_path.replace(".", "_").replace("/", ".") or None,
        "input_shapes": _json([read.shape.dims for read in taken]),
        "input_dtypes": _json([recorded_dtype(read.shape.dtype) for read in taken]),
        "input_strides": _json([read.shape.strides for read in taken]),
        "op_schema": f"xla::{kind}({arguments}) -> ({', '.join(['Tensor'] * len(item.results))})",
    }


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _stacks(items: Sequence[ScheduledInstruction], strings: Strings) -> tuple[Array, CallPaths]:
    """Return of each instruction the row of its stack (−1: none), and the stacks."""
    known: dict[tuple[int, int], int] = {}  # of a caller and a frame
    last = list[int]()
    for item in items:
        at = -1
        for one in item.values.module.stack(item.instruction):
            text = strings[f"{one.file}({one.line}): {one.function or '<module>'}"]
            at = known.setdefault((at, text), len(known))
        last.append(at)
    parent, frame = np.array([*known], np.int32).reshape(-1, 2).T
    return np.array(last, np.int64), CallPaths(parent, frame)
