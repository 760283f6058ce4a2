"""tracemine scan: from traces to reports."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracemine.cli.console import options, say, say_error, write
from tracemine.cli.counters import said_reports
from tracemine.cli.gates import BaselineOption, watch
from tracemine.cli.progress import reading
from tracemine.cli.thresholds import SEVERITIES, parse_fail_on, parse_threshold
from tracemine.errors import InputError, Location, TracemineError, UsageError
from tracemine.files import write_file
from tracemine.report import REPORTS, render, renderer

if TYPE_CHECKING:
    from tracemine.counters import Report
    from tracemine.devices import Device
    from tracemine.findings import Scan
    from tracemine.perfmodel import UserCalibration
    from tracemine.pipeline import Options
    from tracemine.verdicts.evidence import Evidence

FAIL_ON_REACHED = 1
RulesOption = Annotated[
    list[Path] | None,
    typer.Option("--rules", metavar="DIR", help="Further rules: a folder of rule folders, or one. May be repeated."),
]
ExecutionTraceOption = Annotated[
    Path | None, typer.Option("--et", metavar="ET", help="The execution trace of the same run: dataflow is known then.")
]
GraphCaptureOption = Annotated[
    Path | None,
    typer.Option(
        "--graph-capture",
        metavar="TRACE",
        help="A trace of the same program capturing its CUDA graphs: replayed kernels get the operators it names.",
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
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no notes on standard error.")]


def scan(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH", help="Traces, timelines, folders of them, or patterns.")
    ],
    report: Annotated[
        str, typer.Option("--format", "-f", metavar="|".join(REPORTS), help="What to print.", show_default=True)
    ] = "text",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead.")
    ] = None,
    top: Annotated[
        int, typer.Option(metavar="N", help="Print so many findings, 0 for all. JSON always has all of them.")
    ] = 10,
    min_saving: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|%",
            help="Show no finding that saves less over the trace: 0.1ms, 50us, 1%. Default: 1% of the unprofiled step "
            "or of GPU time. JSON has the others too, marked as not reported.",
        ),
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="|".join((*reversed(SEVERITIES), "TIME", "%")),
            help="Exit with 1 if a finding is so severe, or saves so much; several with commas between them. With "
            "--baseline: as in diff.",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Estimate for this GPU where the trace's own is not known: h100, H100 PCIe, mi300x."
        ),
    ] = None,
    rules: RulesOption = None,
    execution_trace: ExecutionTraceOption = None,
    graph_capture: GraphCaptureOption = None,
    counters: CountersOption = None,
    evidence: EvidenceOption = None,
    calibration: CalibrationOption = None,
    baseline: BaselineOption = None,
    tables: Annotated[
        Path | None,
        typer.Option(
            "--parquet",
            metavar="DIR",
            help="Also keep the trace and its findings as Parquet tables that join; a timeline there is replaced.",
        ),
    ] = None,
    why_not: Annotated[
        bool, typer.Option("--why-not", help="Also say what shares data and is not one kernel, and why.")
    ] = False,
    quiet: QuietOption = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours; NO_COLOR=1 does the same.")] = False,
) -> int:
    """Say what is worth fusing and which gaps are worth closing, most first.

    Several traces are reported one after the other; as JSON, one object a line each. One that cannot be read
    does not stop the others.

    Exit code: 0 done, 1 --fail-on reached, 2 the call or a trace is wrong.

    \b
    Examples:
      tracemine scan trace.json.gz
      tracemine scan runs/ --format json -o findings.jsonl
      tracemine scan trace.json.gz --fail-on high --min-saving 0.5%
      tracemine scan trace.json.gz --et et.json.gz --why-not
      tracemine scan replays.json.gz --graph-capture capture.json.gz
      tracemine scan trace.json.gz --ncu report.ncu-rep
      tracemine scan trace.json.gz --evidence results/
      tracemine scan trace.json.gz --baseline decoder.json --fail-on new,worse
      tracemine scan trace.json.gz --parquet timeline/
    """
    _check(report, top)
    threshold = None if min_saving is None else parse_threshold("--min-saving", min_saving)
    kept = None if baseline is None else watch(baseline, fail_on)
    reached = None if fail_on is None or kept is not None else parse_fail_on(fail_on)
    device = None if gpu is None else device_named(gpu)
    from tracemine.matching import load_rules
    from tracemine.pipeline import Options

    asked = Options(
        rules=load_rules(*(rules or ())),
        device=device,
        threshold=threshold,
        evidence=evidence_in(evidence or (), quiet=quiet),
        why_not=why_not,
        calibrations=calibrations_in(calibration, quiet=quiet),
    )
    reports = reports_in(counters or (), quiet=quiet)
    to_file = StringIO()
    how = options(to_file if output else sys.stdout, top=top, no_color=no_color)
    failed = failing = False
    printed = 0
    found_paths = all_traces(paths, quiet=quiet)
    for option, given in (("--et", execution_trace), ("--graph-capture", graph_capture), ("--parquet", tables)):
        if given is not None:
            found_paths = iter([_only(option, found_paths)])
    one = partial(
        scanned,
        asked=asked,
        execution_trace=execution_trace,
        graph_capture=graph_capture,
        reports=reports,
        tables=tables,
        quiet=quiet,
    )
    for found in _each(found_paths, one):
        if isinstance(found, TracemineError):
            say_error(found)
            failed = True
            continue
        text = StringIO()
        if printed and report != "json":
            text.write("\n\n")
        render(report, found, text, how)
        failing |= kept is not None and kept.reached(found, report, text, how)
        (to_file.write if output else write)(text.getvalue())
        failing |= reached is not None and reached(found)
        printed += 1
    if output and printed:
        write_file(output, to_file.getvalue())
    return UsageError.exit_code if failed else FAIL_ON_REACHED if failing else 0


def _each(paths: Iterator[Path | TracemineError], scan_one: Callable[[Path], Scan]) -> Iterator[Scan | TracemineError]:
    """Yield the scan of each trace; what is wrong with one in its place."""
    for path in paths:
        try:
            yield path if isinstance(path, TracemineError) else scan_one(path)
        except TracemineError as error:
            yield error


def _check(report: str, top: int) -> None:
    check_report(report)
    if top < 0:
        raise UsageError(f"--top: {top} is negative", hint="0 prints all findings")


def check_report(name: str) -> None:
    """Raises UsageError before any trace is read: there is no such report, or it is another package's and broken."""
    if name not in REPORTS:
        try:
            renderer(name)
        except TracemineError as error:
            raise UsageError(f"--format: {error.message}", hint=error.hint) from None


def device_named(name: str) -> Device:
    from tracemine import devices

    try:
        return devices.device_named(name)
    except UsageError as error:
        raise UsageError(f"--gpu: {error.message}", hint=error.hint) from None


def all_traces(paths: Sequence[str], *, quiet: bool) -> Iterator[Path | TracemineError]:
    """Every trace named, each once; what is wrong with an argument in its place."""
    from tracemine.formats.discover import traces

    seen: set[Path] = set()
    for given in paths:
        try:
            for path in traces(given, None if quiet else say):
                if path not in seen:
                    seen.add(path)
                    yield path
        except TracemineError as error:
            yield error
        except OSError as error:
            yield InputError(f"cannot be read: {error.strerror}", where=Location(given))


def _only(option: str, paths: Iterator[Path | TracemineError]) -> Path | TracemineError:
    """The one trace that an option's file belongs to."""
    found = list(paths)
    if len(found) != 1:
        raise UsageError(
            f"{option}: belongs to one trace, and {len(found)} are named",
            hint="scan them one by one"
            + (", or put each into a folder as trace.json and et.json" * (option == "--et")),
        )
    return found[0]


def reports_in(paths: Sequence[Path], *, quiet: bool) -> Sequence[Report]:
    """The reports of Nsight Compute, each read once; what was left out of them is said."""
    if not paths:
        return ()
    return [report for path in paths for report in said_reports(path, quiet=quiet)]


def calibrations_in(named: Path | None, *, quiet: bool) -> Sequence[UserCalibration]:
    """The calibrations that did not come with the package, read once; what is none in the user's folder is said."""
    from tracemine.perfmodel import of_this_user, read_measured

    given = () if named is None else (read_measured(named),)
    own, notes = of_this_user()
    if not quiet:
        for note in notes:
            say(note)
    return (*given, *own)


def evidence_in(paths: Sequence[Path], *, quiet: bool) -> Evidence | None:
    """The verdicts of files and folders, read once; what was left out of them is said."""
    if not paths:
        return None
    from tracemine.verdicts.evidence import read_evidence

    evidence = read_evidence(paths)
    if not quiet:
        for note in evidence.notes:
            say(note)
    return evidence


def scanned(
    path: Path,
    asked: Options,
    *,
    execution_trace: Path | None = None,
    graph_capture: Path | None = None,
    reports: Sequence[Report] = (),
    tables: Path | None = None,
    quiet: bool,
) -> Scan:
    """One trace, read with a progress bar and mined; kept in the folder `tables`, where one is named.

    Raises TracemineError where it cannot be.
    """
    from tracemine.pipeline import analyse, mined, write_tables

    with reading(path, quiet=quiet) as progress:
        analysis = analyse(
            path, execution_trace=execution_trace, graph_capture=graph_capture, reports=reports, progress=progress
        )
    known, given = analysis.device, asked.device
    if known is not None and given is not None and known is not given and not quiet:
        say(f"{path}: the trace says {known.title}; --gpu is for traces whose GPU is not known")
    found = mined(analysis, asked)
    if tables is not None:
        write_tables(analysis, found, tables)
    return found
