"""The format of `export_chrome_trace`: recognised, scanned, assembled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tracemine.columns import Array
from tracemine.formats.format import Format, Progress
from tracemine.formats.kineto import header, launches, names
from tracemine.formats.kineto.collectives import collectives_table
from tracemine.formats.kineto.locks import lock_table, lock_waits
from tracemine.formats.kineto.memory import memory_table, unsound
from tracemine.formats.kineto.nesting import Nesting, time_order
from tracemine.formats.kineto.report import Seen, check_known, warnings
from tracemine.formats.kineto.scan import ABSENT, Columns, RawTrace
from tracemine.formats.kineto.scanner import scan
from tracemine.formats.kineto.stacks import (
    MOST_OF,
    CallPaths,
    FrameStacks,
    decoded,
    in_python,
    recorded_stacks,
    stacks_table,
)
from tracemine.formats.kineto.values import integer_of
from tracemine.formats.repetitions import repetition_notes, without_repetitions
from tracemine.formats.sniff import is_trace_json
from tracemine.formats.source import FileSource
from tracemine.timeline import IngestReport, Meta, Timeline
from tracemine.timeline.arrow import MISSING, distinct, positive, table_of, take, texts, triples
from tracemine.version import __version__

_ACTIVITY_KINDS = ["kernel", "memcpy", "memset"]
_OP_KINDS = ["op", "annotation"]
_API_KINDS = ["runtime", "driver", "sync"]
_MEMCPY, _ANNOTATION, _SYNC = 1, 1, 2
_INPUTS = {
    "input_shapes": "input_dims",
    "input_dtypes": "input_types",
    "input_strides": "input_strides",
    "concrete_inputs": "concrete_inputs",
}
_UNNAMED = "(unnamed)"
_LONG_NS = 200_000  # without a call: dispatch takes some ten microseconds


def assemble(raw: RawTrace, source_name: str) -> Timeline:
    """Join the scanner's columns into a timeline; `source_name` is the file's name without its folder.

    The columns are taken out of `raw` as they are used, so that a big trace is not held twice.
    """
    seen = Seen.of(raw)
    strings = raw.strings
    dropped = raw.dropped + unsound(raw.memory)
    threads = _number_threads(raw.calls, raw.ops, raw.frames, raw.memory)
    ops = _ops_in_order(raw.ops, strings, dropped)
    api = _api_in_order(raw.calls, raw.syncs, strings, dropped, no_thread=threads)
    gpu = _activities_in_order(raw.gpu, strings, dropped)

    is_op = ops["category"] != _ANNOTATION
    nesting = Nesting(ops["start_ns"], ops["end_ns"], ops["thread"])
    ops["parent_row"] = nesting.parents()
    api["op_row"] = nesting.innermost(api["start_ns"], api["end_ns"], api["thread"], only=is_op)
    memory = memory_table(raw.memory, nesting, is_op, dropped)
    del nesting
    launch = launches.launches_of(gpu, api, strings)
    owners = launches.owners(gpu, launch, api, ops, is_op, strings)
    late = int((take(api["start_ns"], launch, MISSING) > gpu["start_ns"]).sum())

    step_rows = np.flatnonzero(~is_op & launches.named(ops["name"], strings, names.STEP))
    launched_ns, launcher = (take(api[name], launch, MISSING) for name in ("start_ns", "pid"))
    begin, end, pid = (ops[name][step_rows] for name in ("start_ns", "end_ns", "pid"))
    several = bool(len(pid)) and bool((pid != pid[0]).any())
    step = launches.step_rows(launched_ns, begin, end, (launcher, pid) if several else None)
    steps = _steps_table(ops, step_rows, strings)

    paths, waits = _stack_rows(raw.frames, ops, api, gpu, launch, strings, dropped)
    stacks, module_of_path, modules = stacks_table(paths, strings)
    for host in (ops, api):
        host["module"] = take(module_of_path, host["stack_row"])

    collectives = collectives_table(gpu, ops, owners.op, launch, api, strings, header.group_ranks(raw.header))

    recorded_devices = distinct(gpu["device"][gpu["device"] != MISSING])[1]
    unowned = Counter(launches.REASONS[code] for code in owners.reason[owners.reason >= 0].tolist())
    report = IngestReport(
        events=_sorted(raw.events),
        skipped=_sorted(raw.skipped),
        dropped=_sorted(dropped),
        repaired=_sorted(raw.repaired),
        unowned=_sorted(unowned),
        warnings=(*raw.warnings, *warnings(raw, seen, unowned, launched_late=late), *repetition_notes(gpu, dropped)),
        truncated=raw.truncated,
    )
    return Timeline(
        meta=_meta(raw, seen, source_name, recorded_devices.tolist(), report),
        activities=_activities_table(gpu, launch, owners, step, strings),
        ops=_ops_table(ops, strings, modules),
        api=_api_table(api, strings, modules),
        steps=steps,
        stacks=stacks,
        memory=memory,
        collectives=collectives,
        lock_waits=waits,
    )


def _meta(raw: RawTrace, seen: Seen, source_name: str, devices: list[int], report: IngestReport) -> Meta:
    return Meta(
        tracemine_version=__version__,
        source=source_name,
        format="kineto",
        producer=None if seen.torch is None else f"PyTorch {seen.torch[0]}.{seen.torch[1]} or later",
        time_resolution_ns=raw.time_resolution_ns,
        base_ns=integer_of(raw.header.get("baseTimeNanoseconds")) or 0,
        devices=header.devices(raw.header, devices),
        rank=header.rank(raw.header, source_name),
        world_size=header.world_size(raw.header),
        record_shapes=seen.record_shapes,
        with_stack=seen.with_stack,
        profile_memory=seen.profile_memory,
        versions=header.versions(raw.header),
        ingest=report,
    )


def _number_threads(*tables: Columns) -> int:
    """Give each table a column `thread`: (pid, tid) as a small number, the same in all tables; how many there are."""
    pid, tid = (np.concatenate([table[name] for table in tables]) for name in ("pid", "tid"))
    # Events stand in runs of one thread, so the runs are numbered, not the events.
    run = np.append(0, 1 + np.flatnonzero((pid[1:] != pid[:-1]) | (tid[1:] != tid[:-1])))[: len(pid)]
    pairs = (distinct(pid[run])[0].astype(np.int64) << 32) | distinct(tid[run])[0]
    thread = np.repeat(distinct(pairs)[0], np.diff(run, append=len(pid)))
    ends = np.cumsum([len(table["pid"]) for table in tables])
    for table, thread_codes in zip(tables, np.split(thread, ends[:-1]), strict=True):
        table["thread"] = thread_codes
    return int(thread.max(initial=-1)) + 1


def _in_order(table: Columns, order: Array) -> Columns:
    """The columns by `order`, taken out of `table`. Their memory is filled again: new memory costs more than a copy."""
    if bool((order[1:] > order[:-1]).all()):
        return {name: table.pop(name) for name in list(table)}
    ordered: Columns = {}
    spare: dict[np.dtype[Any], Array] = {}
    for name in list(table):
        column = table.pop(name)
        ordered[name] = column.take(order, out=spare.pop(column.dtype, None), mode="clip")
        if column.flags.writeable:
            spare[column.dtype] = column
    return ordered


def _ops_in_order(table: Columns, strings: list[str], dropped: Counter[str]) -> Columns:
    ops = _in_order(table, time_order(table["start_ns"], -table["dur_ns"], table["event_index"]))
    ops = without_repetitions(ops, dropped)
    del ops["event_index"]
    ops["end_ns"] = ops["start_ns"] + ops["dur_ns"]
    ops["name"] = _named(ops["name"], strings)
    marks = launches.named(ops["name"], strings, names.MARKS)
    ops["category"] = np.where(marks, _ANNOTATION, ops["category"]).astype(np.int8)
    return ops


def _api_in_order(
    calls: Columns, syncs: Columns, strings: list[str], dropped: Counter[str], *, no_thread: int
) -> Columns:
    """Return calls and synchronisations as one table. A synchronisation has no thread and launches nothing."""
    count, none = len(calls["start_ns"]), np.full(len(syncs["start_ns"]), MISSING)
    joined = {
        "category": np.concatenate((calls["category"], np.full(len(none), _SYNC))).astype(np.int8),
        "thread": np.concatenate((calls["thread"], np.full(len(none), no_thread))),
    }
    for name in ("name", "start_ns", "dur_ns", "correlation"):
        joined[name] = np.concatenate((calls[name], syncs[name]))
    for name in ("pid", "tid", "external_id"):
        joined[name] = np.concatenate((calls[name], none))
    joined["kernel"] = np.concatenate((calls["kernel"], np.full(len(none), ABSENT))).astype(np.int32)
    for name in ("device", "stream"):
        joined[name] = np.concatenate((np.full(count, MISSING), _not_negative(syncs[name])))
    calls.clear()
    syncs.clear()
    api = without_repetitions(_in_order(joined, time_order(joined["start_ns"], -joined["dur_ns"])), dropped)
    api["end_ns"] = api["start_ns"] + api["dur_ns"]
    api["name"] = _named(api["name"], strings)
    api["launch_correlation"] = np.where(api["category"] == _SYNC, 0, api["correlation"])
    return api


def _activities_in_order(table: Columns, strings: list[str], dropped: Counter[str]) -> Columns:
    gpu = _in_order(table, time_order(table["start_ns"], table["device"], table["stream"]))
    gpu = without_repetitions(gpu, dropped)
    gpu["name"] = _named(gpu["name"], strings)
    for name in ("device", "stream"):
        gpu[name] = _not_negative(gpu[name])
    return gpu


def _stack_rows(
    frames: Columns, ops: Columns, api: Columns, gpu: Columns, launch: Array, strings: list[str], dropped: Counter[str]
) -> tuple[CallPaths, pa.Table]:
    """Give ops and api their column `stack_row`, api `before_stack_row`, ops `since_stack_row`; return all paths, and
    waits for Python's lock.
    """
    waits = table_of("lock_waits", {}, 0)
    api["before_stack_row"] = np.full(len(api["start_ns"]), -1, np.int64)
    ops["since_stack_row"] = np.full(len(ops["start_ns"]), -1, np.int64)
    if len(frames["start_ns"]):
        moments = [(host["start_ns"], host["thread"]) for host in (ops, api)]
        pid_of, tid_of = _who(ops, api, frames)
        stacks = FrameStacks.of(frames, dropped)
        late, since_ns = _late_calls(api, gpu, launch)
        lasting = stacks.lasting(since_ns, api["start_ns"][late], api["thread"][late])
        follows, before_ns = _following(ops)
        running = stacks.nesting.innermost(before_ns, ops["start_ns"][follows], ops["thread"][follows])
        operators = {name: ops[name][ops["category"] != _ANNOTATION] for name in ("start_ns", "end_ns", "thread")}
        locks = lock_waits(stacks, pid_of, in_python(stacks.name, strings), operators, api)
        paths, found = stacks.paths_around(moments, (lasting, running, locks[:, 3], locks[:, 5]))
        ops["stack_row"], api["stack_row"], api["before_stack_row"][late], ops["since_stack_row"][follows] = found[:4]
        waits = lock_table(pid_of, tid_of, locks, *found[4:])
    else:  # torch before 1.11 wrote the stack of each operator with it; a call has that of its operator
        paths, ops["stack_row"] = recorded_stacks(ops["call_stack"], strings)
        api["stack_row"] = take(ops["stack_row"], api["op_row"])
    return paths, waits


def _who(*tables: Columns) -> tuple[Array, Array]:
    """Return of each thread its process and its number there."""
    found = np.zeros((2, 1 + max(int(table["thread"].max(initial=-1)) for table in tables)), np.int64)
    for table in tables:
        found[:, table["thread"]] = table["pid"], table["tid"]
    return found[0], found[1]


def _following(ops: Columns) -> tuple[Array, Array]:
    """Return the operators that are not the first of their thread, and when the one before each began."""
    order = np.argsort(ops["thread"], kind="stable")
    same = np.diff(ops["thread"][order]) == 0
    return order[1:][same], ops["start_ns"][order[:-1][same]]


def _late_calls(api: Columns, gpu: Columns, launch: Array) -> tuple[Array, Array]:
    """Return the calls that launched what a device had long been idle for, and since when it was, or the thread made no
    other call.
    """
    launching, first = np.unique(launch, return_index=True)  # activities stand in order of start
    launching, first = launching[launching >= 0], first[launching >= 0]
    ended = _latest_before(gpu["start_ns"] + gpu["dur_ns"], gpu["device"])[first]
    called = _latest_before(api["end_ns"], api["thread"])[launching]
    since = np.maximum(ended, called)
    waited = api["start_ns"][launching] - since
    late = (ended != MISSING) & (waited >= _LONG_NS) & (waited >= MOST_OF * (api["start_ns"][launching] - ended))
    return launching[late], since[late]


def _latest_before(end: Array, group: Array) -> Array:
    """Return the latest end of all rows before each one of its group, MISSING of the first."""
    found, order = np.full(len(end), MISSING, np.int64), np.argsort(group, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        found[rows[1:]] = np.maximum.accumulate(end[rows])[:-1]
    return found


def _steps_table(ops: Columns, rows: Array, strings: list[str]) -> pa.Table:
    numbers = [names.step_number(strings[i]) for i in ops["name"][rows].tolist()]
    columns = {
        "name": texts(ops["name"][rows], strings),
        "number": np.array([MISSING if n is None else n for n in numbers], np.int64),
        **{name: ops[name][rows] for name in ("start_ns", "dur_ns", "pid", "tid")},
    }
    return table_of("steps", columns, len(rows))


def _activities_table(
    gpu: Columns, launch: Array, owners: launches.Owners, step: Array, strings: list[str]
) -> pa.Table:
    copied = np.where(gpu["category"] == _MEMCPY, gpu["name"], ABSENT)
    columns = {
        "kind": texts(gpu["category"], _ACTIVITY_KINDS),
        "name": texts(gpu["name"], strings),
        **{name: gpu[name] for name in ("start_ns", "dur_ns", "device", "stream", "context", "bytes", "group_size")},
        **{name: positive(gpu[name]) for name in ("correlation", "external_id", "graph_id", "graph_node_id")},
        **{name: triples(gpu[name], strings, names.triple) for name in ("grid", "block")},
        "registers_per_thread": gpu["registers"],
        "shared_memory_bytes": gpu["shared_memory"],
        "occupancy_percent": gpu["occupancy"],
        "collective": texts(gpu["collective"], strings),
        "copy_kind": texts(copied, strings, names.copy_kind),
        "source_memory": texts(copied, strings, names.source_memory),
        "target_memory": texts(copied, strings, names.target_memory),
        "launch_row": launch,
        "op_row": owners.op,
        "owner_evidence": texts(owners.evidence, launches.EVIDENCE),
        "unowned_reason": texts(owners.reason, launches.REASONS),
        "step_row": step,
    }
    return table_of("activities", columns, len(launch))


def _ops_table(ops: Columns, strings: list[str], modules: list[str]) -> pa.Table:
    count = len(ops["start_ns"])
    ops.pop("end_ns")
    ops.pop("thread")
    columns = {
        "kind": texts(ops.pop("category"), _OP_KINDS),
        "name": texts(ops.pop("name"), strings),
        **{name: ops.pop(name) for name in ("start_ns", "dur_ns", "pid", "tid", "parent_row")},
        **{name: positive(ops.pop(name)) for name in ("external_id", "record_function_id")},
        **{name: _not_negative(ops.pop(name)) for name in ("sequence_number", "forward_thread_id")},
        **{name: texts(ops.pop(field), strings, names.compact_json) for name, field in _INPUTS.items()},
        "kernel_backend": texts(ops.pop("kernel_backend"), strings, decoded),
        "module": texts(ops.pop("module"), modules),
        **{name: ops.pop(name) for name in ("stack_row", "since_stack_row")},
    }
    return table_of("ops", columns, count)


def _api_table(api: Columns, strings: list[str], modules: list[str]) -> pa.Table:
    as_they_are = ("start_ns", "dur_ns", "pid", "tid", "device", "stream", "op_row", "stack_row", "before_stack_row")
    columns = {
        "kind": texts(api["category"], _API_KINDS),
        "name": texts(api["name"], strings),
        **{name: api[name] for name in as_they_are},
        **{name: positive(api[name]) for name in ("correlation", "external_id")},
        "kernel": texts(api["kernel"], strings),
        "module": texts(api["module"], modules),
    }
    return table_of("api", columns, len(api["start_ns"]))


def _named(ids: Array, strings: list[str]) -> Array:
    """Return a name is never null: an event that has none says so."""
    if not (ids < 0).any():
        return ids
    strings.append(_UNNAMED)
    return np.where(ids < 0, len(strings) - 1, ids).astype(np.int32)


def _not_negative(numbers: Array) -> Array:
    """Return numbers of which a negative one means "none"."""
    return np.where(numbers >= 0, numbers, MISSING)


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))


def read(source: FileSource, progress: Progress | None) -> Timeline:
    """Return the timeline of a trace. Raises InputError where it holds none that can be read."""
    raw = scan(source, progress=progress)
    check_known(raw, source.path)
    return assemble(raw, Path(source.path).name)


FORMAT = Format("kineto", is_trace_json, read)
