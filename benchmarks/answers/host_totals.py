"""Host time of steps against sums over raw events, for traces of folders: `python -m benchmarks host_totals FOLDER`.

The segments of every step have to add up to its span, to the nanosecond. Time in calls to the runtime and the driver
is compared with sums over the calls of the file, read with json and sqlite3 and joined as intervals: those on the
thread that carries the step, and those of other launching threads while that one is in no call and no operator.
"""

from __future__ import annotations

import argparse
import bisect
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.answers.raw_files import opened, tables_of
from tracemine.errors import TracemineError
from tracemine.formats.discover import traces
from tracemine.host import HostTime, host_time, whole_span
from tracemine.pipeline import Analysis, analyse
from tracemine.rows.arrow import rows_of
from tracemine.rows.iterations import iterations

_CALLS, _OPERATORS = (
    frozenset({"cuda_runtime", "cuda_driver", "xpu_runtime", "Runtime"}),
    frozenset({"cpu_op", "Operator"}),
)
_LAUNCHED = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"})
Spans = list[tuple[int, int]]
Thread = tuple[Any, Any]


class Raw(NamedTuple):
    """What a file says, by thread: its calls, its calls and operators together, and how much it launches."""

    calls: dict[Thread, Spans]
    all: dict[Thread, Spans]
    launches: dict[Thread, int]


def joined(spans: Iterable[tuple[int, int]]) -> Spans:
    """Spans in order, those that touch as one."""
    found: list[list[int]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        elif end > begin:
            found.append([begin, end])
    return [(begin, end) for begin, end in found]


def within(spans: Spans, holes: Spans) -> Spans:
    """What of disjoint spans lies in other disjoint ones."""
    begins = [begin for begin, _ in spans]
    found = []
    for low, high in holes:
        for begin, end in spans[max(bisect.bisect_right(begins, low) - 1, 0) : bisect.bisect_left(begins, high)]:
            if min(end, high) > max(begin, low):
                found.append((max(begin, low), min(end, high)))
    return found


def holes(spans: Spans, begin: int, end: int) -> Spans:
    """What of an interval lies in none of disjoint spans."""
    found, at = [], begin
    for low, high in within(spans, [(begin, end)]):
        found.append((at, low))
        at = high
    return [(low, high) for low, high in (*found, (at, end)) if high > low]


def raw_of(path: Path) -> Raw | None:
    """Read a file; None: neither JSON of Kineto nor SQLite of nsys."""
    with opened(path, Decimal) as raw:
        if isinstance(raw, sqlite3.Connection):
            return _of_sqlite(raw)
        return None if raw is None else _of_events(raw)


def _of_events(whole: dict[str, Any]) -> Raw:
    events = whole["traceEvents"]
    base = int(whole.get("baseTimeNanoseconds") or 0)
    calls, every, launches = defaultdict(list), defaultdict(list), defaultdict(int)
    launched = {(event.get("args") or {}).get("correlation") for event in events if event.get("cat") in _LAUNCHED}
    for event in events:
        kind = event.get("cat")
        if event.get("ph") != "X" or kind not in _CALLS | _OPERATORS or "#" in event["name"]:  # a mark
            continue
        begin = base + round(1000 * event["ts"])
        span = begin, begin + max(round(1000 * event.get("dur", 0)), 0)
        thread = numbered(event["pid"]), numbered(event["tid"])
        every[thread].append(span)
        if kind in _CALLS:
            calls[thread].append(span)
            launches[thread] += (event.get("args") or {}).get("correlation") in launched
    return Raw({t: joined(s) for t, s in calls.items()}, {t: joined(s) for t, s in every.items()}, launches)


def numbered(thread: Any) -> Any:
    """A process or a thread: older files have its number as text."""
    return int(thread) if isinstance(thread, str) and thread.isdecimal() else thread


def _of_sqlite(connection: sqlite3.Connection) -> Raw:
    """Read the calls of a report of nsys, from the first one on; it has no operators."""
    there = tables_of(connection)
    calls: dict[Thread, Spans] = defaultdict(list)
    launches: dict[Thread, int] = defaultdict(int)
    launched = {
        correlation
        for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
        if f"CUPTI_ACTIVITY_KIND_{kind}" in there
        for (correlation,) in connection.execute(f"select correlationId from CUPTI_ACTIVITY_KIND_{kind}")  # noqa: S608
    }
    asked = 'select start, "end", globalTid, correlationId from CUPTI_ACTIVITY_KIND_RUNTIME'
    for begin, end, of, correlation in connection.execute(asked) if "CUPTI_ACTIVITY_KIND_RUNTIME" in there else ():
        thread = ((of >> 24) & 0xFFFFFF, of & 0xFFFFFF)
        calls[thread].append((begin, end))
        launches[thread] += correlation in launched
    first = min((begin for spans in calls.values() for begin, _ in spans), default=0)
    found = {thread: joined((a - first, b - first) for a, b in spans) for thread, spans in calls.items()}
    return Raw(found, found, launches)


def calls_ns(raw: Raw, threads: list[Thread], begin: int, end: int) -> int:
    """Time in calls of a step: of its own thread, and of others while that one is in none."""
    free, total = [(begin, end)], 0
    for thread in threads:
        total += sum(high - low for low, high in within(raw.calls.get(thread, []), free))
        busy = joined(within(raw.all.get(thread, []), free))
        free = [hole for low, high in free for hole in holes(busy, low, high)]
    return total


def thread_names(analysis: Analysis, host: HostTime) -> dict[int, Thread]:
    """Process and thread number of each thread of a record."""
    found: dict[int, Thread] = {}
    for table, rows in ((analysis.timeline.ops, host.op_row), (analysis.timeline.api, host.api_row)):
        known = np.flatnonzero(rows >= 0)
        own = known if table is analysis.timeline.api else known[host.api_row[known] < 0]
        pid, tid = (rows_of(table[name])[rows[own]].tolist() for name in ("pid", "tid"))
        found |= dict(zip(host.thread[own].tolist(), zip(pid, tid, strict=True), strict=True))
    return found


def compared(path: Path) -> tuple[str, int, int, int | None] | None:
    """Of a trace's steps what adds up: a word, our sum, our time in calls, and that of the file; None: no steps."""
    analysis = analyse(path)
    timeline = analysis.timeline
    steps = iterations(timeline)
    begin, end = whole_span(timeline) if steps is None else (steps.begin_ns, steps.end_ns)
    host = host_time(timeline, begin, end)
    if host is None:
        return None
    sums = np.zeros(len(begin), np.int64)
    np.add.at(sums, host.step, host.dur_ns)
    word = "exact" if (sums == end - begin).all() else "DIFFERS"
    ours = int(host.dur_ns[host.api_row >= 0].sum())
    raw = raw_of(path)
    return word, int(sums.sum()), ours, None if raw is None else raw_calls_ns(analysis, host, raw, begin, end)


def raw_calls_ns(analysis: Analysis, host: HostTime, raw: Raw, begin: Any, end: Any) -> int:
    """Time in calls of all steps, as the file has it."""
    names = thread_names(analysis, host)
    first = analysis.timeline.api["start_ns"][0].as_py() if analysis.timeline.meta.format == "nsys" else 0
    begin, end, total = begin - first, end - first, 0
    for at, (low, high) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        lead = host.lead[at]
        others = sorted(raw.launches, key=lambda thread: -raw.launches[thread])
        own = names.get(int(lead))
        others = [one for one in others if one != own and raw.launches[one] and (own is None or one[0] == own[0])]
        total += calls_ns(raw, [*([] if own is None else [own]), *others[:8]], low, high)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    asked = parser.parse_args()
    count = exact = equal = against = 0
    for folder in asked.folders:
        for path in traces(str(folder)):
            try:
                found = compared(path)
            except TracemineError:
                continue
            if found is None:
                continue
            word, total, ours, theirs = found
            count, exact = count + 1, exact + (word == "exact")
            against, equal = against + (theirs is not None), equal + (theirs == ours)
            mark = "–" if theirs is None else "equal" if theirs == ours else f"{theirs - ours:+,}"
            print(f"{word:7} {total:>16,} {ours:>16,} {mark:>12}  {path}")
    print(f"{exact} of {count} add up exactly; time in calls equals the file's in {equal} of {against}")


if __name__ == "__main__":
    main()
