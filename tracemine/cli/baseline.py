"""tracemine baseline: what later scans are compared with, kept with the code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracemine.cli.console import say
from tracemine.cli.options import GPUOption, QuietOption, RuleOption, RulesOption, SkipOption, group_help
from tracemine.cli.request import asked, one_scan
from tracemine.errors import InputError, Location, UsageError
from tracemine.files import make_folder, writing
from tracemine.tickets.marks import check_project
from tracemine.units import count_text

if TYPE_CHECKING:
    from tracemine.findings import Scan

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.callback(invoke_without_command=True)
def baseline(context: typer.Context) -> int:
    """Keep what a trace holds, so that later scans say what is new or worse: write, accept.

    \b
    Example:
      tracemine baseline write trace.json.gz -o .tracemine/decoder.json --project decoder
    """
    return group_help(context)


@app.command(short_help="Keep a trace's findings.")
def write(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A trace, timeline, capture, or findings as JSON.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The baseline. What is accepted in one there stays.")
    ],
    project: Annotated[str, typer.Option("--project", metavar="LABEL", help="What it is a baseline of: a short name.")],
    gpu: GPUOption = None,
    rules: RulesOption = None,
    rule: RuleOption = None,
    skip: SkipOption = None,
    quiet: QuietOption = False,
) -> int:
    """Keep a trace's findings and what its operators take, one a line: a file to commit.

    Exit code: 0 done, 2 the call or a file is wrong.

    \b
    Example:
      tracemine baseline write trace.json.gz -o .tracemine/decoder.json --project decoder
      tracemine scan new.json.gz --baseline .tracemine/decoder.json --fail-on worse,2%
    """
    from tracemine.comparison.baseline import baseline_of, read_baseline, write_baseline

    check_project(project)
    there = read_baseline(output) if output.exists() else None
    if there is not None and there.project != project:
        raise UsageError(
            f"--project: {output} is a baseline of {there.project!r}, with what that one accepts",
            hint="name another file with --output, or delete this one",
        )
    accepted = there.accepted if there is not None else ()
    scan = one_scan(trace, asked(quiet=quiet, gpu=gpu, rules=rules, rule=rule, skip=skip))
    _check_whole(scan, trace)
    found = baseline_of(scan, project, accepted)
    with writing(output):
        make_folder(output.parent)
    write_baseline(found, output)
    if not quiet:
        kept = f", {count_text(len(accepted), 'accepted finding')} as before" if accepted else ""
        say(f"{output}: {count_text(len(found.findings), 'finding')} of {project}{kept}")
    return 0


def _check_whole(scan: Scan, trace: str) -> None:
    """Raises InputError for what no later scan could be compared with."""
    from tracemine.documents.trust import RECORD_GPU

    if scan.recorded is not None and scan.recorded.cut_off:
        says, hint = "is cut off, and no baseline", "copy or record the trace again, to its end"
    elif scan.recorded is not None and scan.recorded.unusable:
        says, hint = "is not to be believed, and no baseline", scan.recorded.doubts[0]
    elif not scan.trace.activities:
        says = "holds no GPU activity, and is no baseline"
        hint = RECORD_GPU
    else:
        return
    raise InputError(says, where=Location(trace), hint=hint)


@app.command(short_help="Let a finding be new or worse.")
def accept(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The baseline.")],
    fingerprint: Annotated[
        str,
        typer.Argument(metavar="FINGERPRINT", help="Of the finding; of one that is in the file the first digits do."),
    ],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is kept, and printed.")],
    quiet: QuietOption = False,
) -> int:
    """Let a finding be new or worse from now on, for a reason.

    Exit code: 0 done, 2 the call or a file is wrong.

    \b
    Example:
      tracemine baseline accept .tracemine/decoder.json 80c2800cc9860f75 --reason "ships in Q3, PERF-123"
    """
    from tracemine.comparison.baseline import accept as accepting
    from tracemine.comparison.baseline import read_baseline, write_baseline

    found = accepting(read_baseline(file), fingerprint, reason)
    write_baseline(found, file)
    if not quiet:
        say(f"{file}: {count_text(len(found.accepted), 'finding')} accepted")
    return 0
