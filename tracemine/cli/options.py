"""Options that several commands have, and those of scan."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from tracemine.cli.complete import complete_gpu, complete_report, complete_rule
from tracemine.cli.console import say_lines
from tracemine.cli.gates import SEVERITIES
from tracemine.errors import UsageError
from tracemine.report import PERFETTO, REPORTS

PathsArgument = Annotated[
    list[str],
    typer.Argument(metavar="PATH", help="Traces, timelines, folders of them, or patterns; - for standard input."),
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        metavar="|".join((*REPORTS, PERFETTO)),
        help="What to print.",
        show_default=True,
        autocompletion=complete_report,
    ),
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead.")
]
TopOption = Annotated[int, typer.Option(metavar="N", help="Print so many findings, 0 for all. JSON and HTML have all.")]
ListTopOption = Annotated[
    int | None,
    typer.Option(metavar="N", help="List so many findings, 0 for all; 10 with --all. JSON and HTML have all."),
]
AllOption = Annotated[
    bool, typer.Option("--all", help="List findings with cost, place and fix, not the first screen alone.")
]
FindingOption = Annotated[
    str | None,
    typer.Option("--finding", metavar="N|FINGERPRINT", help="This finding alone: its number in scan, or first digits."),
]
MinSavingOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME|%",
        help="Show no finding that saves less over the trace: 0.1ms, 50us, 1%. Default: 1% of the unprofiled step "
        "or of GPU time. JSON has the others too, marked as not reported.",
    ),
]
FailOnOption = Annotated[
    str | None,
    typer.Option(
        metavar="|".join((*reversed(SEVERITIES), "TIME", "%")),
        help="Exit with 1 if a finding is so severe (high: saves 5% of the unprofiled step, medium: 1%), or saves so "
        "much; several with commas between them. With --baseline: as in diff.",
    ),
]
GPUOption = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        metavar="NAME",
        help="Estimate for this GPU where the trace's own is not known: h100, H100 PCIe, mi300x.",
        autocompletion=complete_gpu,
    ),
]
RulesOption = Annotated[
    list[Path] | None,
    typer.Option("--rules", metavar="DIR", help="Further rules: a folder of rule folders, or one. May be repeated."),
]
RayOption = Annotated[
    str | None, typer.Option("--ray", metavar="ADDRESS", help="Run on this Ray cluster: auto, ray://head:10001.")
]
RankOption = Annotated[
    str | None, typer.Option("--rank", metavar="N|all", help="Of a job of many ranks this one alone, or each alone.")
]
RuleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        metavar="RULE",
        help="Look for this rule alone: a name, or a pattern such as '*_unfused'. May be repeated.",
        autocompletion=complete_rule,
    ),
]
SkipOption = Annotated[
    list[str] | None,
    typer.Option(
        "--skip",
        metavar="RULE",
        help="Do not look for this rule, a name or a pattern; what it would claim is free for others. May be repeated.",
        autocompletion=complete_rule,
    ),
]
ExecutionTraceOption = Annotated[
    Path | None,
    typer.Option(
        "--et",
        "--layers",
        "--model",
        metavar="FILE",
        help="What says how the recording's parts are joined, where it lies elsewhere: the execution trace of the same "
        "run, an engine's layers (TensorRT), the optimised model (ONNX Runtime).",
    ),
]
GraphCaptureOption = Annotated[
    Path | None,
    typer.Option(
        "--graph-capture",
        metavar="TRACE",
        help="A trace of the same program capturing its CUDA graphs: replayed kernels get the operators it names.",
    ),
]
SourceOption = Annotated[
    Path | None,
    typer.Option(
        "--source",
        metavar="FOLDER",
        help="The program's source, to name lines within functions: profilers record where a function begins.",
        exists=True,
        file_okay=False,
    ),
]
CountersOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--ncu",
        metavar="REPORT",
        help="A report of Nsight Compute (.ncu-rep, or its CSV) of the same program. May be repeated.",
    ),
]
EvidenceOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--evidence",
        metavar="DIR",
        help="Verdicts that verify wrote, or what reproductions printed: a folder of them, or a file. May be repeated.",
    ),
]
CalibrationOption = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        metavar="FILE",
        help="What `tracemine calibrate` wrote, for traces of that GPU. Default: what it wrote into your data folder, "
        "else what comes with tracemine.",
    ),
]
TablesOption = Annotated[
    Path | None,
    typer.Option(
        "--parquet",
        metavar="DIR",
        help="Also keep the trace and its findings as Parquet tables that join; a timeline there is replaced.",
    ),
]
WhyNotOption = Annotated[
    bool, typer.Option("--why-not", help="Also say what shares data and is not one kernel, and why.")
]
FindingsArgument = Annotated[
    Path, typer.Argument(metavar="FINDINGS.json|TRACE", help="What scan printed as JSON, or a trace.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no notes on standard error.")]
NoColorOption = Annotated[
    bool, typer.Option("--no-color", help="No colours; NO_COLOR=1 does the same, FORCE_COLOR=1 the opposite.")
]


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
