"""tracemine top: where the step's time goes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracemine.cli.console import options, write
from tracemine.cli.counters import print_counters
from tracemine.cli.options import (
    CountersOption,
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
    from tracemine.top import Top

_BY = ("kernel", "operator", "module", "line", "stream", "device", "phase")
_FORMATS = ("text", "json", "csv")


def top(
    path: Annotated[
        str,
        typer.Argument(
            metavar="TRACE", help="A trace or timeline, or a report of Nsight Compute; - for standard input."
        ),
    ],
    by: Annotated[str, typer.Option("--by", "-b", metavar="|".join(_BY), help="What to add up by.")] = "kernel",
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
    counters: CountersOption = None,
    gpu: GPUOption = None,
    rules: RulesOption = None,
    execution_trace: ExecutionTraceOption = None,
    graph_capture: GraphCaptureOption = None,
    quiet: QuietOption = False,
) -> int:
    """Say where the step's time goes, as recorded: GPU time by kernel, operator, module, line, stream, device or phase.

    Next to TFLOP/s and GB/s stands their share of what the device reaches; the last column names the findings that a
    row's time is part of, and how much of it. What a backward pass launches counts for the module and the line of its
    forward operator. Shares add up to all GPU time. With --ncu, and of a report of Nsight Compute, a line for each
    kernel says what was counted of it, what limits it, and its place on the roofline (as --format markdown too).

    Exit code: 0 done, 2 the call or the trace is wrong.

    \b
    Examples:
      tracemine top trace.json.gz
      tracemine top trace.json.gz --by module --depth 3
      tracemine top trace.json.gz --by phase --format csv
      tracemine top trace.json.gz --ncu report.csv.gz
    """
    if counters or _is_report(Path(path)):
        print_counters(Path(path), counters or (), form, quiet=quiet)
        return 0
    check_format(form, _FORMATS)
    if by not in _BY:
        raise UsageError(f"--by: nothing is added up by {by!r}", hint=f"there are: {', '.join(_BY)}")
    if limit < 1 or (depth is not None and depth < 1):
        raise UsageError("--limit and --depth: are 1 or more", hint="--all prints all rows")
    from tracemine.report.top import Shown, render_csv, render_json, render_text

    request = asked(quiet=quiet, gpu=gpu, rules=rules, execution_trace=execution_trace, graph_capture=graph_capture)
    found = _found(path, by, request, whole=whole)
    if form == "text":
        width = options(sys.stdout, top=0, no_color=True).width
        write(render_text(found, Shown(limit=None if every else limit, depth=depth, width=width)))
    else:
        write((render_json if form == "json" else render_csv)(found))
    return 0


def _is_report(path: Path) -> bool:
    """Return whether a file is a report of Nsight Compute."""
    from tracemine.formats import is_counters

    return path.is_file() and is_counters(path)


def _found(given: str, by: str, request: ScanRequest, *, whole: bool) -> Top:
    """Return the table of a trace. Raises TracemineError where it cannot be read."""
    from msgspec import convert

    from tracemine.api.tops import tops_of
    from tracemine.pipeline import analyse, mined
    from tracemine.top.record import By

    path = one_trace(given, quiet=request.quiet)
    with from_standard_input(path) as file, reading(path, quiet=request.quiet) as progress:
        analysis = analyse(
            file, execution_trace=request.execution_trace, graph_capture=request.graph_capture, progress=progress
        )
    if file is not path:
        analysis = replace(analysis, path=str(path))
    found = mined(analysis, request.options)
    return tops_of(analysis, found, request.options, whole=whole).by(convert(by, By))
