"""tracemine baseline: what later scans are compared with, kept with the code."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tracemine.cli.console import say, say_error
from tracemine.cli.console import write as printed
from tracemine.cli.described import argument, option
from tracemine.cli.options import QuietOption, check_format, group_help
from tracemine.errors import InputError, Location, TracemineError, UsageError
from tracemine.files import make_folder, writing
from tracemine.report.escape import json_text, line
from tracemine.units import count_text, time_text

if TYPE_CHECKING:
    from tracemine.comparison.baseline import Accepted, Baseline
    from tracemine.findings import Scan

app = typer.Typer(rich_markup_mode=None, add_completion=False)


_FORMATS = ("text", "json")
_KEPT = ".tracemine/NAME.json"
SaveBaselineOption = Annotated[
    str | None,
    option(
        "baseline.save_baseline",
        help="Keep the findings, for later scans to be compared with: by the name of a program on a GPU, such as "
        f"decoder-h100, in {_KEPT}, or in a file to commit.",
    ),
]


@app.callback(invoke_without_command=True)
def baseline(context: typer.Context) -> int:
    """Keep what a trace holds, so that later scans say what is new or worse: accept, list.

    \b
    Example:
      tracemine scan trace.json.gz --save-baseline decoder
      tracemine scan new.json.gz --baseline decoder --fail-on new,worse
    """
    return group_help(context)


class Kept(NamedTuple):
    """Where a baseline is kept, what it is called, and what it accepts by now."""

    file: Path
    name: str
    accepted: Sequence[Accepted] = ()

    def write(self, scan: Scan, *, quiet: bool) -> None:
        """Keep a scan's findings, one a line. Raises InputError for what no later scan could be compared with."""
        from tracemine.comparison.baseline import baseline_of, write_baseline

        _check_whole(scan)
        found = baseline_of(scan, self.name, self.accepted)
        with writing(self.file):
            make_folder(self.file.parent)
        write_baseline(found, self.file)
        if not quiet:
            kept = f", {count_text(len(self.accepted), 'accepted finding')} as before" if self.accepted else ""
            say(f"{self.file}: {count_text(len(found.findings), 'finding')} of {self.name}{kept}")


def place_of(given: str) -> Kept:
    """Return what a file, or a name, keeps: the name of a file's baseline is the one in it, of a new one its stem.

    Raises UsageError for what can be no name, InputError for a file that holds something else.
    """
    from tracemine.comparison.baseline import file_of, read_baseline

    named = "/" not in given and os.sep not in given and not given.endswith(".json")
    if named:
        _check_name(given, "--save-baseline")
    file = file_of(given) if named else Path(given)
    there = read_baseline(file) if file.exists() else None
    name = given if named else file.stem if there is None else there.project
    _check_name(name, "--save-baseline")
    if there is not None and there.project != name:
        raise UsageError(
            f"--save-baseline: {file} is a baseline of {there.project!r}, with what that one accepts",
            hint="name another, or delete this one",
        )
    return Kept(file, name, there.accepted if there is not None else ())


def _check_name(name: str, option: str = "--name") -> None:
    from tracemine.tickets.marks import check_project

    try:
        check_project(name)
    except UsageError as error:
        raise UsageError(error.message.replace("--project", option, 1), hint=error.hint) from None


def _check_whole(scan: Scan) -> None:
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
    raise InputError(says, where=Location(scan.trace.path), hint=hint)


@app.command(short_help="Accept a finding: a gate lets it pass.")
def accept(
    file: Annotated[str, typer.Argument(metavar="[FILE|NAME]", help="The baseline; left out where --name says which.")],
    fingerprint: Annotated[str | None, argument("baseline.fingerprint")] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is kept, and printed.")] = "",
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help=f"The baseline in {_KEPT}.")] = None,
    quiet: QuietOption = False,
) -> int:
    """Let a finding be new or worse from now on, for a reason.

    Exit code: 0 done, 2 the call or a file is wrong.

    \b
    Example:
      tracemine baseline accept decoder 80c2800cc9860f75 --reason "ships in Q3, PERF-123"
      tracemine baseline accept --name decoder 80c2 --reason "ships in Q3, PERF-123"
    """
    from tracemine.comparison.baseline import accept as accepting
    from tracemine.comparison.baseline import file_meant, file_of, read_baseline, write_baseline

    if (name is None) == (fingerprint is None):
        raise UsageError(
            "baseline accept: a baseline and a fingerprint are needed, each once",
            hint='tracemine baseline accept NAME FINGERPRINT --reason "…"',
        )
    if name is not None:
        _check_name(name)
    place = file_meant(Path(file)) if name is None else file_of(name)
    found = accepting(read_baseline(place), fingerprint or file, reason)
    write_baseline(found, place)
    if not quiet:
        say(f"{place}: {count_text(len(found.accepted), 'finding')} accepted")
    return 0


@app.command("list", short_help="List the baselines that are kept by name.")
def list_all(
    name: Annotated[str | None, option("baseline.name")] = None,
    form: Annotated[str, typer.Option("--format", "-f", metavar="|".join(_FORMATS), help="What to print.")] = "text",
) -> int:
    """List the baselines in .tracemine/: of what each is, and how much it accepts.

    Exit code: 0 done, 2 the call or a file is wrong.

    \b
    Example:
      tracemine baseline list
      tracemine baseline list --name decoder
    """
    from tracemine.comparison.baseline import file_of, kept_in, read_baseline

    check_format(form, _FORMATS)
    if name is not None:
        _check_name(name)
    each = list(kept_in()) if name is None else [(file_of(name), read_baseline(file_of(name)))]
    rows = [(file, one) for file, one in each if not isinstance(one, TracemineError)]
    for _, one in each:
        if isinstance(one, TracemineError):
            say_error(one)
    if form == "json":
        printed("".join(json_text(json.dumps(_facts(file, one))) + "\n" for file, one in rows))
    else:
        printed("".join(f"{text}\n" for text in _table(rows, accepted=name is not None)))
    return UsageError.exit_code if len(rows) < len(each) else 0


def _facts(file: Path, one: Baseline) -> dict[str, Any]:
    """Return what is listed of a baseline. Its step is unprofiled where that is known, else as recorded."""
    about = one.about
    step_ns = about.span_ns if about.unprofiled_ns is None else about.unprofiled_ns.mid
    return {
        "name": one.project,
        "file": str(file),
        "gpu": about.gpu,
        "step_ns": step_ns if about.steps else None,
        "findings": len(one.findings),
        "accepted": [{"fingerprint": each.fingerprint, "reason": each.reason} for each in one.accepted],
        "tracemine": one.tracemine,
    }


def _table(rows: list[tuple[Path, Baseline]], *, accepted: bool) -> list[str]:
    """Return a line for each baseline; accepted: also for each finding that it accepts."""
    if not rows:
        return ["No baseline is kept here: tracemine scan TRACE --save-baseline NAME"]
    lines = [f"{'name':<24} {'step':>10} {'findings':>8} {'accepted':>8}  gpu, file"]
    for file, one in rows:
        facts = _facts(file, one)
        step = "–" if facts["step_ns"] is None else time_text(facts["step_ns"])
        gpu, where = line(facts["gpu"] or "GPU not named", longest=40), line(str(file))
        counts = f"{facts['findings']:>8} {len(one.accepted):>8}"
        lines.append(f"{line(one.project, longest=24):<24} {step:>10} {counts}  {gpu}, {where}")
        lines += [f"  {each.fingerprint}  {line(each.reason)}" for each in one.accepted if accepted]
    return lines
