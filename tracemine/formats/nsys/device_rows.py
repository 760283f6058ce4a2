"""GPU activities (kernels, copies, sets, whole graphs) and host calls (with waits) of an export, as one table each."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from tracemine.columns import Array
from tracemine.formats.nsys import schema
from tracemine.formats.nsys.tables import Numbers, Strings, Tables
from tracemine.timeline.arrow import MISSING, distinct

Columns = dict[str, Array]

ACTIVITY_KINDS = ["kernel", "memcpy", "memset", "graph"]
API_KINDS = ["runtime", "driver", "sync"]
MEMCPY, SYNC = 1, 2
_LAUNCH = {"gridX": "grid_x", "gridY": "grid_y", "gridZ": "grid_z", "blockX": "block_x", "blockY": "block_y",
           "blockZ": "block_z", "registersPerThread": "registers"}  # fmt: skip
_SHARED = {"graphId": "graph_id", "graphNodeId": "graph_node_id", "bytes": "bytes"}
_ON_DEVICE = {"deviceId": "device", "contextId": "context", "streamId": "stream", "correlationId": "correlation"}
ENDS_BEFORE_START = "ends before it starts, kept with no duration"
NO_TIME = "row without a start or an end"
_WHOLE_THREAD = 0xFFFFFF


def activities(tables: Tables, strings: Strings, report: Reasons) -> Columns:
    """Return kernels, copies, sets and traces of whole graphs, as they stand in the export."""
    parts = [_activity_columns(tables, table, code, strings, report) for code, table in enumerate(schema.ACTIVITIES)]
    there = [part for part in parts if len(part["start_ns"])] or parts[:1]
    return there[0] if len(there) == 1 else {n: np.concatenate([part[n] for part in there]) for n in there[0]}


class Reasons:
    """Counters of the ingest report that readers of tables add to."""

    def __init__(self, tables: Tables) -> None:
        self.events: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.dropped = tables.dropped
        self.repaired = tables.repaired
        self.warnings = tables.warnings


def timed(tables: Tables, table: str, report: Reasons) -> tuple[Numbers, Array]:
    """Return the table's rows that have a start and an end, with `dur`; and which rows these are."""
    rows = tables.numbers(table)
    present = rows["start"] != MISSING
    present &= rows["end"] != MISSING
    if len(present):
        report.events[table] += len(present)
    if not present.all():
        report.dropped[f"{table}: {NO_TIME}"] += int((~present).sum())
        rows = {name: column[present] for name, column in rows.items()}
    rows["dur"] = rows["end"] - rows["start"]
    backwards = rows["dur"] < 0
    if backwards.any():
        report.repaired[f"{table}: {ENDS_BEFORE_START}"] += int(backwards.sum())
        rows["dur"] = np.where(backwards, 0, rows["dur"])
    return rows, present


def _activity_columns(tables: Tables, table: str, code: int, strings: Strings, report: Reasons) -> Columns:
    rows, _ = timed(tables, table, report)
    count = len(rows["start"])
    nothing = np.full(count, MISSING)
    columns: Columns = {
        "category": np.full(count, code, np.int8),
        "name": _NAMES[table](rows, strings),
        "start_ns": rows["start"],
        "dur_ns": rows["dur"],
        "process": rows["globalPid"],
        "shared_memory": _sum(rows.get("staticSharedMemory"), rows.get("dynamicSharedMemory"), nothing),
    }
    for field, name in (_ON_DEVICE | _LAUNCH | _SHARED).items():
        columns[name] = rows.pop(field, nothing)
    return columns


def _sum(some: Array | None, others: Array | None, nothing: Array) -> Array:
    if some is None or others is None:
        return nothing
    return np.where((some == MISSING) | (others == MISSING), MISSING, some + others)


def _kernel_names(rows: Numbers, strings: Strings) -> Array:
    """Return the demangled name; the short one where there is no text for it."""
    demangled, short = rows.pop("demangledName"), rows.pop("shortName")
    codes, firsts = distinct(demangled)
    without = np.array([strings.value(i) is None for i in firsts.tolist()], np.bool_)
    missing = without[codes] if len(codes) else np.empty(0, np.bool_)
    return strings.of_ids(np.where(missing & (short != MISSING), short, demangled))


def _titles(*columns: Array, title: Any) -> Array:
    """Return a title for each distinct row of columns."""
    if not len(columns[0]):
        return np.empty(0, np.int32)
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        part, firsts = distinct(column)
        codes = codes * len(firsts) + part
    codes, firsts = distinct(codes)
    first_row = np.full(len(firsts), len(codes))
    np.minimum.at(first_row, codes, np.arange(len(codes)))
    return np.array([title(*(int(c[row]) for c in columns)) for row in first_row.tolist()], np.int32)[codes]


def _copy_names(rows: Numbers, strings: Strings) -> Array:
    def title(kind: int, source: int, target: int) -> int:
        direction = schema.COPY_KINDS.get(kind)
        memories = [schema.MEMORIES.get(memory, "unknown").capitalize() for memory in (source, target)]
        unified = "Unified " if kind in schema.UNIFIED_MEMORY else ""
        named = f"{unified}Memcpy" + (f" {direction}" if direction else "")
        return strings.code(f"{named} ({memories[0]} -> {memories[1]})")

    return _titles(rows.pop("copyKind"), rows.pop("srcKind"), rows.pop("dstKind"), title=title)


def _set_names(rows: Numbers, strings: Strings) -> Array:
    def title(memory: int) -> int:
        return strings.code(f"Memset ({schema.MEMORIES.get(memory, 'unknown').capitalize()})")

    return _titles(rows.pop("memKind"), title=title)


def _graph_names(rows: Numbers, strings: Strings) -> Array:
    return _titles(rows["graphId"], title=lambda i: strings.code("CUDA graph" if i == MISSING else f"CUDA graph {i}"))


_NAMES = {schema.KERNEL: _kernel_names, schema.MEMCPY: _copy_names, schema.MEMSET: _set_names,
          schema.GRAPH: _graph_names}  # fmt: skip


def calls(tables: Tables, strings: Strings, report: Reasons) -> Columns:
    """Return runtime and driver calls, then synchronisations. `thread` is the packed id of the calling thread."""
    rows, _ = timed(tables, schema.RUNTIME, report)
    waits, _ = timed(tables, schema.SYNC, report)
    driver = rows["eventClass"] == schema.DRIVER_CALL
    name = np.empty(len(driver), np.int32)
    for which, without_version in ((driver, False), (~driver, True)):
        name[which] = strings.of_ids(rows["nameId"][which], without_version=without_version)
    none, nowhere = np.full(len(waits["start"]), MISSING), np.full(len(driver), MISSING)
    stream = np.where(waits["streamId"] == schema.NO_STREAM, MISSING, waits["streamId"])
    wait_names = _titles(
        waits["syncType"], title=lambda kind: strings.code(schema.SYNC_KINDS.get(kind, "Unknown Sync"))
    )
    return {
        "category": np.concatenate((driver.astype(np.int8), np.full(len(none), SYNC, np.int8))),
        "name": np.concatenate((name, wait_names)),
        "start_ns": np.concatenate((rows["start"], waits["start"])),
        "dur_ns": np.concatenate((rows["dur"], waits["dur"])),
        "global_tid": np.concatenate((rows["globalTid"], none)),
        "process": np.concatenate((process(rows["globalTid"]), waits["globalPid"])),
        "correlation": np.concatenate((rows["correlationId"], waits["correlationId"])),
        "device": np.concatenate((nowhere, waits["deviceId"])),
        "stream": np.concatenate((nowhere, stream)),
    }


def process(global_tid: Array) -> Array:
    """Return the process part of packed ids, as globalPid holds it."""
    return np.where(global_tid == MISSING, MISSING, global_tid & ~_WHOLE_THREAD)


def pid(global_tid: Array) -> Array:
    """Return the process id in packed ids."""
    return np.where(global_tid == MISSING, MISSING, (global_tid >> 24) & _WHOLE_THREAD)


def tid(global_tid: Array) -> Array:
    """Return the thread id in packed ids."""
    return np.where(global_tid == MISSING, MISSING, global_tid & _WHOLE_THREAD)
