"""tracemine top: where the step's time goes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracemine.cli.console import options, write
from tracemine.cli.counters import print_counters
from tracemine.cli.described import argument, option
from tracemine.cli.options import (
    CountersOption,
    ExecutionTraceOption,
    GPUOption,
    GraphCaptureOption,
    QuietOption,
    RulesOption,
    check_format,
)
from tracemine.cli.request import analysed, asked, one_trace
from tracemine.errors import UsageError

if TYPE_CHECKING:
    from tracemine.cli.request import ScanRequest
    from tracemine.top import Tops

_BY = ("kernel", "operator", "module", "line", "stream", "device", "phase")
_HOST_BY = ("line", "module", "operator", "phase", "tree")
_FORMATS = ("text", "json", "csv")


TraceArgument = Annotated[str, argument("top.trace")]
ByOption = Annotated[str | None, option("top.by", metavar="|".join(_BY))]


WaitsOption = Annotated[bool, option("top.waits")]
HostOption = Annotated[bool, option("top.host")]
GraphsOption = Annotated[bool, option("top.graphs")]


def top(
    path: TraceArgument,
    by: ByOption = None,
    waits: WaitsOption = False,
    host: HostOption = False,
    graphs: GraphsOption = False,
    depth: Annotated[int | None, option("top.depth")] = None,
    every: Annotated[bool, typer.Option("--all", help="Print all rows.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", help="Print so many rows. JSON and CSV have all.")] = 15,
    whole: Annotated[bool, option("top.whole")] = False,
    form: Annotated[str, typer.Option("--format", "-f", metavar="|".join(_FORMATS), help="What to print.")] = "text",
    counters: CountersOption = None,
    gpu: GPUOption = None,
    rules: RulesOption = None,
    execution_trace: ExecutionTraceOption = None,
    graph_capture: GraphCaptureOption = None,
    quiet: QuietOption = False,
) -> int:
    """Say where the step's time goes, as recorded: GPU time by kernel, operator, module, line, stream, device or phase.

    The last column names the findings that a row's time is part of, and how much of it. What a backward pass launches
    counts for the module and the line of its forward operator. Shares add up to all GPU time.

    --host: the host's time, every nanosecond once, and how much of it passed while no device was at work (critical).
    --waits: lines that wait for the device, what the value is used for, and what a step is without.
    --graphs: of the step, of modules and functions: what a CUDA graph and each mode of torch.compile would come to.
    --ncu, and a report of Nsight Compute: what was counted of each kernel, and what limits it (--format markdown too).

    Exit code: 0 done, 2 the call or the trace is wrong.

    \b
    Examples:
      tracemine top trace.json.gz
      tracemine top trace.json.gz --by module --depth 3
      tracemine top trace.json.gz --host
      tracemine top trace.json.gz --host --by tree
      tracemine top trace.json.gz --waits
      tracemine top trace.json.gz --graphs
      tracemine top trace.json.gz --by phase --format csv
      tracemine top trace.json.gz --ncu report.csv.gz
    """
    from tracemine.report.top_lines import Shown
    from tracemine.report.tops import rendered

    if counters or _is_report(Path(path)):
        print_counters(Path(path), counters or (), form, quiet=quiet)
        return 0
    check_format(form, _FORMATS)
    table = _checked(by, limit, depth, host=host, waits=waits, graphs=graphs)
    request = asked(quiet=quiet, gpu=gpu, rules=rules, execution_trace=execution_trace, graph_capture=graph_capture)
    tops = _tops(path, request, whole=whole)
    width = options(sys.stdout, top=0, no_color=True).width
    found = tops.graphs() if graphs else tops.waits() if waits else tops.host(table) if host else tops.by(table)
    write(rendered(found, form, Shown(limit=None if every else limit, depth=depth, width=width)))
    return 0


def _is_report(path: Path) -> bool:
    """Return whether a file is a report of Nsight Compute."""
    from tracemine.formats import is_counters

    return path.is_file() and is_counters(path)


def _checked(by: str | None, limit: int, depth: int | None, *, host: bool, waits: bool, graphs: bool) -> Any:
    """Return what is added up by. Raises UsageError where nothing is, or no row would be shown."""
    if limit < 1 or (depth is not None and depth < 1):
        raise UsageError("--limit and --depth: are 1 or more", hint="--all prints all rows")
    for name, alone, others in (("waits", waits, host or by or graphs), ("graphs", graphs, host or by)):
        if alone and others:
            raise UsageError(f"--{name}: is a table of its own", hint="leave out the others: --by, --host and the like")
    known = _HOST_BY if host else _BY
    if by is not None and by not in known:
        raise UsageError(f"--by: nothing is added up by {by!r}", hint=f"there are: {', '.join(known)}")
    return by or known[0]


def _tops(given: str, request: ScanRequest, *, whole: bool) -> Tops:
    """Return the tables of a trace. Raises TracemineError where it cannot be read."""
    from tracemine.api.pictures import tops_of
    from tracemine.pipeline import mined

    analysis = analysed(one_trace(given, quiet=request.quiet), request)
    found = mined(analysis, request.options)
    return tops_of(analysis, found, request.options, whole=whole)
