"""Hardware counters of single kernels, as Nsight Compute measured them, and which activities of a timeline they are of.

Report, Kernel               what a report says of each kernel that it profiled
counters_table(reports)      those as a table of a timeline directory; `stored_reports` reads it
match(timeline, reports)     which activities those kernels are, and how sure that is: `Counters`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tracemine.columns import numbers, string_ids
from tracemine.counters.match import EXACT, NAME_AND_GRID, REASON_TEXTS, Counters, match
from tracemine.counters.record import CounterReport, ProfiledKernel
from tracemine.errors import Location, TimelineError
from tracemine.files import path_text
from tracemine.timeline import COUNTERS, Timeline, read_counters_table

__all__ = ["CounterReport", "Counters", "ProfiledKernel", "counters_table", "match", "stored_reports", "with_stored"]

_FLOPS = "_flops"  # ends the columns of Kernel.flops
_DTYPES = tuple(column.name.removesuffix(_FLOPS) for column in COUNTERS.columns if column.name.endswith(_FLOPS))
_PLAIN = tuple(
    name for name in ProfiledKernel.__struct_fields__ if name != "flops"
)  # fields that are columns as they are
_WORDS: dict[str, tuple[str, ...]] = {
    "dram_bytes_from": ("counters", "rate", "throughput"),
    "evidence": (EXACT, NAME_AND_GRID),
    "unmatched_reason": tuple(REASON_TEXTS),
}
_MOST = 1 << 61  # a report's numbers are up to half of this, and some are sums of two
_LONGEST = 1 << 20  # characters of a text; a report's have a tenth


def counters_table(reports: Sequence[CounterReport], joined: Counters | None = None) -> pa.Table:
    """Return the table of the schema `COUNTERS`. `joined`: what `match` said of these reports, where there is a trace.

    >>> kernel = ProfiledKernel(name="k", order=0, flops={"fp32": 8})
    >>> table = counters_table([CounterReport(source="r.csv", page="raw", kernels=(kernel,))])
    >>> table.select(["source", "name", "fp32_flops", "dur_ns"]).to_pylist()
    [{'source': 'r.csv', 'name': 'k', 'fp32_flops': 8, 'dur_ns': None}]
    """
    rows = [
        {"report": number, "source": path_text(report.source), "page": report.page} | _row(kernel)
        for number, report in enumerate(reports)
        for kernel in report.kernels
    ]
    if joined is not None:
        of: dict[int, list[int]] = {}
        for activity in np.flatnonzero(joined.of >= 0).tolist():
            of.setdefault(int(joined.of[activity]), []).append(activity)
        for at, (row, how) in enumerate(zip(rows, joined.how, strict=True)):
            row["activity_rows"] = of.get(at)
            row["unmatched_reason" if how in REASON_TEXTS else "evidence"] = how
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in COUNTERS.schema]
    return pa.Table.from_arrays(columns, schema=COUNTERS.schema)


def _row(kernel: ProfiledKernel) -> dict[str, Any]:
    flops = {f"{dtype}{_FLOPS}": count for dtype, count in kernel.flops.items()}
    return {name: getattr(kernel, name) for name in _PLAIN} | flops


def stored_reports(directory: Path, activities: int | None = None) -> tuple[CounterReport, ...]:
    """Return the reports whose kernels lie in a timeline directory; none where it has no counters.

    `activities`: how many the timeline has, where that is known.

    Raises TimelineError if the table is damaged, or holds what no report says.

    >>> stored_reports(Path("no/such/folder"))
    ()
    """
    table = read_counters_table(directory)
    if table is None:
        return ()
    if wrong := _wrong(table, activities):
        where = Location(str(directory / f"{COUNTERS.name}.parquet"))
        raise TimelineError(
            f"is damaged: {wrong}", where=where, hint="keep it again: tracemine scan TRACE --ncu REPORT --parquet DIR"
        )
    reports = []
    for _, rows in groupby(table.drop_columns(["activity_rows"]).to_pylist(), key=lambda row: row["report"]):
        of_report = list(rows)
        kernels = tuple(map(_kernel, of_report))
        reports.append(CounterReport(source=of_report[0]["source"], page=of_report[0]["page"], kernels=kernels))
    return tuple(reports)


def with_stored(reports: Sequence[CounterReport], path: Path | str, timeline: Timeline) -> Sequence[CounterReport]:
    """Return the reports, and those that lie in the timeline directory `path` and are none of them."""
    given = [report.kernels for report in reports]
    stored = stored_reports(Path(path), timeline.activities.num_rows)
    return (*reports, *(report for report in stored if report.kernels not in given))


def _kernel(row: Mapping[str, Any]) -> ProfiledKernel:
    flops = {dtype: count for dtype in _DTYPES if (count := row[f"{dtype}{_FLOPS}"]) is not None}
    sizes = {name: None if row[name] is None else tuple(row[name]) for name in ("grid", "block")}
    return ProfiledKernel(**{name: row[name] for name in _PLAIN} | sizes, flops=flops)


# --- what a stranger may have written ---------------------------------------------------------------------------------


def _wrong(table: pa.Table, activities: int | None) -> str | None:
    if not _in_order(table):
        return "report and order do not count its rows"
    for field in COUNTERS.schema:
        column = table.column(field.name)
        if field.name == "activity_rows":
            if _beyond(column, _MOST if activities is None else activities - 1):
                return "activity_rows holds a number that is no row of activities"
        elif pa.types.is_dictionary(field.type):
            if _is_odd(column, _WORDS.get(field.name)):
                return f"{field.name} holds what no report says"
        elif not pa.types.is_boolean(field.type) and _beyond(column, _MOST):
            return f"{field.name} holds what no report says"
    return None


def _in_order(table: pa.Table) -> bool:
    """Return whether reports are counted from 0, and the kernels of each."""
    report, order = numbers(table.column("report")), numbers(table.column("order"))
    begins = np.diff(report, prepend=-1) != 0
    starts = np.flatnonzero(begins)
    first = np.repeat(starts, np.diff(starts, append=len(report)))
    return bool((np.diff(report, prepend=-1) == begins).all() and (order == np.arange(len(order)) - first).all())


def _beyond(column: pa.ChunkedArray, most: int) -> bool:
    """Return whether a number that is there is negative, larger than `most`, or none; or one of a list is missing."""
    for chunk in column.chunks:
        is_list = pa.types.is_nested(chunk.type)
        values = chunk.flatten() if is_list else chunk.drop_null()
        if values.null_count:
            return True
        stored = values.to_numpy(zero_copy_only=False)
        if not ((stored >= 0) & (stored <= most)).all():
            return True
    return False


def _is_odd(column: pa.ChunkedArray, words: Sequence[str] | None) -> bool:
    """Return whether a text is none of the words that there are, or longer than any report's."""
    texts = string_ids(column)[1]
    return any(text is None or len(text) > _LONGEST or (words is not None and text not in words) for text in texts)
