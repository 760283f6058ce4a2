"""Options that several commands have, and those of scan."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from tracemine.cli.complete import complete_gpu, complete_report, complete_rule
from tracemine.cli.console import say_lines
from tracemine.cli.described import argument, option
from tracemine.cli.gates import SEVERITIES
from tracemine.errors import UsageError
from tracemine.report import PERFETTO, REPORTS

PathsArgument = Annotated[list[str], argument("options.paths")]
FormatOption = Annotated[
    str, option("options.format", metavar="|".join((*REPORTS, PERFETTO)), autocompletion=complete_report)
]
OutputOption = Annotated[Path | None, option("options.output")]
TopOption = Annotated[int, typer.Option(metavar="N", help="Print so many findings, 0 for all. JSON and HTML have all.")]
ListTopOption = Annotated[int | None, option("options.list_top")]
AllOption = Annotated[bool, option("options.all")]
FindingOption = Annotated[str | None, option("options.finding")]
MinSavingOption = Annotated[str | None, option("options.min_saving")]
FailOnOption = Annotated[str | None, option("options.fail_on", metavar="|".join((*reversed(SEVERITIES), "TIME", "%")))]
GPUOption = Annotated[str | None, option("options.gpu", autocompletion=complete_gpu)]
RulesOption = Annotated[list[Path] | None, option("options.rules")]
RayOption = Annotated[str | None, option("options.ray")]
RankOption = Annotated[str | None, option("options.rank")]
RuleOption = Annotated[list[str] | None, option("options.rule", autocompletion=complete_rule)]
SkipOption = Annotated[list[str] | None, option("options.skip", autocompletion=complete_rule)]
ExecutionTraceOption = Annotated[Path | None, option("options.execution_trace")]
GraphCaptureOption = Annotated[Path | None, option("options.graph_capture")]
SourceOption = Annotated[Path | None, option("options.source")]
CountersOption = Annotated[list[Path] | None, option("options.counters")]
EvidenceOption = Annotated[list[Path] | None, option("options.evidence")]
CalibrationOption = Annotated[Path | None, option("options.calibration")]
TablesOption = Annotated[Path | None, option("options.tables")]
WhyNotOption = Annotated[bool, option("options.why_not")]
FindingsArgument = Annotated[Path, argument("options.findings")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no notes on standard error.")]
NoColorOption = Annotated[bool, option("options.no_color")]


def group_help(context: typer.Context) -> int:
    """Print the help of a group of commands where none of them is named. Return the exit code."""
    if context.invoked_subcommand is not None:
        return 0
    say_lines(context.get_help().splitlines())
    return UsageError.exit_code


LISTED = 10  # findings, where nothing else is asked for


def check_top(top: int, all_of_them: str) -> None:
    """Raise UsageError where --top is negative. all_of_them: what 0 does."""
    if top < 0:
        raise UsageError(f"--top: {top} is negative", hint=f"0 {all_of_them}")


def check_format(name: str, known: Collection[str], more: str = "") -> None:
    """Raise UsageError for a report that is none of those that are known. more: what else a hint says."""
    if name not in known:
        raise UsageError(f"--format: there is no report {name!r}", hint=f"there are: {', '.join(known)}{more}")
