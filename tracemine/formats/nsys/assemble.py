"""From an export's tables to a checked timeline: sort, join, nest, and name what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tracemine.collector import paused
from tracemine.columns import Array
from tracemine.formats.kineto import launches, names
from tracemine.formats.kineto.nesting import Nesting, time_order
from tracemine.formats.nsys import about, device_rows, schema
from tracemine.formats.nsys.calls import input_shapes
from tracemine.formats.nsys.collectives import collectives_table
from tracemine.formats.nsys.dataflow import tensors_of
from tracemine.formats.nsys.device_rows import Columns, Reasons, pid, tid
from tracemine.formats.nsys.ranges import Ranges, module_paths, ranges, steps_of
from tracemine.formats.nsys.tables import Strings, Tables
from tracemine.formats.repetitions import repetition_notes, without_repetitions
from tracemine.timeline import IngestReport, Meta, RecordedDevice, Timeline
from tracemine.timeline.arrow import MISSING, distinct, int_triples, positive, table_of, take, texts
from tracemine.version import __version__

_OP_KINDS = ["annotation", "op"]
_CORRELATION_BITS = 40  # CUPTI's are 32 bits wide


def assemble(
    tables: Tables,
    source_name: str,
    recorder: about.Recorder = about.NSYS,
    blobs: Mapping[int, bytes | str] | None = None,
) -> Timeline:
    """Return the timeline of an export; `source_name` is its file's name without the folder.

    blobs: payloads of NVTX events, by row.
    """
    with paused():  # an object an operator
        return _assembled(tables, source_name, recorder, blobs or {})


def _assembled(
    tables: Tables, source_name: str, recorder: about.Recorder, blobs: Mapping[int, bytes | str]
) -> Timeline:
    report = Reasons(tables)
    string_ids = tables.numbers(schema.STRINGS)["id"]
    strings = Strings(string_ids, tables.texts(schema.STRINGS).get("value", []), report.repaired)
    ops = ranges(tables, strings, report)  # first: takes its time while large tables are still being read
    gpu = _in_order(device_rows.activities(tables, strings, report), report, "device", "stream")
    api = _in_order(device_rows.calls(tables, strings, report), report)
    _number_threads(api, ops.columns)
    start_of_session = about.clock_start_ns(tables)
    for columns in (gpu, api, ops.columns):
        columns["start_ns"] = columns["start_ns"] + start_of_session
    for columns in (api, ops.columns):
        columns["end_ns"] = columns["start_ns"] + columns["dur_ns"]
    _one_process(gpu, api)

    is_op = ops.columns["is_op"]
    nesting = Nesting(ops.columns["start_ns"], ops.columns["end_ns"], ops.columns["thread"])
    parent = nesting.parents()
    api["op_row"] = nesting.innermost(api["start_ns"], api["end_ns"], api["thread"], only=is_op)
    module, inside, modules = module_paths(ops, parent, strings)
    api["module"] = take(inside, nesting.innermost(api["start_ns"], api["end_ns"], api["thread"]))
    del nesting

    launch, owners = _owners(gpu, api, ops, is_op, strings)
    collectives = collectives_table(tables, blobs, ops, gpu, api, launch)
    step_rows = steps_of(ops)
    launched_ns, launcher = (take(api[name], launch, MISSING) for name in ("start_ns", "process"))
    begin, end, owner = (ops.columns[name][step_rows] for name in ("start_ns", "end_ns", "process"))
    step = launches.step_rows(launched_ns, begin, end, (launcher, owner))
    devices = about.devices(tables, gpu)
    makers, tensors = tensors_of(ops, parent, owners.op, gpu, report)
    unowned = Counter(launches.REASONS[reason] for reason in owners.reason[owners.reason >= 0].tolist())
    has_sizes = any(r.sizes is not None for r in ops.parsed)
    report.warnings += about.warnings(
        tables,
        recorder,
        activities=len(gpu["start_ns"]),
        graphs=int((gpu["category"] == device_rows.ACTIVITY_KINDS.index("graph")).sum()),
        graph_launches=int(launches.named(api["name"], strings.texts, about.GRAPH_LAUNCH).sum()),
        calls=int((api["category"] != device_rows.SYNC).sum()),
        operators=int(is_op.sum()),
        has_sizes=has_sizes,
        processes=len(distinct(gpu["process"][gpu["process"] != MISSING])[1]),
        unowned=unowned,
        launched_late=int((take(api["start_ns"], launch, MISSING) > gpu["start_ns"]).sum()),
    )
    report.warnings += repetition_notes(gpu, report.dropped)
    return Timeline(
        meta=_meta(
            source_name, recorder, devices, has_sizes if is_op.any() else None, about.versions(tables), report, unowned
        ),
        activities=_activities_table(gpu, launch, owners, step, strings.texts),
        ops=_ops_table(ops, parent, module, modules, makers, strings),
        api=_api_table(api, strings.texts, modules),
        steps=_steps_table(ops, step_rows, strings.texts),
        tensors=tensors,
        collectives=collectives,
    )


def _meta(
    source_name: str,
    recorder: about.Recorder,
    devices: tuple[RecordedDevice, ...],
    record_shapes: bool | None,
    versions: dict[str, str],
    report: Reasons,
    unowned: Counter[str],
) -> Meta:
    return Meta(
        tracemine_version=__version__,
        source=source_name.encode("utf-8", "replace").decode(),
        format=recorder.format,
        producer=recorder.producer + (f" {versions['nsys']}" if "nsys" in versions else ""),
        devices=devices,
        record_shapes=record_shapes,
        versions=versions,
        ingest=IngestReport(
            events=_sorted(report.events),
            skipped=_sorted(report.skipped),
            dropped=_sorted(report.dropped),
            repaired=_sorted(report.repaired),
            unowned=_sorted(unowned),
            warnings=tuple(report.warnings),
        ),
    )


def _in_order(columns: Columns, report: Reasons, *ties: str) -> Columns:
    keys = [columns[name] for name in ties] or [-columns["dur_ns"]]
    order = time_order(columns["start_ns"], *keys)
    if not (order[1:] > order[:-1]).all():
        columns = {name: column[order] for name, column in columns.items()}
    return without_repetitions(columns, report.dropped)


def _number_threads(api: Columns, ops: Columns) -> None:
    """Give both a column `thread`, a small number; what has no thread of its own gets one that holds nothing else."""
    together = np.concatenate((api["global_tid"], ops["global_tid"]))
    thread = distinct(together)[0].astype(np.int64)
    absent = together == MISSING
    absent[: len(api["global_tid"])] = False
    thread[absent] = int(thread.max(initial=0)) + 1
    api["thread"], ops["thread"] = thread[: len(api["global_tid"])], thread[len(api["global_tid"]) :]
    for columns in (api, ops):
        columns["pid"], columns["tid"] = pid(columns["global_tid"]), tid(columns["global_tid"])


def _one_process(gpu: Columns, api: Columns) -> None:
    """Assign activities that do not say whose they are to the process that made calls, if there is one only."""
    callers = distinct(api["process"][api["process"] != MISSING])[1]
    if len(callers) == 1:
        gpu["process"] = np.where(gpu["process"] == MISSING, callers[0], gpu["process"])


def _owners(gpu: Columns, api: Columns, ops: Ranges, is_op: Array, strings: Strings) -> tuple[Array, launches.Owners]:
    """Return the launch of each activity by process and correlation id, and its operator."""
    both = np.concatenate((gpu["process"], api["process"]))
    process = np.where(both == MISSING, -1, distinct(both)[0].astype(np.int64))
    number = np.concatenate((gpu["correlation"], api["correlation"]))
    number[len(gpu["process"]) :][api["category"] == device_rows.SYNC] = MISSING
    told = (process >= 0) & (number > 0) & (number < 1 << _CORRELATION_BITS)
    key = np.where(told, (process << _CORRELATION_BITS) | np.where(told, number, 0), 0)
    of_gpu, of_api = key[: len(gpu["process"])], key[len(gpu["process"]) :]
    launch = launches.launch_rows(of_gpu, of_api, api["name"], strings.texts)
    # What came before the window is recognised by a correlation id below the first of its process.
    first = np.full(int(process.max(initial=-1)) + 2, 1 << _CORRELATION_BITS)
    calling = told.copy()
    calling[: len(of_gpu)] = False
    np.minimum.at(first, process[calling], number[calling])
    since_first = np.where(told, number - first[process] + (1 << _CORRELATION_BITS), 0)
    none = np.full(len(of_gpu), MISSING)
    gpu_like = {"external_id": none, "correlation": since_first[: len(of_gpu)], "start_ns": gpu["start_ns"]}
    calls_like = {
        **{name: api[name] for name in ("op_row", "name", "start_ns", "end_ns", "thread")},
        "external_id": np.full(len(of_api), MISSING),
        "launch_correlation": since_first[len(of_gpu) :],
    }
    ops_like = {**ops.columns, "external_id": np.full(len(ops), MISSING)}
    return launch, launches.owners(gpu_like, launch, calls_like, ops_like, is_op, strings.texts)


def _steps_table(ops: Ranges, rows: Array, strings: list[str]) -> pa.Table:
    columns = {
        "name": texts(ops.columns["name"][rows], strings),
        "number": ops.columns["step"][rows],
        **{name: ops.columns[name][rows] for name in ("start_ns", "dur_ns", "pid", "tid")},
    }
    return table_of("steps", columns, len(rows))


def _activities_table(
    gpu: Columns, launch: Array, owners: launches.Owners, step: Array, strings: list[str]
) -> pa.Table:
    copied = np.where(gpu["category"] == device_rows.MEMCPY, gpu["name"], -1)
    columns = {
        "kind": texts(gpu["category"], device_rows.ACTIVITY_KINDS),
        "name": texts(gpu["name"], strings),
        **{name: gpu[name] for name in ("start_ns", "dur_ns", "device", "stream", "context", "bytes")},
        **{name: positive(gpu[name]) for name in ("correlation", "graph_id", "graph_node_id")},
        "grid": int_triples([gpu[f"grid_{axis}"] for axis in "xyz"]),
        "block": int_triples([gpu[f"block_{axis}"] for axis in "xyz"]),
        "registers_per_thread": gpu["registers"],
        "shared_memory_bytes": gpu["shared_memory"],
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


def _ops_table(
    ops: Ranges, parent: Array, module: Array, modules: list[str], makers: Array, strings: Strings
) -> pa.Table:
    of = ops.columns
    shape_of_text, shapes = input_shapes(ops.parsed)
    columns = {
        "kind": texts(of["is_op"].astype(np.int8), _OP_KINDS),
        "name": texts(of["name"], strings.texts),
        **{name: of[name] for name in ("start_ns", "dur_ns", "pid", "tid")},
        "parent_row": parent,
        "record_function_id": positive(of["op_id"]),
        "sequence_number": np.where(of["is_op"], of["sequence"], MISSING),
        "input_shapes": texts(np.where(of["is_op"], shape_of_text[of["text"]], -1), shapes),
        "module": texts(module, modules),
        "execution_node_id": makers,
    }
    return table_of("ops", columns, len(ops))


def _api_table(api: Columns, strings: list[str], modules: list[str]) -> pa.Table:
    columns = {
        "kind": texts(api["category"], device_rows.API_KINDS),
        "name": texts(api["name"], strings),
        **{name: api[name] for name in ("start_ns", "dur_ns", "pid", "tid", "device", "stream", "op_row")},
        "correlation": positive(api["correlation"]),
        "module": texts(api["module"], modules),
    }
    return table_of("api", columns, len(api["category"]))


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return {name: count for name, count in sorted(counts.items()) if count}
