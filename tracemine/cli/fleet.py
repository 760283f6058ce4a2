"""tracemine fleet: many traces into one data set, what it says over all of them, and tickets of that."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracemine.cli.console import options, say, write
from tracemine.cli.described import argument, option
from tracemine.cli.options import (
    FindingOption,
    GPUOption,
    NoColorOption,
    OutputOption,
    QuietOption,
    RayOption,
    RuleOption,
    RulesOption,
    SkipOption,
    check_top,
    group_help,
)
from tracemine.cli.progress import reading
from tracemine.cli.tickets import (
    ApplyOption,
    AssigneeOption,
    CodeOwnersOption,
    GitHubOption,
    GitHubUrlOption,
    JiraOption,
    JiraProjectOption,
    JiraTypeOption,
    LabelOption,
    MaxOption,
    MilestoneOption,
    OutOption,
    Where,
    deliver,
)
from tracemine.errors import UsageError
from tracemine.patterns import deferred
from tracemine.units import bytes_text, count_text

if TYPE_CHECKING:
    from tracemine.cli.progress import Bar
    from tracemine.fleet.report import FleetReport
    from tracemine.fleet.run import Engine, Total
    from tracemine.fleet.task import TaskOutcome
    from tracemine.report import Drawing
    from tracemine.tickets import TicketsAsked

_FORMATS = ("text", "json", "html")
_SHOWN = 10  # findings that an error names
_MEMORY = deferred(r"(\d+(?:\.\d+)?)\s*(MiB|MB|M|GiB|GB|G)", re.IGNORECASE)
_MOST_BYTES, _MOST, _MOST_ATTEMPTS = 1 << 50, 1_000_000_000, 100
_UNITS = {"m": 1 << 20, "g": 1 << 30}

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

PathsArgument = Annotated[list[str], argument("fleet.paths")]
DatasetOption = Annotated[str, option("fleet.dataset")]
LabelsOption = Annotated[str | None, option("fleet.labels")]
ProcessesOption = Annotated[int | None, option("fleet.processes")]
TimeLimitOption = Annotated[float, typer.Option("--time-limit", metavar="SECONDS", help="What one trace may take.")]
MemoryOption = Annotated[str, typer.Option(metavar="SIZE", help="Memory that one trace may take: 500MB, 8GB.")]
AttemptsOption = Annotated[int, typer.Option(metavar="N", help="How often a trace is tried whose process was lost.")]
AgainOption = Annotated[bool, typer.Option("--again", help="Also try those that could not be scanned before.")]
DatasetArgument = Annotated[str, typer.Argument(metavar="DATASET", help="What tracemine fleet wrote.")]
HoursOption = Annotated[Path | None, option("fleet.hours")]
PriceOption = Annotated[float | None, typer.Option(metavar="AMOUNT", help="Price of a GPU-hour.")]
FleetProjectOption = Annotated[str, option("fleet.fleet_project")]
FleetRedactOption = Annotated[bool, option("fleet.fleet_redact")]
ByOption = Annotated[str | None, option("fleet.by")]
TopOption = Annotated[int, typer.Option(metavar="N", help="Rows of each table, 0 for all.")]
FormatOption = Annotated[str, typer.Option("--format", "-f", metavar="text|json|html", help="What to print.")]


@app.callback(invoke_without_command=True)
def fleet(context: typer.Context) -> int:
    """Scan many traces into one data set, and say what costs most over all of them.

    `tracemine fleet PATH… -o DATASET` is `tracemine fleet run PATH… -o DATASET`.

    \b
    Examples:
      tracemine fleet traces/ -o fleet/
      tracemine fleet report fleet/
    """
    return group_help(context)


@app.command(short_help="Scan many traces into a data set.")
def run(
    paths: PathsArgument,
    output: DatasetOption,
    labels: LabelsOption = None,
    processes: ProcessesOption = None,
    ray: RayOption = None,
    time_limit_s: TimeLimitOption = 600,
    memory: MemoryOption = "8GB",
    attempts: AttemptsOption = 3,
    again: AgainOption = False,
    gpu: GPUOption = None,
    rules: RulesOption = None,
    rule: RuleOption = None,
    skip: SkipOption = None,
    quiet: QuietOption = False,
) -> int:
    """Scan many traces and keep what was found as one Parquet data set. What is there already is not scanned again.

    A trace that is damaged, too large or too slow is a row that says why. Cut off, the same call goes on.

    Exit code: 0 every trace has its row, 2 the call is wrong or an argument names no trace.

    \b
    Examples:
      tracemine fleet traces/ -o fleet/
      tracemine fleet 's3://traces/nightly/*/*.json.gz' -o s3://perf/fleet --labels '{job}/*' --ray auto
    """
    from tracemine.fleet.machine import Limits
    from tracemine.fleet.places import shown
    from tracemine.fleet.run import tasks, total
    from tracemine.scan_settings import ScanSettings

    limits = Limits(
        seconds=_positive(time_limit_s, "--time-limit"),
        memory_bytes=_bytes(memory),
        attempts=min(max(attempts, 1), _MOST_ATTEMPTS),
    )
    settings = ScanSettings(gpu=gpu, rules=tuple(map(str, rules or ())), rule=tuple(rule or ()), skip=tuple(skip or ()))
    began = time.monotonic()
    made, known, wrong = tasks(paths, output, settings, labels, again, None if quiet else say)
    with reading(Path(shown(output)), quiet=quiet) as bar:
        found = total(_told(_engine(processes, ray)(made, limits), len(made), bar), known, wrong)
    for one in found.wrong:
        say(one)
    if not quiet:
        _say_total(found, time.monotonic() - began)
    return UsageError.exit_code if found.wrong else 0


@app.command(short_help="Say what a data set says over all jobs.")
def report(
    dataset: DatasetArgument,
    format_: FormatOption = "text",
    output: OutputOption = None,
    hours: HoursOption = None,
    price: PriceOption = None,
    by: ByOption = None,
    top: TopOption = 10,
    no_color: NoColorOption = False,
) -> int:
    """Say which causes cost most over all jobs, which findings recur, what is gone, and how far predictions held.

    \b
    Examples:
      tracemine fleet report fleet/ --hours hours.csv --price 2.50
      tracemine fleet report s3://perf/fleet --by model --format json
      tracemine fleet report fleet/ --format html -o fleet.html
    """
    from tracemine.fleet.report import GROUPS, hours_of
    from tracemine.fleet.report import report as summed

    if format_ not in _FORMATS:
        raise UsageError(f"--format: {format_} is none of {', '.join(_FORMATS)}")
    if price is not None:
        _positive(price, "--price")
    check_top(top, "prints all rows")
    groups = (by,) if by is not None else GROUPS if format_ == "html" else GROUPS[:1]
    found = summed(dataset, hours=None if hours is None else hours_of(hours), price=price, by=groups, top=top)
    text = _drawn(found, format_, options(sys.stdout, top=0, no_color=no_color or output is not None))
    write(text, output)
    return 0


def _drawn(found: FleetReport, format_: str, how: Drawing) -> str:
    if format_ == "json":
        from tracemine.report.json import json_of

        return json_of(found, indented=True)
    out = StringIO()
    if format_ == "html":
        from tracemine.fleet.html import render as render_html

        render_html(found, out)
    else:
        from tracemine.fleet.text import render

        render(found, out, how)
    return out.getvalue()


@app.command(short_help="Give each cause over the fleet a ticket of GitHub or Jira.")
def tickets(
    dataset: DatasetArgument,
    project: FleetProjectOption,
    finding: FindingOption = None,
    out: OutOption = None,
    github: GitHubOption = None,
    github_url: GitHubUrlOption = None,
    jira: JiraOption = None,
    jira_project: JiraProjectOption = None,
    jira_type: JiraTypeOption = "Task",
    apply: ApplyOption = False,
    label: LabelOption = None,
    assignee: AssigneeOption = None,
    milestone: MilestoneOption = None,
    codeowners: CodeOwnersOption = None,
    redact: FleetRedactOption = False,
    most: MaxOption = 5,
    hours: HoursOption = None,
    price: PriceOption = None,
    quiet: QuietOption = False,
) -> int:
    """Give each finding one ticket, however many jobs have it: what it costs of their GPU-hours, and how to fix it.

    Otherwise as `tracemine tickets`: without --apply it says what it would do, a ticket is found again and updated,
    and never two are made. None is closed: that a finding is gone does not say that it is fixed; compare recordings.

    \b
    Examples:
      tracemine fleet tickets fleet/ --project fleet --out tickets/
      tracemine fleet tickets fleet/ --project fleet --github you/model --hours hours.csv --price 2.50 --apply
      tracemine fleet tickets fleet/ --project fleet --github you/model --label perf --codeowners . --apply
    """
    from tracemine.fleet.report import hours_of
    from tracemine.fleet.tickets import tickets_of

    where = Where(out, github, github_url, jira, jira_project, jira_type, apply, most, quiet)
    where.check(project)
    if price is not None:
        _positive(price, "--price")
    filing, owners = where.filed(label or (), assignee or (), milestone, codeowners)
    known = None if hours is None else hours_of(hours)
    found = tickets_of(dataset, project, hours=known, price=price, redact=redact, filing=filing, owners=owners)
    deliver(found if finding is None else _one_of(found, finding), where, unseen=True)
    return 0


def _one_of(found: TicketsAsked, mark: str) -> TicketsAsked:
    """Return what is asked of one finding: its number, most worth first, or first digits. Raises UsageError."""
    known = [draft.mark.key.rpartition("/")[2] for draft in found.drafts]
    numbered = known[int(mark) - 1 : int(mark)] if mark.isdecimal() and 0 < int(mark) <= len(known) else []
    named = numbered or [one for one in known if one.startswith(mark)]
    if len(named) != 1:
        says = f"--finding: {count_text(len(named), 'finding')} begin with {mark[:40]!a}"
        raise UsageError(says, hint=f"there are: {', '.join(known[:_SHOWN])}{', …' if len(known) > _SHOWN else ''}")
    return found.of_one(named[0])


def _engine(processes: int | None, ray: str | None) -> Engine:
    if ray is not None:
        from tracemine.fleet.machine import on_ray

        if processes is not None:
            raise UsageError("--processes: --ray has its own cores")
        return on_ray(ray)
    from tracemine.fleet.run import on_this_machine

    if processes is not None and processes < 1:
        raise UsageError(f"--processes: {processes} is less than 1")
    return on_this_machine(processes)


def _told(outcomes: Iterator[TaskOutcome], count: int, bar: Bar | None) -> Iterator[TaskOutcome]:
    for number, one in enumerate(outcomes, 1):
        if bar is not None:
            bar(number, count)
        yield one


def _say_total(found: Total, seconds: float) -> None:
    parts = [f"{count_text(found.scanned, 'trace')} scanned, {count_text(found.findings, 'finding')}"]
    parts += [f"{count:,} {what}" for count, what in (
        (found.known, "known already"), (found.refused, "no trace or damaged"), (found.failed, "failed"),
    ) if count]  # fmt: skip
    for one in found.unread:
        say(one)
    took = f"{seconds:.1f} s, {found.cpu_seconds:.1f} s of processors, {bytes_text(found.peak_bytes)} at most"
    say(f"{'; '.join(parts)}; {took}")


def _bytes(text: str) -> int:
    found = _MEMORY.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise UsageError(f"--memory: {text} is no size", hint="such as 500MB or 8GB")
    size = float(found[1]) * _UNITS[found[2][0].lower()]
    if size > _MOST_BYTES:
        raise UsageError(f"--memory: {text[:40]} is more than any machine has", hint="such as 500MB or 8GB")
    return int(size)


def _positive(number: float, option: str) -> float:
    if not 0 < number <= _MOST:
        says = "is not more than 0" if not number > 0 else f"is more than {_MOST:,}"
        raise UsageError(f"{option}: {number:g} {says}")
    return number
