"""tracemine top: where the step's time goes."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tracemine.cli.console import options, write
from tracemine.cli.options import (
    ExecutionTraceOption,
    GPUOption,
    GraphCaptureOption,
    QuietOption,
    RulesOption,
    check_format,
)
from tracemine.cli.progress import reading
from tracemine.cli.request import asked, one_trace
from tracemine.cli.standard_input import from_standard_input
from tracemine.errors import UsageError

if TYPE_CHECKING:
    from tracemine.cli.request import ScanRequest
    from tracemine.top import Tops

_BY = ("kernel", "operator", "module", "line", "stream", "device", "phase")
_HOST_BY = ("line", "module", "operator")
_FORMATS = ("text", "json", "csv")


def top(
    path: Annotated[str, typer.Argument(metavar="TRACE", help="A trace or timeline; - for standard input.")],
    by: Annotated[
        str | None,
        typer.Option("--by", "-b", metavar="|".join(_BY), help="What to add up by. Default: kernel; with --host line."),
    ] = None,
    host: Annotated[bool, typer.Option("--host", help="Add up the host's time, by line, module or operator.")] = False,
    depth: Annotated[
        int | None,
        typer.Option(metavar="N", help="Open modules and lines so deep. Default: the largest, while there is room."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Print all rows.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", help="Print so many rows. JSON and CSV have all.")] = 15,
    whole: Annotated[
        bool, typer.Option("--whole", help="Add up all that was recorded, not the steps that tell what one takes.")
    ] = False,
    form: Annotated[str, typer.Option("--format", "-f", metavar="|".join(_FORMATS), help="What to print.")] = "text",
    gpu: GPUOption = None,
    rules: RulesOption = None,
    execution_trace: ExecutionTraceOption = None,
    graph_capture: GraphCaptureOption = None,
    quiet: QuietOption = False,
) -> int:
    """Say where the step's time goes, as recorded: GPU time by kernel, operator, module, line, stream, device or phase.

    Next to TFLOP/s and GB/s stands their share of what the device reaches. The last column names the findings of
    `tracemine scan` that a row's time is part of, and how much of it. What a backward pass launches counts for the
    module and the line of its forward operator. Shares add up to all GPU time; the head says how much of it runs side
    by side.

    With --host it is the host's time, every nanosecond of a step once: in operators, launches, waits for the device,
    Python in none of these; and how much of it passed while no device was at work (critical).

    Exit code: 0 done, 2 the call or the trace is wrong.

    \b
    Examples:
      tracemine top trace.json.gz
      tracemine top trace.json.gz --by module --depth 3
      tracemine top trace.json.gz --by line
      tracemine top trace.json.gz --host
      tracemine top trace.json.gz --by phase --format csv
    """
    check_format(form, _FORMATS)
    known = _HOST_BY if host else _BY
    by = by or known[0]
    if by not in known:
        raise UsageError(f"--by: nothing is added up by {by!r}", hint=f"there are: {', '.join(known)}")
    if limit < 1 or (depth is not None and depth < 1):
        raise UsageError("--limit and --depth: are 1 or more", hint="--all prints all rows")
    request = asked(quiet=quiet, gpu=gpu, rules=rules, execution_trace=execution_trace, graph_capture=graph_capture)
    tops = _tops(path, request, whole=whole)
    width = options(sys.stdout, top=0, no_color=True).width
    shown = None if form != "text" else (None if every else limit, depth, width)
    write(_host_text(tops, by, form, shown) if host else _text(tops, by, form, shown))
    return 0


def _text(tops: Tops, by: str, form: str, shown: tuple[int | None, int | None, int] | None) -> str:
    """Return a table of GPU time in one of _FORMATS. shown: limit, depth and width of text."""
    from msgspec import convert

    from tracemine.report.top import render_csv, render_json, render_text
    from tracemine.report.top_lines import Shown
    from tracemine.top import By

    top = tops.by(convert(by, By))
    if shown is None:
        return (render_json if form == "json" else render_csv)(top)
    return render_text(top, Shown(limit=shown[0], depth=shown[1], width=shown[2]))


def _host_text(tops: Tops, by: str, form: str, shown: tuple[int | None, int | None, int] | None) -> str:
    """Return a table of host time likewise."""
    from msgspec import convert

    from tracemine.report.host_top import render_csv, render_json, render_text
    from tracemine.report.top_lines import Shown
    from tracemine.top import HostBy

    top = tops.host(convert(by, HostBy))
    if shown is None:
        return (render_json if form == "json" else render_csv)(top)
    return render_text(top, Shown(limit=shown[0], depth=shown[1], width=shown[2]))


def _tops(given: str, request: ScanRequest, *, whole: bool) -> Tops:
    """Return the tables of a trace. Raises TracemineError where it cannot be read."""
    from tracemine.api.tops import tops_of
    from tracemine.pipeline import analyse, mined

    path = one_trace(given, quiet=request.quiet)
    with from_standard_input(path) as file, reading(path, quiet=request.quiet) as progress:
        analysis = analyse(
            file, execution_trace=request.execution_trace, graph_capture=request.graph_capture, progress=progress
        )
    if file is not path:
        analysis = replace(analysis, path=str(path))
    found = mined(analysis, request.options)
    return tops_of(analysis, found, request.options, whole=whole)
