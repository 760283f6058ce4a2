"""tracemine doctor: can a recording be trusted, and what to switch on."""

from __future__ import annotations

from typing import Annotated

import typer

from tracemine.cli.console import write
from tracemine.cli.options import ExecutionTraceOption, QuietOption, check_format
from tracemine.cli.request import ScanRequest, analysed, one_trace

_FORMATS = ("text", "json")
_SERIOUS = 1


def doctor(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A trace, timeline or capture; - for standard input.")],
    form: Annotated[str, typer.Option("--format", "-f", metavar="|".join(_FORMATS), help="What to print.")] = "text",
    execution_trace: ExecutionTraceOption = None,
    quiet: QuietOption = False,
) -> int:
    """Say whether a recording can be trusted, what is missing in it and what that costs, and how to record it right.

    Exit code: 0 it can be used, 1 its figures cannot be taken as they stand (cut off, records lost, no GPU activity,
    clocks that disagree, several processes or a graph's capture in it, compilation), 2 the call or the trace is wrong.

    \b
    Examples:
      tracemine doctor trace.json.gz
      tracemine doctor trace.json.gz --format json
    """
    check_format(form, _FORMATS)
    from tracemine.doctor import check_up, render
    from tracemine.pipeline import ScanOptions, mined
    from tracemine.report.json import json_of

    request = ScanRequest(options=ScanOptions(), quiet=quiet, execution_trace=execution_trace)
    analysis = analysed(one_trace(trace, quiet=quiet), request)
    found = check_up(analysis.timeline, mined(analysis, request.options))
    write(json_of(found) if form == "json" else render(found))
    return _SERIOUS if found.serious else 0
