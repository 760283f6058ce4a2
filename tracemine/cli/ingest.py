"""tracemine ingest: from a profiler's export to a timeline directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracemine.cli.console import write
from tracemine.cli.counters import said_reports
from tracemine.cli.options import CountersOption, ExecutionTraceOption, QuietOption
from tracemine.cli.progress import reading
from tracemine.errors import UsageError
from tracemine.report.escape import line

if TYPE_CHECKING:
    from pyarrow import Table

    from tracemine.counters import CounterReport
    from tracemine.timeline import IngestReport, Timeline


def ingest(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="What the profiler exported, or a report of Nsight Compute.")
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="The timeline's directory; a timeline there is replaced."),
    ],
    execution_trace: ExecutionTraceOption = None,
    counters: CountersOption = None,
    quiet: QuietOption = False,
) -> int:
    """Read a profiler's export once and keep it as a timeline: Parquet tables that scan reads much faster.

    Prints the rows of each table, and what was left out or repaired, with the reason.

    \b
    Examples:
      tracemine ingest trace.json.gz -o timeline/
      tracemine ingest trace.json.gz --et et.json.gz -o timeline/
      tracemine ingest trace.json.gz --ncu report.ncu-rep -o timeline/
      tracemine ingest report.ncu-rep -o counters/
    """
    from tracemine.counters import counters_table, match, timeline_of, with_stored
    from tracemine.formats import is_counters, open_trace
    from tracemine.formats.ncu import read_counters

    reports: Sequence[CounterReport]
    if is_counters(path):
        if execution_trace is not None:
            raise UsageError(f"--et: belongs to a trace, and {path} is a report of Nsight Compute")
        reports = [read_counters(each) for each in (path, *(counters or ()))]
        timeline, edges, joined = timeline_of(reports), None, None
    else:
        reports = [report for each in counters or () for report in said_reports(each, quiet=quiet)]
        with reading(path, quiet=quiet) as progress:
            timeline = open_trace(path, progress, execution_trace=execution_trace)
        reports = with_stored(reports, path, timeline)
        edges, joined = _edges(timeline), match(timeline, reports)
    tables = {"edges": edges, "counters": counters_table(reports, joined) if reports else None}
    timeline.write(output, edges=tables["edges"], counters=tables["counters"])
    if not quiet:
        write(line(f"{path} → {output}") + "\n" + "".join(f"  {text}\n" for text in _report(timeline, tables)))
    return 0


def _edges(timeline: Timeline) -> Table | None:
    """Return the table edges.parquet; None where neither tensors nor shapes were recorded."""
    from tracemine.flow import activity_edges, flow

    found = flow(timeline)
    return activity_edges(found) if len(found.nodes) else None


def _report(timeline: Timeline, others: Mapping[str, Table | None]) -> Iterator[str]:
    from tracemine.timeline import TABLES

    tables = {name: getattr(timeline, name) for name in TABLES}
    for name, table in (tables | {name: table for name, table in others.items() if table is not None}).items():
        yield f"{name:<11} {table.num_rows:>11,} rows"
    yield from _what_became(timeline.meta.ingest)


def _what_became(report: IngestReport) -> Iterator[str]:
    """Yield everything but what is plainly there: nothing is left out without a reason.

    >>> from tracemine.timeline import IngestReport
    >>> list(_what_became(IngestReport(dropped={"no_duration": 1200}, warnings=("It is cut short.",))))
    ['left out          1,200 no duration', 'note        It is cut short.']
    """
    counts: tuple[tuple[str, Mapping[str, int]], ...] = (
        ("not needed", report.skipped),
        ("left out", report.dropped),
        ("repaired", report.repaired),
        ("no operator", report.unowned),
    )
    for label, reasons in counts:
        for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
            yield f"{label:<11} {count:>11,} {line(reason.replace('_', ' '))}"
            label = ""
    for warning in report.warnings:
        yield f"{'note':<11} {line(warning, longest=1000)}"
