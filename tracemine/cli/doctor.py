"""tracemine doctor: can a recording be trusted, and what to switch on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracemine.cli.console import write
from tracemine.cli.options import ExecutionTraceOption, QuietOption, check_format
from tracemine.cli.progress import reading
from tracemine.cli.request import one_trace
from tracemine.cli.standard_input import from_standard_input

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
    import msgspec

    from tracemine.doctor import check_up, render
    from tracemine.pipeline import analyse, mined
    from tracemine.report.escape import json_text

    path = one_trace(trace, quiet=quiet)
    with from_standard_input(path) as file, reading(path, quiet=quiet) as progress:
        analysis = analyse(file, execution_trace=execution_trace, progress=progress)
    found = check_up(analysis.timeline, mined(analysis))
    if path != file:
        found = msgspec.structs.replace(found, path=str(Path(path)))
    write(json_text(msgspec.json.encode(found).decode()) + "\n" if form == "json" else render(found))
    return _SERIOUS if found.serious else 0
