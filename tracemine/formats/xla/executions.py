"""Which instruction each activity carries out: one row for each execution of an instruction of a compiled module."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from tracemine.columns import Array, codes, examples, is_among
from tracemine.formats.kineto.launches import named
from tracemine.formats.kineto.stacks import CallPaths
from tracemine.formats.xla.hlo_tables import instruction_columns, recorded_dtype, tensor_columns
from tracemine.formats.xla.host import enclosing
from tracemine.formats.xla.instructions import ScheduledInstruction
from tracemine.formats.xla.join import joined, programs_of, repeated
from tracemine.formats.xla.recording import Columns, Recording, Strings
from tracemine.formats.xla.repeats import first_of
from tracemine.formats.xla.storages import Storages, depends
from tracemine.formats.xla.values import TakenArray
from tracemine.timeline.arrow import MISSING, take

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
