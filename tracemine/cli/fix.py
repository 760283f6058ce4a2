"""tracemine fix: what to change in a program, as a module, as a diff of its source, or in lines."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracemine.cli.console import say, write
from tracemine.cli.described import argument, option
from tracemine.cli.findings import named_finding, one_stored
from tracemine.cli.options import ExecutionTraceOption, GPUOption, OutputOption, QuietOption, RulesOption
from tracemine.cli.request import analysed, asked, one_trace
from tracemine.errors import UsageError
from tracemine.extras import install
from tracemine.files import write_file

if TYPE_CHECKING:
    from tracemine.findings.record import Finding
    from tracemine.fix.ways import FixWay
    from tracemine.pipeline import Analysis


def fix(
    fingerprint: Annotated[str, argument("fix.fingerprint")],
    path: Annotated[str, typer.Argument(metavar="TRACE|FINDINGS.json", help="A trace to scan, or findings as JSON.")],
    source: Annotated[Path | None, option("fix.source")] = None,
    output: OutputOption = None,
    execution_trace: ExecutionTraceOption = None,
    gpu: GPUOption = None,
    rules: RulesOption = None,
    quiet: QuietOption = False,
) -> int:
    """Write a finding's fix: a module with its kernel, or a diff of your source. Nothing is applied, nothing run.

    Where there is neither, the lines to change are printed, and why.

    Exit code: 0 a module or a diff, 1 lines alone, 2 the call or a file is wrong.

    \b
    Examples:
      tracemine fix 1 trace.json.gz -o fused.py
      tracemine fix 2 run/ --source . -o faster.diff
    """
    from tracemine.fix.ways import MODULE, SAYS, way_of
    from tracemine.pipeline import mined

    scan, analysis = one_stored(Path(path)), None
    if scan is None:
        request = asked(quiet=quiet, gpu=gpu, rules=rules, execution_trace=execution_trace)
        analysis = analysed(one_trace(path, quiet=quiet), request)
        scan = mined(analysis, request.options)
    finding, _ = named_finding(fingerprint, [scan], "FINGERPRINT")
    way = way_of(finding.rule)
    text, refused = _diff(finding, source, way)
    if not text and MODULE in way.ways:
        text, more = _module(finding, analysis)
        refused += more
    for why in () if quiet else refused:
        say(f"not changed: {why}")
    if way.arithmetic and not quiet:
        say("it computes in fewer bits: compare the results")
    found = bool(text)
    lines = f"# {SAYS[way.ways[0]]}\n{finding.fix}\n"
    (write if output is None or not found else partial(write_file, output))(text or lines)
    return 0 if found else 1


def _diff(finding: Finding, source: Path | None, way: FixWay) -> tuple[str, list[str]]:
    """Return the diff, "" where there is none, and what was not changed."""
    if not way.edits:
        return "", []
    if source is None:
        return "", ["--source DIR names the source that a diff would be made of"]
    if not source.is_dir():
        raise UsageError(f"--source: {source} is no folder")
    try:
        from tracemine.fix.diff import source_diff
    except ImportError as error:
        raise UsageError(f"a diff needs LibCST: {error}", hint=install("fix")) from error
    return source_diff(finding, source, way.edits)


def _module(finding: Finding, analysis: Analysis | None) -> tuple[str, list[str]]:
    """Return the module with a finding's kernel, "" where there is none, and why."""
    from tracemine.fix.diff import page_of, page_text

    page = page_of(finding.fix)
    if page is not None:
        return page_text(page), []
    if analysis is None:
        return "", ["a kernel is made of the trace: name that in the place of its findings"]
    from tracemine.codegen.graph import Unsupported
    from tracemine.fix.kernel import kernel_module

    try:
        return kernel_module(finding, analysis.dataflow, analysis.groups)[1], []
    except Unsupported as why:
        return "", [str(why)]
