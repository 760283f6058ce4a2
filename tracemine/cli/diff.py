"""tracemine diff: what became of each finding from one recording of a program to the next."""

from __future__ import annotations

import sys
from dataclasses import replace
from io import StringIO
from typing import Annotated

import typer

from tracemine.cli.console import options, say_error, write
from tracemine.cli.described import option
from tracemine.cli.gates import NoiseOption, fails, gates_given, noise_given
from tracemine.cli.job import drawn_difference, jobs_in
from tracemine.cli.options import (
    GPUOption,
    NoColorOption,
    OutputOption,
    QuietOption,
    RuleOption,
    RulesOption,
    SkipOption,
    check_format,
    check_top,
)
from tracemine.cli.request import asked, one_found
from tracemine.cli.scan import FAIL_ON_REACHED, check_page
from tracemine.errors import TracemineError, UsageError
from tracemine.report import DIFF_REPORTS, PICTURED, render_difference

FailOnOption = Annotated[list[str] | None, option("diff.fail_on")]


def diff(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="A trace, timeline, capture, or findings as JSON.")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="The same program later, as BEFORE.")],
    form: Annotated[str, option("diff.form", metavar="|".join(DIFF_REPORTS))] = "text",
    fail_on: FailOnOption = None,
    noise: NoiseOption = "auto",
    output: OutputOption = None,
    top: Annotated[int, option("diff.top")] = 20,
    gpu: GPUOption = None,
    rules: RulesOption = None,
    rule: RuleOption = None,
    skip: SkipOption = None,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
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
      tracemine diff before/ after/ --format html -o diff.html
    """
    check_format(form, DIFF_REPORTS)
    check_page(form, output)
    check_top(top, "prints all changes")
    share, gates = noise_given(noise), gates_given(fail_on or ())
    if not fail_on and (jobs := jobs_in((before, after), quiet=quiet)) is not None:
        return drawn_difference(jobs, form, output, options(sys.stdout, top=top, no_color=no_color).width)
    from tracemine.comparison import diff as difference_of

    request = asked(quiet=quiet, gpu=gpu, rules=rules, rule=rule, skip=skip, pictured=form in PICTURED)
    sides = []
    for given in (before, after):
        try:
            sides.append(one_found(given, request))
        except TracemineError as error:
            say_error(error)
    if len(sides) < 2:
        return UsageError.exit_code
    found = difference_of(*(side.scan for side in sides), noise=share)
    text = StringIO()
    how = options(text if output else sys.stdout, top=top, no_color=no_color)
    render_difference(form, found, text, replace(how, sides=[(side.scan, side.picture) for side in sides]))
    write(text.getvalue(), output)
    return FAIL_ON_REACHED if fails(found, gates) else 0
