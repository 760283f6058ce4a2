"""NVTX ranges as operators and annotations, and what lies around them: modules and steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from tracemine.columns import Array
from tracemine.formats.kineto import names
from tracemine.formats.kineto.nesting import time_order
from tracemine.formats.nsys import nvtx, schema
from tracemine.formats.nsys.device_rows import ENDS_BEFORE_START, NO_TIME, Reasons, pid, tid
from tracemine.formats.nsys.strings import Strings
from tracemine.formats.nsys.tables import Tables
from tracemine.formats.repetitions import without_repetitions
from tracemine.timeline.arrow import MISSING, distinct

Columns = dict[str, Array]

_NEVER_CLOSED = "NVTX range that was never closed"
_DEEPEST_PATH = 64  # scopes around an operator that its module path names
_LONGEST_PART = 200


def _number(value: int | None) -> int:
    return MISSING if value is None else value


# What a text says of each range that has it.
_OF_TEXT: dict[str, tuple[type[np.generic], Callable[[nvtx.NvtxRange], int]]] = {
    "is_op": (np.bool_, lambda each: each.is_op),
    "step": (np.int64, lambda each: _number(nvtx.step_number(each.name))),
    "sequence": (np.int64, lambda each: _number(each.sequence)),
    "op_id": (np.int64, lambda each: _number(each.op_id)),
    "is_mark": (np.bool_, lambda each: names.MARKS.match(each.name) is not None),
}


class Ranges(Struct):
    """NVTX ranges in time order. `text` is a number into `parsed`, one entry a distinct text."""

    columns: Columns  # start_ns dur_ns end_ns global_tid pid tid text name is_op is_scope step sequence op_id
    parsed: list[nvtx.NvtxRange]

    def __len__(self) -> int:
        return len(self.columns["start_ns"])


def ranges(tables: Tables, strings: Strings, report: Reasons) -> Ranges:
    """Return push/pop and start/end ranges. Marks and names carry no row; a range without an end is dropped."""
    rows = tables.numbers(schema.NVTX)
    inline = tables.texts(schema.NVTX)["text"]
    kinds, kind_of = np.unique(rows["eventType"], return_inverse=True)
    for number, kind in enumerate(kinds.tolist()):
        count = int((kind_of == number).sum())
        report.events[schema.NVTX] += count
        if kind not in schema.PUSH_POP + schema.START_END:
            report.skipped[f"{schema.NVTX}: {schema.NVTX_WITHOUT_ROWS.get(kind, 'other event')}"] += count
    ranged: Array = np.isin(rows["eventType"], schema.PUSH_POP + schema.START_END)
    timed: Array = ranged & (rows["start"] != MISSING)
    report.dropped[f"{schema.NVTX}: {NO_TIME}"] += int((ranged & ~timed).sum())
    closed: Array = timed & (rows["end"] != MISSING)
    report.dropped[_NEVER_CLOSED] += int((timed & ~closed).sum())
    kept = np.flatnonzero(closed)
    start, end = rows["start"][kept], rows["end"][kept]
    report.repaired[f"{schema.NVTX}: {ENDS_BEFORE_START}"] += int((end < start).sum())
    end = np.maximum(start, end)
    order = time_order(start, start - end)
    kept, start, end = kept[order], start[order], end[order]

    text, parsed = _parsed(kept, rows["textId"], inline, strings)
    one_thread = rows["endGlobalTid"][kept]
    global_tid = rows["globalTid"][kept]
    crosses = (one_thread != MISSING) & (one_thread != 0) & (one_thread != global_tid)
    global_tid = np.where(crosses, MISSING, global_tid)
    domain = rows["domainId"][kept]
    columns: Columns = {"name": np.array([strings.code(each.name) for each in parsed], np.int32)[text]}
    for name, (kind, of) in _OF_TEXT.items():
        columns[name] = np.array([of(each) for each in parsed], kind)[text]
    # Ranges of libraries (NCCL, CCCL, cuBLAS …) stand in domains of their own; they are not the model's modules.
    own = (domain == MISSING) | (domain == 0)
    may_hold = own & np.logical_not(columns["is_op"])
    columns["step"] = np.where(may_hold, columns["step"], MISSING)
    columns["is_scope"] = may_hold & np.logical_not(columns.pop("is_mark")) & (columns["step"] == MISSING)
    columns |= {
        "start_ns": start,
        "end_ns": end,
        "dur_ns": end - start,
        "text": text,
        "global_tid": global_tid,
        "pid": pid(rows["globalTid"][kept]),
        "tid": tid(global_tid),
        "process": rows["globalTid"][kept] & ~0xFFFFFF,
    }
    return Ranges(without_repetitions(columns, report.dropped, {"row": kept}), parsed)


def _parsed(
    kept: Array, text_id: Array, inline: list[str | None], strings: Strings
) -> tuple[Array, list[nvtx.NvtxRange]]:
    """Return for each kept row a number into the list of its distinct texts, taken apart."""
    seen: dict[str, int] = {}
    parsed: list[nvtx.NvtxRange] = []
    by_id = strings.of_ids(text_id[kept])
    numbers = np.empty(len(kept), np.int64)
    for at, (row, code) in enumerate(zip(kept.tolist(), by_id.tolist(), strict=True)):
        own = inline[row]
        text = strings.texts[code] if own is None else own
        number = seen.setdefault(text, len(parsed))
        if number == len(parsed):
            parsed.append(nvtx.parsed(text))
        numbers[at] = number
    return numbers, parsed


def module_paths(ranges: Ranges, parent: Array, strings: Strings) -> tuple[Array, Array, list[str]]:
    """Return for each range the path of scopes around it, and that of what is inside it: numbers of paths, −1 for none.

    They differ for scopes. A path's parts are joined by dots, outermost first.
    """
    is_scope, name = ranges.columns["is_scope"], ranges.columns["name"]
    around = np.append(parent, -1)
    # The nearest scope around each row: rows that are none are passed over.
    passed = np.append(~is_scope, False)
    while (passed[around] & (around >= 0)).any():
        around = np.where(passed[around] & (around >= 0), around[around], around)
    own = np.full(len(is_scope) + 1, -1, np.int64)  # the path that a scope gives to what is inside it
    paths: dict[tuple[str, ...], int] = {}
    parts: list[tuple[str, ...]] = []
    for row in np.flatnonzero(is_scope).tolist():
        outer = own[around[row]]
        path = (*(parts[outer] if outer >= 0 else ()), strings.texts[name[row]][:_LONGEST_PART])[:_DEEPEST_PATH]
        own[row] = paths.setdefault(path, len(parts))
        if own[row] == len(parts):
            parts.append(path)
    outside = own[around[:-1]]
    return outside, np.where(is_scope, own[:-1], outside), [".".join(path) for path in parts]


def steps_of(ranges: Ranges) -> Array:
    """Return rows of the ranges that are steps: marked by a number, and inside no other step of their process."""
    columns = ranges.columns
    rows = np.flatnonzero(columns["step"] != MISSING)
    outermost = []
    process = distinct(columns["process"][rows])[0]
    ends: dict[int, int] = {}
    for row, owner in zip(rows.tolist(), process.tolist(), strict=True):
        if int(columns["start_ns"][row]) >= ends.get(owner, int(columns["start_ns"][row])):
            outermost.append(row)
            ends[owner] = int(columns["end_ns"][row])
    return np.array(outermost, np.int64)
