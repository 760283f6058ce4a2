"""tracemine diff: what became of each finding from one recording of a program to the next."""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracemine.cli.console import options, say_error, write
from tracemine.cli.findings import one_stored
from tracemine.cli.gates import NoiseOption, fails, gates_given, noise_given
from tracemine.cli.options import QuietOption, RuleOption, RulesOption, SkipOption
from tracemine.cli.scan import FAIL_ON_REACHED, device_named, one_trace, rules_asked, scanned
from tracemine.errors import TracemineError, UsageError
from tracemine.files import write_file
from tracemine.report import DIFF_REPORTS, render_difference

if TYPE_CHECKING:
    from tracemine.findings import Scan
    from tracemine.pipeline import ScanOptions


def diff(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="A trace, timeline, capture, or findings as JSON.")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="The same program later, as BEFORE.")],
    form: Annotated[
        str, typer.Option("--format", "-f", metavar="|".join(DIFF_REPORTS), help="What to print.")
    ] = "text",
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="new|worse|moved|unknown|%|TIME",
            help="Exit with 1 if a finding is so, or is new or worse by so much of a step, or the step is. Several "
            "with commas, or repeated. New findings count where a report shows them.",
        ),
    ] = None,
    noise: NoiseOption = "auto",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead.")
    ] = None,
    top: Annotated[
        int, typer.Option(metavar="N", help="Print so many changes, 0 for all. JSON always has all of them.")
    ] = 20,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="As in scan, for traces whose GPU is not known.")
    ] = None,
    rules: RulesOption = None,
    rule: RuleOption = None,
    skip: SkipOption = None,
    quiet: QuietOption = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours; NO_COLOR=1 does the same.")] = False,
) -> int:
    """Say what became of each finding: fixed, improved, same, worse, new, moved, or unknown, and why.

    Traces are scanned first, both with the same rules. Every finding counts, also those that no report shows. Costs are
    of a step. A finding is only called fixed if what its operators took is gone with it.

    Exit code: 0 done, 1 --fail-on reached, 2 the call or a file is wrong.

    \b
    Examples:
      tracemine diff before.json.gz after.json.gz
      tracemine diff findings.json runs/after/ --fail-on worse --fail-on 2%
      tracemine diff before/ after/ --format markdown -o "$GITHUB_STEP_SUMMARY"
    """
    if form not in DIFF_REPORTS:
        page = "; a page is of one trace: tracemine scan AFTER --format html -o FILE" * (form == "html")
        raise UsageError(f"--format: there is no report {form!r}", hint=f"there are: {', '.join(DIFF_REPORTS)}{page}")
    if top < 0:
        raise UsageError(f"--top: {top} is negative", hint="0 prints all changes")
    share, gates = noise_given(noise), gates_given(fail_on or ())
    from tracemine.comparison import diff as difference_of
    from tracemine.pipeline import ScanOptions

    asked = ScanOptions(rules=rules_asked(rules, rule, skip), device=None if gpu is None else device_named(gpu))
    scans = []
    for given in (before, after):
        try:
            scans.append(one_scan(given, asked, quiet=quiet))
        except TracemineError as error:
            say_error(error)
    if len(scans) < 2:
        return UsageError.exit_code
    found = difference_of(*scans, noise=share)
    text = StringIO()
    render_difference(form, found, text, options(text if output else sys.stdout, top=top, no_color=no_color))
    if output:
        write_file(output, text.getvalue())
    else:
        write(text.getvalue())
    return FAIL_ON_REACHED if fails(found, gates) else 0


def one_scan(given: str, asked: ScanOptions, *, quiet: bool) -> Scan:
    """Return the scan that an argument names, stored or of a trace. Raises TracemineError where it is not one."""
    stored = one_stored(Path(given))
    if stored is not None:
        return stored
    return scanned(one_trace(given, quiet=quiet), asked, quiet=quiet)
