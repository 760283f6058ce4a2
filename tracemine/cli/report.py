"""tracemine report: findings that were stored, printed again without their trace."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracemine.cli.console import say, say_error, write
from tracemine.cli.findings import findings_files, named_finding, stored_scans
from tracemine.cli.options import (
    AllOption,
    EvidenceOption,
    ListTopOption,
    NoColorOption,
    OutputOption,
    QuietOption,
    check_top,
)
from tracemine.cli.request import FoundIn, ScanRequest, all_traces, evidence_in, found_in
from tracemine.cli.scan import check_report, drawing
from tracemine.errors import TracemineError, UsageError
from tracemine.files import write_file
from tracemine.report import PICTURED, REPORTS, Drawing, render, render_page

if TYPE_CHECKING:
    from tracemine.findings.record import Scan
    from tracemine.verdicts.evidence import Evidence


def report(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="FINDINGS.json|TRACE|DIR",
            help="What scan printed as JSON or HTML, a folder of such JSON, or traces, which are scanned first.",
        ),
    ],
    form: Annotated[
        str | None, typer.Option("--format", "-f", metavar="|".join(REPORTS), help="What to print. Default: text.")
    ] = None,
    finding: Annotated[
        str | None,
        typer.Option(metavar="N|FINGERPRINT", help="A ticket's text for this finding: its number or first digits."),
    ] = None,
    evidence: EvidenceOption = None,
    output: OutputOption = None,
    every: AllOption = False,
    top: ListTopOption = None,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
) -> int:
    """Print findings again, with the verdicts that --evidence names: predicted, measured, error, level, not tested.

    Stored findings need no trace. What the step gains was found with it: where a verdict lowers the saving of GPU time
    it is lowered in proportion, and never raised; scan --evidence, which has the trace, says it exactly.

    Exit code: 0 done, 2 the call or a file is wrong.

    \b
    Examples:
      tracemine report findings.json
      tracemine report findings.json --evidence results/ --format markdown -o findings.md
      tracemine report findings.json --finding 5c937085fd3e53de
    """
    name = form or ("text" if finding is None else "markdown")
    check_report(name, output)
    if finding is not None and name != "markdown":
        raise UsageError("--finding: a ticket's text is Markdown", hint="leave --format out")
    check_top(top or 0, "prints all findings")
    text = StringIO()
    how = drawing(output, top, whole=every, no_color=no_color)
    pictured = name in PICTURED
    judged = evidence_in(evidence or (), quiet=quiet)
    found = list(chain.from_iterable(_scans(given, judged, quiet=quiet, pictured=pictured) for given in paths))
    scans = _readable(found)
    _draw(name, scans, finding, text, how)
    if scans:
        (write if output is None else partial(write_file, output))(text.getvalue())
    return UsageError.exit_code if len(scans) < len(found) else 0


def _readable(every: Sequence[FoundIn | TracemineError]) -> list[FoundIn]:
    """Return what could be read, and say what is wrong with the rest."""
    for wrong in every:
        if isinstance(wrong, TracemineError):
            say_error(wrong)
    return [one for one in every if isinstance(one, FoundIn)]


def _draw(name: str, scans: Sequence[FoundIn], finding: str | None, text: StringIO, how: Drawing) -> None:
    """Write one finding as a ticket, or all scans one after another."""
    if finding is not None and scans:
        from tracemine.report.markdown import ticket

        ticket(*named_finding(finding, [one.scan for one in scans], "--finding"), text)
        return
    if name in PICTURED and scans:
        drawn = [(found.scan, replace(how, picture=found.picture, frames=found.frames)) for found in scans]
        render_page(name, drawn, text)
        return
    for number, found in enumerate(scans):
        text.write("\n\n" if number and name != "json" else "")
        render(name, found.scan, text, replace(how, picture=found.picture, frames=found.frames))


def _scans(given: str, evidence: Evidence | None, *, quiet: bool, pictured: bool) -> Iterator[FoundIn | TracemineError]:
    """Yield every scan that a path names, stored ones with the verdicts; what is wrong with one in its place."""
    path = Path(given)
    try:
        files = findings_files(path) if path.is_dir() else [path]
        stored = [scan for file in files for scan in stored_scans(file) or ()]
    except TracemineError as error:
        yield error
        return
    if stored:
        if evidence is None and not quiet:
            say_verdicts(files)
        yield from (FoundIn(with_evidence(scan, evidence)) for scan in stored)
        return
    for trace in all_traces([given], quiet=quiet):
        try:
            yield trace if isinstance(trace, TracemineError) else _found(trace, evidence, quiet, pictured)
        except TracemineError as error:
            yield error


def say_verdicts(files: Sequence[Path]) -> None:
    """Name the verdicts that verify wrote next to findings, and that are not asked for."""
    for file in files:
        beside = file.with_name(f"{file.stem}.verdicts.json")
        if beside.is_file():
            say(f"{file}: verdicts lie next to it and are not looked at: --evidence {shlex.quote(str(beside))}")


def with_evidence(scan: Scan, evidence: Evidence | None) -> Scan:
    """Add verdicts to stored findings; None: leave them as they are."""
    if evidence is None:
        return scan
    from msgspec.structs import replace

    from tracemine.findings.verdicts import with_verdicts

    gpu = scan.trace.gpu
    found = with_verdicts(scan, lambda finding: evidence.on(finding, gpu))
    return replace(found, evidence=evidence.account(found, gpu))


def _found(trace: Path, evidence: Evidence | None, quiet: bool, pictured: bool) -> FoundIn:
    from tracemine import pipeline

    return found_in(trace, ScanRequest(options=pipeline.ScanOptions(evidence=evidence), quiet=quiet, pictured=pictured))
