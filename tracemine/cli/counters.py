"""top --ncu: what a report of Nsight Compute says of each kernel, and which activities of a trace they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tracemine.cli.console import say, write
from tracemine.cli.options import check_format
from tracemine.errors import InputError, Location
from tracemine.report.escape import code_cell, line, shorten
from tracemine.units import bytes_text, ratio_text, time_text

if TYPE_CHECKING:
    from tracemine.counters import CounterReport
    from tracemine.findings.counter_summary import KernelLine

_FORMATS = ("text", "json", "markdown")


def print_counters(path: Path, reports: Sequence[Path], form: str, *, quiet: bool) -> None:
    """Print what Nsight Compute counted: traffic, arithmetic, what limits each kernel, its place on the roofline.

    path: the trace that the reports are matched with; itself a report, it stands alone. Launches of one kernel with
    equal grid, block and modelled traffic share a line, with the middle one's counters.

    Raises UsageError for a format that there is none of, InputError where a file cannot be read.
    """
    from tracemine.counters import match
    from tracemine.findings.counter_summary import kernel_lines
    from tracemine.findings.measured import match_texts
    from tracemine.formats import is_counters, open_trace
    from tracemine.timeline import Meta, Timeline

    check_format(form, _FORMATS)
    alone = path.is_file() and is_counters(path)
    found = [report for one in ([path] if alone else []) + list(reports) for report in said_reports(one, quiet=quiet)]
    timeline = Timeline(meta=Meta(tracemine_version="", source="", format="")) if alone else open_trace(path)
    joined = match(timeline, found)
    lines = kernel_lines(timeline, joined)
    if form == "json":
        from tracemine.report.json import json_of

        write(json_of(lines, indented=True))
    else:
        write("".join(f"{row}\n" for row in (_markdown if form == "markdown" else _text)(_cells(lines))))
    if not alone and not quiet:
        for text in match_texts(joined):
            say(text)


def said_reports(path: Path, *, quiet: bool) -> Sequence[CounterReport]:
    """Return the report that a file is, or those that lie in a timeline directory; as `said_report`."""
    if not path.is_dir():
        return [said_report(path, quiet=quiet)]
    from tracemine.counters import stored_reports

    found = stored_reports(path)
    if not found:
        hint = "put them there: tracemine scan TRACE --ncu REPORT --parquet DIR"
        raise InputError("is a folder without counters of Nsight Compute", where=Location(str(path)), hint=hint)
    return found


def said_report(path: Path, *, quiet: bool) -> CounterReport:
    """Return a report that was read; what was left out of it is said, unless `quiet`."""
    from tracemine.formats.ncu import read_counters

    report = read_counters(path)
    if not quiet:
        for text in report.notes:
            say(f"{path}: {text}")
    return report


# --- tables ----------------------------------------------------------------------------------------------------------

_TITLES = (
    "kernel", "op", "×", "time", "DRAM read", "modelled", "DRAM written", "modelled", "FLOP/byte", "ridge",
    "occupancy", "L2 hit", "SM", "memory", "bound",
)  # fmt: skip
_WIDEST_NAME = 40


def _cells(lines: Sequence[KernelLine]) -> list[tuple[str, ...]]:
    """Return one row a line, titles first; a column in which no line has anything is left out."""
    rows = [tuple(_row(each)) for each in lines]
    used = [i for i in range(len(_TITLES)) if any(row[i] for row in rows)]
    return [tuple(row[i] for i in used) for row in (_TITLES, *rows)]


def _row(each: KernelLine) -> Iterator[str]:
    kernel = each.kernel
    yield each.name
    yield each.op or ""
    yield str(each.launches)
    yield "" if kernel.dur_ns is None else time_text(kernel.dur_ns)
    read = kernel.dram_read_bytes, each.modelled_read_bytes
    for nbytes in (*read, kernel.dram_written_bytes, each.modelled_written_bytes):
        yield "" if nbytes is None else bytes_text(nbytes)
    for ratio in (each.arithmetic_intensity, each.ridge):
        yield "" if ratio is None else ratio_text(ratio)
    for percent in (kernel.occupancy_percent, kernel.l2_hit_percent, kernel.compute_percent, kernel.memory_percent):
        yield "" if percent is None else f"{percent:.0f}%"
    yield each.bound or ""


def _text(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    plain = [tuple(shorten(line(cell), _WIDEST_NAME) for cell in row) for row in rows]
    widths = [max(len(row[i]) for row in plain) for i in range(len(plain[0]))]
    for row in plain:
        cells = (
            f"{cell:<{width}}" if i < 2 else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def _markdown(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    titles, *others = rows
    yield f"| {' | '.join(titles)} |"
    yield f"|{'|'.join('---' if i < 2 else '---:' for i in range(len(titles)))}|"
    for row in others:
        yield f"| {' | '.join(code_cell(cell) if i < 2 and cell else cell for i, cell in enumerate(row))} |"
