"""From what was recorded to a checked timeline: calls, runs of modules, executions of instructions, stacks."""

from __future__ import annotations

import ctypes
import re
import sys
from collections import Counter

import numpy as np
import pyarrow as pa

from tracemine.columns import Array
from tracemine.formats.kineto.launches import step_rows
from tracemine.formats.kineto.memory import memory_table
from tracemine.formats.kineto.nesting import Nesting, time_order
from tracemine.formats.kineto.stacks import CallPaths, FrameStacks, stacks_table
from tracemine.formats.repetitions import repetition_notes
from tracemine.formats.xla import report as said
from tracemine.formats.xla.device_rows import KINDS, collective, copy_texts, detail_columns, kinds_of
from tracemine.formats.xla.executions import EVIDENCE, Executions, executions_of
from tracemine.formats.xla.host import KERNEL_LAUNCH, USUAL_LAUNCH, HostRows, call_name, host_rows, is_call
from tracemine.formats.xla.recording import Columns, Recording
from tracemine.timeline import IngestReport, Meta, Timeline
from tracemine.timeline.arrow import MISSING, integers, positive, row_numbers, table_of, take, texts
from tracemine.version import __version__

_FRAME = re.compile(r"\$(?P<file>.+):(?P<line>\d{1,9}) (?P<function>.+)", re.DOTALL)
# Files of JAX that stand on the way from a call of the user's to the runtime. They say how it was dispatched.
_OF_JAX = frozenset({
    "api.py", "api_util.py", "array.py", "array_methods.py", "basearray.py", "batching.py", "compiler.py", "core.py",
    "custom_derivatives.py", "deprecations.py", "dispatch.py", "dtypes.py", "einsum.py", "indexing.py",
    "interpreters.py", "lax.py", "lax_numpy.py", "linear_util.py", "literals.py", "mlir.py", "named_sharding.py",
    "nn.py", "partial_eval.py", "pjit.py", "prng.py", "profiler.py", "pxla.py", "reductions.py", "sharding.py",
    "sharding_impls.py", "slicing.py", "source_info_util.py", "special.py", "stages.py", "traceback_util.py",
    "tree_util.py", "typing.py", "ufunc_api.py", "ufuncs.py", "util.py", "xla.py", "xla_bridge.py",
})  # fmt: skip


def frame_text(name: str) -> str:
    """Return a frame as the table `stacks` has it; files of JAX in a folder of its name.

    >>> frame_text("$train.py:58 step"), frame_text("$array.py:293 __float__"), frame_text("$builtins len")
    ('train.py(58): step', 'jax/array.py(293): __float__', 'builtins len')
    """
    found = _FRAME.fullmatch(name)
    if found is None:
        return name.removeprefix("$")
    folder = "jax/" if found["file"] in _OF_JAX else ""
    return f"{folder}{found['file']}({found['line']}): {found['function']}"


_REASONS = ("no_launch_call", "graph_replay", "outside_any_op")
_API_KINDS = ("runtime", "driver")
_TEXTS = ("module", "input_shapes", "input_dtypes", "input_strides", "concrete_inputs", "op_schema")
_OP_KINDS = ("annotation", "op")
_KERNEL, _MEMCPY, _MEMSET = range(len(KINDS))
_CUDA_MEMORY = 1  # of c10::DeviceType


def assemble(recording: Recording, source_name: str) -> Timeline:
    """Return the timeline of a recording; `source_name` is its file's name without the folder."""
    timeline = _assembled(recording, source_name)
    _give_back()
    return timeline


def _give_back() -> None:
    """Give freed memory back to the system: glibc keeps what lies between arrays that live, a third of a recording."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _assembled(recording: Recording, source_name: str) -> Timeline:
    """Columns are taken out of the recording with the last table that needs them, to free them."""
    dropped: Counter[str] = Counter()
    strings = list(recording.strings)
    events = said.events(recording)
    overlaps = repetition_notes(recording.gpu, dropped)  # while there is little else in memory
    rows = host_rows(recording, strings)
    found = executions_of(recording)
    recording.modules.clear()
    for name in ("program", "hlo_module"):
        del recording.gpu[name]
    steps = _steps(recording, rows)
    ops, place, api_stack, stacks = _ops_and_stacks(recording, rows, found, strings, dropped)
    tensors = _by_ops("tensors", found.tensors, np.repeat(place, found.rows.pop("tensors")))
    instructions = _by_ops("instructions", found.instructions, place)
    of_activity = take(place, found.of_activity)
    kind = kinds_of(recording)
    api = _api_table(recording, rows, kind, strings, of_activity, api_stack)
    memory = _memory(recording, dropped)
    reason = _reasons(recording, of_activity)
    counts = np.bincount(reason[reason >= 0], minlength=len(_REASONS)).tolist()
    unowned = Counter({name: count for name, count in zip(_REASONS, counts, strict=True) if count})
    notes = (*found.warnings, *said.warnings(recording, unowned), *overlaps)
    report = IngestReport(
        events=events,
        dropped=dict(sorted(dropped.items())),
        unowned=dict(sorted(unowned.items())),
        warnings=notes,
        truncated=recording.truncated,
    )
    step = _step_of(recording, steps)
    _give_back()
    return Timeline(
        meta=_meta(recording, source_name, found, report, has_stacks=bool(len(stacks))),
        ops=ops,
        api=api,
        steps=_steps_table(recording, steps, strings),
        stacks=stacks,
        memory=memory,
        tensors=tensors,
        instructions=instructions,
        activities=_activities(recording, kind, found, of_activity, reason, rows.calls, step),
    )


def _by_ops(name: str, columns: dict[str, pa.Array] | None, op_row: Array) -> pa.Table | None:
    """Return a table of executions, in the order of their rows among the ops."""
    if columns is None:
        return None
    table = table_of(name, columns | {"op_row": op_row}, len(op_row))
    if bool((op_row[1:] >= op_row[:-1]).all()):
        return table
    return table.take(integers(np.argsort(op_row, kind="stable"), pa.int64()))


def _meta(recording: Recording, source_name: str, found: Executions, report: IngestReport, *, has_stacks: bool) -> Meta:
    version = recording.versions.get("jax")
    return Meta(
        tracemine_version=__version__,
        source=source_name,
        format="xla",
        producer=f"JAX {version}" if version else "XLA (JAX or another user of it)",
        base_ns=recording.base_ns,
        devices=recording.devices,
        record_shapes=found.tensors is not None,
        with_stack=has_stacks,
        profile_memory=bool(report.events.get("allocations")),
        versions=recording.versions,
        ingest=report,
    )


def _ops_and_stacks(
    recording: Recording, rows: HostRows, found: Executions, strings: list[str], dropped: Counter[str]
) -> tuple[pa.Table, Array, Array, pa.Table]:
    """Return `ops`, the row of each execution in it, and of each call in `stacks`."""
    ops, place = _ops(recording, rows, found)
    paths, frame_texts, op_stack, api_stack = _stacks(recording, rows, found, ops, dropped)
    return _ops_table(recording, ops, op_stack, found, strings), place, api_stack, stacks_table(paths, frame_texts)[0]


def _ops(recording: Recording, rows: HostRows, found: Executions) -> tuple[Columns, Array]:
    """Return annotations and executions in order of time, and the row of each execution.

    `from`: row of an execution, −1 for an annotation, whose `name` is in `strings`. What is launched together, as by a
    graph's replay, begins with the launch and takes no time of its own on the host.
    """
    host, named_rows = recording.host, rows.annotations
    own = {
        name: np.concatenate((host[name][named_rows], rows.runs[name]))
        for name in ("start_ns", "end_ns", "thread", "name")
    }
    order = time_order(own["start_ns"], own["start_ns"] - own["end_ns"])
    own = {name: column[order] for name, column in own.items()}
    nesting = Nesting(own["start_ns"], own["end_ns"], own["thread"])
    begin, end, thread = _launched(recording, found)
    count = len(order)
    start = np.concatenate((own["start_ns"], begin))
    together = np.argsort(start, kind="stable").astype(np.int32)
    place = np.empty(len(together), np.int64)
    place[together] = np.arange(len(together))

    def both(of_own: Array, of_executions: Array) -> Array:
        return np.concatenate((of_own, of_executions))[together]

    parent = both(nesting.parents(), nesting.innermost(begin, end, thread))
    return {
        "start_ns": start[together],
        "dur_ns": both(own["end_ns"] - own["start_ns"], end - begin),
        "thread": both(own["thread"], thread),
        "name": both(own["name"], np.full(len(begin), -1, np.int32)),
        "parent": take(place, parent),
        "from": np.where(together >= count, together - count, -1).astype(np.int32),
    }, place[count:]


def _launched(recording: Recording, found: Executions) -> tuple[Array, Array, Array]:
    """Return begin, end and thread of each execution's launches; without one, when the first of its activities began,
    and no thread.
    """
    host, gpu, launch = recording.host, recording.gpu, found.rows["launch"]
    begin, thread = take(host["start_ns"], launch, 0), take(host["thread"], launch, len(recording.threads))
    lost = np.flatnonzero((found.of_activity >= 0) & (take(launch, found.of_activity) < 0))[::-1]
    begin[found.of_activity[lost]] = gpu["start_ns"][lost]
    end = begin.copy()
    shared = np.bincount(launch[launch >= 0], minlength=len(host["name"]) + 1) > 1
    owned = np.flatnonzero((found.of_activity >= 0) & (gpu["launch"] >= 0))
    owned = owned[~shared[gpu["launch"][owned]]]
    call, row = gpu["launch"][owned], found.of_activity[owned]
    alone = host["thread"][call] == thread[row]
    np.maximum.at(end, row[alone], host["end_ns"][call[alone]])
    return begin, end, thread


def _ops_table(recording: Recording, ops: Columns, stack: Array, found: Executions, strings: list[str]) -> pa.Table:
    execution = ops["from"]
    is_op = execution >= 0
    pool = [*strings, *found.texts]
    kind = take(found.rows.pop("kind"), execution)

    def ids(name: str) -> Array:
        known = found.columns.get(name, np.empty(0, np.int32))
        return take(np.where(known >= 0, known + len(strings), -1).astype(np.int32), kind)

    columns = {
        "kind": texts(is_op.astype(np.int8), _OP_KINDS),
        "start_ns": ops["start_ns"],
        "dur_ns": ops["dur_ns"],
        **_of_threads(recording, ops["thread"]),
        "parent_row": ops["parent"],
        **{name: texts(ids(name), pool) for name in _TEXTS},
        "name": texts(np.where(is_op, ids("name"), ops["name"]), pool),
        "stack_row": stack,
        "execution_node_id": row_numbers(take(found.rows.pop("number"), execution)),
    }
    return table_of("ops", columns, len(is_op))


def _of_threads(recording: Recording, thread: Array) -> Columns:
    return {"pid": np.full(len(thread), recording.pid), "tid": np.array([*recording.tids, MISSING], np.int64)[thread]}


def _stacks(
    recording: Recording, rows: HostRows, found: Executions, ops: Columns, dropped: Counter[str]
) -> tuple[CallPaths, list[str], Array, Array]:
    """Return all call paths and the texts of their frames, and the rows that ops and calls have among them.

    What the compiler says of an instruction goes before what ran on the host when it was launched.
    """
    of_compiler = found.paths
    known = take(found.stack, take(found.rows["kind"], ops["from"]))
    calls = rows.calls
    count = len(of_compiler.parent)
    if not len(recording.frames["start_ns"]):
        return of_compiler, found.texts, known, np.full(len(calls), -1)
    stacks = FrameStacks.of(recording.frames, dropped)
    host = recording.host
    moments = [(ops["start_ns"], ops["thread"]), (host["start_ns"][calls], host["thread"][calls])]
    paths, (around_ops, around_calls) = stacks.paths_around(moments)
    shift = len(found.texts)
    both = CallPaths(
        np.concatenate((of_compiler.parent, np.where(paths.parent >= 0, paths.parent + count, -1))),
        np.concatenate((of_compiler.frame, paths.frame + shift)),
    )
    moved = [np.where(each >= 0, each + count, -1) for each in (around_ops, around_calls)]
    frame_texts = [*found.texts, *(frame_text(text) for text in recording.strings)]
    return both, frame_texts, np.where(known >= 0, known, moved[0]), moved[1]


def _steps(recording: Recording, rows: HostRows) -> Columns:
    host = recording.host
    return {name: host[name][rows.steps] for name in ("name", "step", "start_ns", "end_ns", "thread")}


def _step_of(recording: Recording, steps: Columns) -> Array:
    """Return the step during which each activity was launched, −1 where there is none."""
    launched = take(recording.host["start_ns"], recording.gpu["launch"], MISSING)
    return step_rows(launched, steps["start_ns"], steps["end_ns"])


def _steps_table(recording: Recording, steps: Columns, strings: list[str]) -> pa.Table:
    columns = {
        "name": texts(steps["name"], strings),
        "number": steps["step"],
        "start_ns": steps["start_ns"],
        "dur_ns": steps["end_ns"] - steps["start_ns"],
        **_of_threads(recording, steps["thread"]),
    }
    return table_of("steps", columns, len(steps["name"]))


def _api_table(
    recording: Recording, rows: HostRows, kind: Array, strings: list[str], of_activity: Array, stack: Array
) -> pa.Table:
    host, gpu, calls = recording.host, recording.gpu, rows.calls
    name = host["name"][calls]
    # On NVIDIA a launch is named after what it launches.
    as_call = np.array([*(is_call(text) for text in strings), False], np.bool_)
    kernel_launches = np.zeros(len(host["name"]) + 1, np.bool_)
    kernel_launches[gpu["launch"][kind == _KERNEL]] = True
    kernel_launches[-1] = False
    launches_kernel = kernel_launches[calls] & ~as_call[name]
    launched = np.full(len(host["name"]) + 1, -1, np.int64)
    several = np.bincount(gpu["launch"][gpu["launch"] >= 0], minlength=len(host["name"]) + 1) > 1
    launched[gpu["launch"]] = of_activity
    launched[several] = -1
    vendor = next(iter(recording.vendors.values()), "")
    pool = [*strings, KERNEL_LAUNCH.get(vendor, USUAL_LAUNCH)]
    columns = {
        "kind": texts(
            np.array([*(text.startswith("cu") and not text.startswith("cuda") for text in pool), False], np.int8)[
                np.where(launches_kernel, len(strings), name)
            ],
            _API_KINDS,
        ),
        "name": texts(np.where(launches_kernel, len(strings), name).astype(np.int32), pool, call_name),
        "start_ns": host["start_ns"][calls],
        "dur_ns": (host["end_ns"] - host["start_ns"])[calls],
        **_of_threads(recording, host["thread"][calls]),
        "correlation": positive(host["correlation"][calls]),
        "kernel": texts(np.where(launches_kernel, name, -1).astype(np.int32), strings),
        "op_row": launched[calls],
        "stack_row": stack,
    }
    return table_of("api", columns, len(calls))


def _reasons(recording: Recording, op_row: Array) -> Array:
    """Return why each activity has no execution, as ids in `_REASONS`; −1: it has one."""
    gpu = recording.gpu
    return np.select([op_row >= 0, gpu["launch"] < 0, gpu["graph_id"] > 0], [-1, 0, 1], 2).astype(np.int8)


def _activities(
    recording: Recording, kind: Array, found: Executions, op_row: Array, reason: Array, calls: Array, step: Array
) -> pa.Table:
    gpu, strings = recording.gpu, recording.strings
    is_set = kind == _MEMSET
    kind[found.copies] = _MEMCPY
    ways, way_texts = copy_texts(recording, kind)
    ways[found.copies[ways[found.copies] < 0]] = len(way_texts)
    launch = np.full(len(recording.host["name"]) + 1, -1, np.int32)
    launch[calls] = np.arange(len(calls), dtype=np.int32)
    launch = launch[gpu.pop("launch")]
    recording.host.clear()
    details = detail_columns(recording, is_set, found.copies, found.copied_bytes)
    columns = details | {
        "kind": texts(kind, KINDS),
        "name": texts(gpu.pop("name"), strings),
        **{name: gpu.pop(name) for name in ("start_ns", "dur_ns", "stream", "device")},
        **{name: positive(gpu.pop(name)) for name in ("correlation", "graph_id", "graph_node_id")},
        "copy_kind": texts(ways, [*way_texts, "DtoD"]),
        "collective": texts(gpu.pop("hlo_op"), strings, collective),
        "launch_row": launch,
        "op_row": op_row,
        "owner_evidence": texts(np.where(op_row >= 0, 0, -1).astype(np.int8), EVIDENCE),
        "unowned_reason": texts(reason, _REASONS),
        "step_row": step,
    }
    return table_of("activities", columns, len(kind))


def _memory(recording: Recording, dropped: Counter[str]) -> pa.Table:
    """Return allocations on GPUs; what is freed has the same size, and counts below 0."""
    memory, strings = recording.memory, recording.strings
    ordinals = [said.allocator_device(text) for text in strings]
    device = np.array([*ordinals, -1], np.int64)[memory["allocator"]]
    freed = np.array([*(text.endswith("Deallocation") for text in strings), False], np.bool_)[memory["name"]]
    kept = np.flatnonzero((device >= 0) & (memory["bytes"] != MISSING))
    size = memory["bytes"][kept]
    columns = {
        "start_ns": memory["start_ns"][kept],
        "bytes": np.where(freed[kept], -size, size),
        "address": memory["address"][kept],
        "device_type": np.full(len(kept), _CUDA_MEMORY, np.int32),
        "device": device[kept],
        "pid": np.full(len(kept), recording.pid),
        "tid": np.array([*recording.tids, MISSING], np.int64)[memory["thread"][kept]],
        "thread": memory["thread"][kept],
        "total_allocated": memory["allocated"][kept],
        "total_reserved": np.full(len(kept), MISSING),
    }
    memory.clear()
    nothing = np.empty(0, np.int64)
    return memory_table(columns, Nesting(nothing, nothing, nothing), np.empty(0, np.bool_), dropped)
