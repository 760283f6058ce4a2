"""From what was recorded to a checked timeline: calls, runs of modules, executions of instructions, stacks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from tracemine.collector import paused
from tracemine.columns import Array, numbers, with_columns
from tracemine.formats.arrow import MISSING, floats, int_triples, integers, positive, row_numbers, table_of, take, texts
from tracemine.formats.kineto.memory import memory_table
from tracemine.formats.kineto.nesting import Nesting, time_order
from tracemine.formats.kineto.stacks import CallPaths, FrameStacks, stacks_table
from tracemine.formats.repetitions import repetition_notes
from tracemine.formats.xla import report as said
from tracemine.formats.xla.device_rows import KINDS, MEMORIES, collective, copy_texts, details_of
from tracemine.formats.xla.executions import EVIDENCE, TEXTS, Executions, executions_of
from tracemine.formats.xla.frames import frame_text
from tracemine.formats.xla.host import KERNEL_LAUNCH, USUAL_LAUNCH, HostRows, call_name, host_rows, is_call
from tracemine.formats.xla.recording import Columns, Recording
from tracemine.timeline import IngestReport, Meta, Timeline
from tracemine.version import __version__

_REASONS = ("no_launch_call", "graph_replay", "outside_any_op")
_API_KINDS = ("runtime", "driver")
_OP_KINDS = ("annotation", "op")
_KERNEL, _MEMCPY = KINDS.index("kernel"), KINDS.index("memcpy")
_CUDA_MEMORY = 1  # of c10::DeviceType


def assemble(recording: Recording, source_name: str) -> Timeline:
    """Return the timeline of a recording; `source_name` is its file's name without the folder."""
    with paused():
        return _assembled(recording, source_name)


def _assembled(recording: Recording, source_name: str) -> Timeline:
    dropped: Counter[str] = Counter()
    strings = list(recording.strings)
    rows = host_rows(recording, strings)
    found = executions_of(recording)
    host = recording.host
    ops, place = _ops(recording, rows, found, strings)
    api_of = np.full(len(host["name"]) + 1, -1, np.int64)
    api_of[rows.calls] = np.arange(len(rows.calls))
    paths, frame_texts, op_stack, api_stack = _stacks(recording, rows, found, ops, dropped)
    stacks, _, _ = stacks_table(paths, frame_texts)
    of_activity = take(place, found.of_activity)
    steps = _steps(recording, rows)
    step = _step_of(recording, steps)
    details = details_of(recording)
    api = _api_table(recording, rows, details["kind"], strings, of_activity, api_stack)
    launch = api_of[recording.gpu["launch"]]
    memory = _memory(recording, dropped)
    unowned, activities = _activities(recording, details, found, of_activity, launch, step)
    tensors, instructions = (_renumbered(table, place) for table in (found.tensors, found.instructions))
    notes = (*found.warnings, *said.warnings(recording, unowned), *repetition_notes(recording.gpu, dropped))
    return Timeline(
        meta=_meta(recording, source_name, found, bool(len(stacks)), notes, unowned, dropped),
        activities=activities,
        ops=_ops_table(recording, ops, op_stack, found, strings),
        api=api,
        steps=_steps_table(recording, steps, strings),
        stacks=stacks,
        memory=memory,
        tensors=tensors,
        instructions=instructions,
    )


def _renumbered(table: pa.Table | None, place: Array) -> pa.Table | None:
    """Return a table of executions with their rows among the ops, in the order of these."""
    if table is None:
        return None
    op_row = place[numbers(table.column("op_row"))]
    if bool((np.diff(place) > 0).all()):  # as they stand
        return with_columns(table, {"op_row": integers(op_row, pa.int64())})
    order = np.argsort(op_row, kind="stable")
    return with_columns(table, {"op_row": integers(op_row, pa.int64())}).take(integers(order, pa.int64()))


def _meta(
    recording: Recording,
    source_name: str,
    found: Executions,
    has_stacks: bool,
    notes: tuple[str, ...],
    unowned: Counter[str],
    dropped: Counter[str],
) -> Meta:
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
        profile_memory=bool(len(recording.memory["start_ns"])),
        versions=recording.versions,
        ingest=IngestReport(
            events=said.events(recording),
            dropped=dict(sorted(dropped.items())),
            unowned=dict(sorted(unowned.items())),
            warnings=notes,
            truncated=recording.truncated,
        ),
    )


def _ops(recording: Recording, rows: HostRows, found: Executions, strings: list[str]) -> tuple[Columns, Array]:
    """Return annotations and executions in order of time, and the row of each execution.

    `from`: row of an execution, −1 for an annotation, whose `name` is in `strings`. What is launched together, as by a
    graph's replay, begins with the launch and takes no time of its own on the host.
    """
    host = recording.host
    named_rows = rows.annotations
    own: Columns = {
        "start_ns": np.concatenate((host["start_ns"][named_rows], rows.runs["start_ns"])),
        "end_ns": np.concatenate((host["end_ns"][named_rows], rows.runs["end_ns"])),
        "thread": np.concatenate((host["thread"][named_rows], rows.runs["thread"])),
        "name": np.concatenate((host["name"][named_rows], rows.runs["name"])),
    }
    order = time_order(own["start_ns"], own["start_ns"] - own["end_ns"])
    own = {name: column[order] for name, column in own.items()}
    nesting = Nesting(own["start_ns"], own["end_ns"], own["thread"])
    begin, end, thread = _launched(recording, found)
    around = nesting.innermost(begin, end, thread)
    count = len(order)
    joined = {
        "start_ns": np.concatenate((own["start_ns"], begin)),
        "dur_ns": np.concatenate((own["end_ns"] - own["start_ns"], end - begin)),
        "thread": np.concatenate((own["thread"], thread)),
        "name": np.concatenate((own["name"], np.full(len(begin), -1, np.int32))),
        "parent": np.concatenate((nesting.parents(), around)).astype(np.int64),
        "from": np.concatenate((np.full(count, -1), np.arange(len(begin)))),
    }
    together = np.argsort(joined["start_ns"], kind="stable")
    place = np.empty(len(together), np.int64)
    place[together] = np.arange(len(together))
    ops = {name: column[together] for name, column in joined.items()}
    ops["parent"] = take(place, ops["parent"])
    return ops, place[count:]


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
    call, row = gpu["launch"][owned], found.of_activity[owned]
    alone = ~shared[call] & (host["thread"][call] == thread[row])
    np.maximum.at(end, row[alone], host["end_ns"][call[alone]])
    return begin, end, thread


def _ops_table(recording: Recording, ops: Columns, stack: Array, found: Executions, strings: list[str]) -> pa.Table:
    is_op = ops["from"] >= 0
    pool = [*strings, *found.texts]
    shifted = {}
    for name in TEXTS:
        ids = take(found.rows[name], ops["from"]) if name in found.rows else np.full(len(is_op), -1)
        shifted[name] = np.where(ids >= 0, ids + len(strings), -1).astype(np.int32)
    number = take(found.rows["number"], ops["from"]) if "number" in found.rows else np.full(len(is_op), -1)
    columns = {
        "kind": texts(is_op.astype(np.int8), _OP_KINDS),
        "start_ns": integers(ops["start_ns"], pa.int64()),
        "dur_ns": integers(ops["dur_ns"], pa.int64()),
        **_of_threads(recording, ops["thread"]),
        "parent_row": row_numbers(ops["parent"]),
        **{name: texts(ids, pool) for name, ids in shifted.items()},
        "name": texts(np.where(is_op, shifted["name"], ops["name"]).astype(np.int32), pool),
        "stack_row": row_numbers(stack),
        "execution_node_id": row_numbers(number),
    }
    return table_of("ops", columns, len(is_op))


def _of_threads(recording: Recording, thread: Array) -> dict[str, pa.Array]:
    tids = np.array([*recording.tids, MISSING], np.int64)
    return {"pid": integers(np.full(len(thread), recording.pid), pa.int64()), "tid": integers(tids[thread], pa.int64())}


def _stacks(
    recording: Recording, rows: HostRows, found: Executions, ops: Columns, dropped: Counter[str]
) -> tuple[CallPaths, list[str], Array, Array]:
    """Return all call paths and the texts of their frames, and the rows that ops and calls have among them.

    What the compiler says of an instruction goes before what ran on the host when it was launched.
    """
    of_compiler = found.paths or CallPaths(np.empty(0, np.int32), np.empty(0, np.int32))
    known = take(found.rows["stack"], ops["from"]) if "stack" in found.rows else np.full(len(ops["from"]), -1)
    calls = rows.calls
    count = len(of_compiler.parent)
    if not len(recording.frames["start_ns"]):
        return of_compiler, found.texts, known, np.full(len(calls), -1)
    stacks = FrameStacks.of(dict(recording.frames), dropped)
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
    return {name: host[name][rows.steps] for name in ("name", "step", "start_ns", "dur_ns", "end_ns", "thread")}


def _step_of(recording: Recording, steps: Columns) -> Array:
    """Return the step during which each activity was launched, −1 where there is none."""
    launched = take(recording.host["start_ns"], recording.gpu["launch"], MISSING)
    last = np.searchsorted(steps["start_ns"], launched, "right") - 1
    return np.where((last >= 0) & (launched < take(steps["end_ns"], last, MISSING)), last, -1)


def _steps_table(recording: Recording, steps: Columns, strings: list[str]) -> pa.Table:
    columns = {
        "name": texts(steps["name"], strings),
        "number": integers(steps["step"], pa.int64()),
        "start_ns": integers(steps["start_ns"], pa.int64()),
        "dur_ns": integers(steps["dur_ns"], pa.int64()),
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
        "start_ns": integers(host["start_ns"][calls], pa.int64()),
        "dur_ns": integers(host["dur_ns"][calls], pa.int64()),
        **_of_threads(recording, host["thread"][calls]),
        "correlation": integers(positive(host["correlation"][calls]), pa.int64()),
        "kernel": texts(np.where(launches_kernel, name, -1).astype(np.int32), strings),
        "op_row": row_numbers(launched[calls]),
        "stack_row": row_numbers(stack),
    }
    return table_of("api", columns, len(calls))


def _activities(
    recording: Recording, details: Columns, found: Executions, op_row: Array, launch: Array, step: Array
) -> tuple[Counter[str], pa.Table]:
    gpu, strings = recording.gpu, recording.strings
    copied = found.copied_bytes != MISSING
    kind = np.where(copied, _MEMCPY, details["kind"]).astype(np.int8)
    ways, way_texts = copy_texts(recording, kind)
    ways = np.where(copied & (ways < 0), len(way_texts), ways).astype(np.int32)
    reason = np.select([op_row >= 0, launch < 0, gpu["graph_id"] > 0], [-1, 0, 1], 2)
    columns = {
        "kind": texts(kind, KINDS),
        "name": texts(gpu["name"], strings),
        **{name: integers(gpu[name], pa.int64()) for name in ("start_ns", "dur_ns", "stream")},
        "device": integers(gpu["device"], pa.int32()),
        **{name: integers(positive(gpu[name]), pa.int64()) for name in ("correlation", "graph_id", "graph_node_id")},
        "grid": int_triples([details[f"grid_{axis}"] for axis in "xyz"]),
        "block": int_triples([details[f"block_{axis}"] for axis in "xyz"]),
        "registers_per_thread": integers(details["registers"], pa.int32()),
        "shared_memory_bytes": integers(details["shared_memory"], pa.int64()),
        "occupancy_percent": floats(details["occupancy"]),
        "bytes": integers(np.where(copied, found.copied_bytes, details["bytes"]), pa.int64()),
        "copy_kind": texts(ways, [*way_texts, "DtoD"]),
        "source_memory": texts(details["source"], MEMORIES),
        "target_memory": texts(details["target"], MEMORIES),
        "collective": texts(gpu["hlo_op"], strings, collective),
        "launch_row": row_numbers(launch),
        "op_row": row_numbers(op_row),
        "owner_evidence": texts(np.where(op_row >= 0, found.evidence, -1).astype(np.int8), EVIDENCE),
        "unowned_reason": texts(reason.astype(np.int8), _REASONS),
        "step_row": row_numbers(step),
    }
    counts = np.bincount(reason[reason >= 0], minlength=len(_REASONS)).tolist()
    unowned = Counter({name: count for name, count in zip(_REASONS, counts, strict=True) if count})
    return unowned, table_of("activities", columns, len(kind))


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
        "device_type": np.full(len(kept), _CUDA_MEMORY),
        "device": device[kept],
        "pid": np.full(len(kept), recording.pid),
        "tid": np.array([*recording.tids, MISSING], np.int64)[memory["thread"][kept]],
        "thread": memory["thread"][kept],
        "total_allocated": memory["allocated"][kept],
        "total_reserved": np.full(len(kept), MISSING),
    }
    nothing = np.empty(0, np.int64)
    return memory_table(columns, Nesting(nothing, nothing, nothing), np.empty(0, np.bool_), dropped)
