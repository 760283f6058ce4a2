"""tracemine explain: one finding in full."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Annotated

import typer

from tracemine.cli.console import options, write
from tracemine.cli.described import argument
from tracemine.cli.findings import judged, named_finding, one_stored, say_verdicts
from tracemine.cli.options import (
    EvidenceOption,
    ExecutionTraceOption,
    GPUOption,
    NoColorOption,
    OutputOption,
    QuietOption,
    RulesOption,
    SourceOption,
    check_format,
)
from tracemine.cli.request import FoundIn, asked, evidence_in, found_in, one_trace
from tracemine.errors import UsageError
from tracemine.files import write_file

_FORMATS = ("text", "markdown")


def explain(
    fingerprint: Annotated[str, argument("explain.fingerprint")],
    path: Annotated[str, typer.Argument(metavar="FINDINGS.json|TRACE", help="Findings as JSON, or a trace to scan.")],
    evidence: EvidenceOption = None,
    execution_trace: ExecutionTraceOption = None,
    form: Annotated[str, typer.Option("--format", "-f", metavar="|".join(_FORMATS), help="What to print.")] = "text",
    output: OutputOption = None,
    gpu: GPUOption = None,
    rules: RulesOption = None,
    source: SourceOption = None,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
) -> int:
    """Explain one finding: what it is, where, on what evidence, what it costs, what its fix saves, and the whole fix.

    As Markdown it is the text of a ticket. What its rule may be wrong about says `tracemine rules show`.

    Exit code: 0 done, 2 the call or a file is wrong.

    \b
    Examples:
      tracemine explain 1 trace.json.gz
      tracemine explain 10bb trace.json.gz
      tracemine explain 10bb findings.json --evidence results/ --format markdown -o ticket.md
    """
    from tracemine.report.explain import render
    from tracemine.report.markdown import ticket

    check_format(form, _FORMATS)
    if Path(fingerprint).exists() and not Path(path).exists():
        raise UsageError(f"FINGERPRINT: {fingerprint!r} is a file", hint=f"tracemine explain {path} {fingerprint}")
    stored = one_stored(Path(path))
    if stored is not None and source is not None:
        raise UsageError("--source: is of a trace, and this holds findings", hint="name the trace they are of")
    if stored is None:
        request = asked(
            quiet=quiet, gpu=gpu, rules=rules, evidence=evidence, execution_trace=execution_trace, source=source
        )
        found = found_in(one_trace(path, quiet=quiet), request)
    else:
        verdicts = evidence_in(evidence or (), quiet=quiet)
        found = FoundIn(judged(stored, verdicts))
        if verdicts is None and not quiet:
            say_verdicts(Path(path))
    finding, _ = named_finding(fingerprint, [found.scan], "FINGERPRINT")
    text = StringIO()
    if form == "markdown":
        ticket(finding, found.scan, text, found.frames)
    else:
        how = options(text if output else sys.stdout, top=0, no_color=no_color)
        render(finding, found.scan, text, replace(how, frames=found.frames))
    (write if output is None else partial(write_file, output))(text.getvalue())
    return 0
