"""tracemine scan: from traces to reports."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from tracemine.cli.console import options, say, say_error, write
from tracemine.cli.counters import said_reports
from tracemine.cli.gates import BaselineOption, Gate, scan_gate
from tracemine.cli.options import (
    CalibrationOption,
    CountersOption,
    EvidenceOption,
    ExecutionTraceOption,
    FailOnOption,
    FormatOption,
    GPUOption,
    GraphCaptureOption,
    MinSavingOption,
    NoColorOption,
    OutputOption,
    PathsArgument,
    QuietOption,
    RuleOption,
    RulesOption,
    SkipOption,
    TablesOption,
    TopOption,
    WhyNotOption,
)
from tracemine.cli.progress import reading
from tracemine.cli.standard_input import STDIN, from_standard_input
from tracemine.cli.thresholds import parse_threshold
from tracemine.errors import InputError, Location, TracemineError, UsageError
from tracemine.files import write_file
from tracemine.report import PICTURED, REPORTS, Drawing, render, renderer
from tracemine.units import count_text

if TYPE_CHECKING:
    from tracemine.counters import Report
    from tracemine.devices import Device
    from tracemine.findings import Scan
    from tracemine.matching import Rule
    from tracemine.perfmodel import UserCalibration
    from tracemine.pipeline import Options
    from tracemine.report.picture import Picture
    from tracemine.verdicts.evidence import Evidence

FAIL_ON_REACHED = 1
FLEET_PAGE = "a page over many: tracemine fleet PATH… -o DATASET, then tracemine fleet report DATASET --format html"


def scan(
    paths: PathsArgument,
    report: FormatOption = "text",
    output: OutputOption = None,
    top: TopOption = 10,
    min_saving: MinSavingOption = None,
    fail_on: FailOnOption = None,
    gpu: GPUOption = None,
    rules: RulesOption = None,
    rule: RuleOption = None,
    skip: SkipOption = None,
    execution_trace: ExecutionTraceOption = None,
    graph_capture: GraphCaptureOption = None,
    counters: CountersOption = None,
    evidence: EvidenceOption = None,
    calibration: CalibrationOption = None,
    baseline: BaselineOption = None,
    tables: TablesOption = None,
    why_not: WhyNotOption = False,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
) -> int:
    """Find what is worth fusing and which gaps are worth closing, most first.

    `scan` may be left out where a file is named. Several traces are reported one after the other; as JSON, one object a
    line each. One that cannot be read does not stop the others.

    Exit code: 0 done, 1 --fail-on reached, 2 the call or a trace is wrong.

    \b
    Examples:
      tracemine scan trace.json.gz
      tracemine scan runs/ --format json -o findings.jsonl
      tracemine scan trace.json.gz --format html -o report.html
      tracemine scan trace.json.gz --fail-on high --min-saving 0.5%
      tracemine scan trace.json.gz --et et.json.gz --why-not
      tracemine scan trace.json.gz --rule '*_unfused' --skip rotary_unfused
      tracemine scan trace.json.gz --ncu report.ncu-rep --evidence results/
      tracemine scan trace.json.gz --baseline decoder.json --fail-on new,worse
      curl -s https://host/trace.json.gz | tracemine scan -
    """
    _check(report, output, top)
    gate = scan_gate(baseline, fail_on)
    chosen = rules_asked(rules, rule, skip)
    asked = options_asked(min_saving, gpu, chosen, evidence, calibration, why_not=why_not, quiet=quiet)
    beside = Beside(execution_trace, graph_capture, reports_in(counters or (), quiet=quiet), tables)
    drawn = _Drawn(report, output, options(StringIO() if output else sys.stdout, top=top, no_color=no_color))
    traces: Iterable[Path | TracemineError] = beside.checked(all_traces(paths, quiet=quiet))
    if report in PICTURED:
        traces = [_only(f"--format {report}", traces)]
    scan_one = partial(found_in, asked=asked, beside=beside, quiet=quiet, pictured=report in PICTURED)
    return drawn.exit_code(_each(traces, scan_one), gate)


@dataclass(frozen=True, slots=True)
class FoundIn:
    """What was found in a trace, and what a report draws of the trace itself."""

    scan: Scan
    picture: Picture | None = None


@dataclass(frozen=True, slots=True)
class Beside:
    """Files that belong to one trace, and what is written with it."""

    execution_trace: Path | None = None
    graph_capture: Path | None = None
    reports: Sequence[Report] = ()  # of Nsight Compute
    tables: Path | None = None

    def checked(self, paths: Iterable[Path | TracemineError]) -> Iterable[Path | TracemineError]:
        """Return the traces. Raises UsageError where they are several, and a file belongs to one."""
        given = {"--et": self.execution_trace, "--graph-capture": self.graph_capture, "--parquet": self.tables}
        for option, path in given.items():
            if path is not None:
                paths = [_only(option, paths)]
        return paths


def options_asked(
    min_saving: str | None,
    gpu: str | None,
    rules: Sequence[Rule],
    evidence: Sequence[Path] | None,
    calibration: Path | None,
    *,
    why_not: bool,
    quiet: bool,
) -> Options:
    """Return what is asked of every trace. Raises TracemineError where an option's value or file is wrong."""
    from tracemine.pipeline import Options

    return Options(
        rules=rules,
        device=None if gpu is None else device_named(gpu),
        threshold=None if min_saving is None else parse_threshold("--min-saving", min_saving),
        evidence=evidence_in(evidence or (), quiet=quiet),
        why_not=why_not,
        calibrations=calibrations_in(calibration, quiet=quiet),
    )


def rules_asked(
    folders: Sequence[Path] | None, only: Sequence[str] | None = None, skip: Sequence[str] | None = None
) -> tuple[Rule, ...]:
    """Return the rules that --rules, --rule and --skip leave. Raises RuleError, UsageError."""
    from tracemine.matching import load_rules
    from tracemine.matching.selection import selected

    return selected(load_rules(*(folders or ())), only or (), skip or ())


@dataclass(slots=True)
class _Drawn:
    """The reports of a call: printed one by one, or written to one file at the end."""

    report: str
    file: Path | None
    how: Drawing
    text: StringIO = field(default_factory=StringIO)  # for the file
    count: int = 0

    def add(self, found: FoundIn, gate: Gate) -> bool:
        """Draw a report. Return whether it makes the call fail."""
        text = StringIO()
        if self.count and self.report != "json":
            text.write("\n\n")
        render(self.report, found.scan, text, replace(self.how, picture=found.picture))
        shut = gate(found.scan, self.report, text, self.how)
        (self.text.write if self.file else write)(text.getvalue())
        self.count += 1
        return shut

    def exit_code(self, each: Iterator[FoundIn | TracemineError], gate: Gate) -> int:
        """Draw all, and say what is wrong with those that are none."""
        failed = shut = False
        for found in each:
            if isinstance(found, TracemineError):
                say_error(found)
                failed = True
            else:
                shut |= self.add(found, gate)
        if self.file and self.count:
            write_file(self.file, self.text.getvalue())
        return UsageError.exit_code if failed else FAIL_ON_REACHED if shut else 0


def _each(
    paths: Iterable[Path | TracemineError], scan_one: Callable[..., FoundIn]
) -> Iterator[FoundIn | TracemineError]:
    """Yield what is found in each trace; what is wrong with one in its place."""
    several = list(paths)
    for number, path in enumerate(several, 1):
        position = f"{number} of {len(several)} · " if len(several) > 1 else ""
        try:
            yield path if isinstance(path, TracemineError) else scan_one(path, position=position)
        except TracemineError as error:
            yield error


def _check(report: str, output: Path | None, top: int) -> None:
    check_report(report, output)
    if top < 0:
        raise UsageError(f"--top: {top} is negative", hint="0 prints all findings")


def check_report(name: str, output: Path | None) -> None:
    """Raises UsageError before any trace is read: there is no such report, it is another package's and broken, or it
    is a page, and would go to a terminal.
    """
    if name in PICTURED and output is None and sys.stdout.isatty():
        raise UsageError(f"--format {name}: is a page, and this is a terminal", hint="-o report.html writes it")
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
    """Yield every trace named, each once; what is wrong with an argument in its place."""
    from tracemine.formats.discover import traces

    seen: set[Path] = set()
    for given in paths:
        if given == "-":
            yield STDIN
            continue
        try:
            for path in traces(given, None if quiet else say):
                if path not in seen:
                    seen.add(path)
                    yield path
        except TracemineError as error:
            yield error
        except OSError as error:
            yield InputError(f"cannot be read: {error.strerror}", where=Location(given))


def one_trace(given: str, *, quiet: bool) -> Path:
    """Return the one trace that an argument names. Raises TracemineError where it is not one."""
    paths = list(all_traces([given], quiet=quiet))
    if len(paths) != 1:
        raise UsageError(f"{given}: {count_text(len(paths), 'trace')}, and one is looked at", hint="name one file")
    if isinstance(paths[0], TracemineError):
        raise paths[0]
    return paths[0]


def _only(option: str, paths: Iterable[Path | TracemineError]) -> Path | TracemineError:
    """Return the one trace that an option's file belongs to."""
    found = list(paths)
    if len(found) != 1:
        ways = {"--et": ", or put each into a folder as trace.json and et.json", "--format html": f"; {FLEET_PAGE}"}
        raise UsageError(
            f"{option}: belongs to one trace, and {len(found)} are named",
            hint=f"scan them one by one{ways.get(option, '')}",
        )
    return found[0]


def reports_in(paths: Sequence[Path], *, quiet: bool) -> Sequence[Report]:
    """Return the reports of Nsight Compute, each read once; what was left out of them is said."""
    if not paths:
        return ()
    return [report for path in paths for report in said_reports(path, quiet=quiet)]


def calibrations_in(named: Path | None, *, quiet: bool) -> Sequence[UserCalibration]:
    """Return calibrations that did not come with the package, read once; files that are none are said."""
    from tracemine.perfmodel import of_this_user, read_measured

    given = () if named is None else (read_measured(named),)
    own, notes = of_this_user()
    if not quiet:
        for note in notes:
            say(note)
    return (*given, *own)


def evidence_in(paths: Sequence[Path], *, quiet: bool) -> Evidence | None:
    """Return the verdicts of files and folders, read once; what was left out of them is said."""
    if not paths:
        return None
    from tracemine.verdicts.evidence import read_evidence

    evidence = read_evidence(paths)
    if not quiet:
        for note in evidence.notes:
            say(note)
    return evidence


def scanned(path: Path, asked: Options, *, beside: Beside | None = None, quiet: bool) -> Scan:
    """Read one trace with a progress bar, and mine it, as `found_in`."""
    return found_in(path, asked, beside=beside, quiet=quiet).scan


def found_in(
    path: Path, asked: Options, *, beside: Beside | None = None, quiet: bool, position: str = "", pictured: bool = False
) -> FoundIn:
    """Read one trace with a progress bar, and mine it; keep it in the folder that `beside` names.

    position: of this trace among several, for the bar. pictured: also what is drawn of it. Raises TracemineError where
    it cannot be.
    """
    from tracemine.pipeline import analyse, mined, write_tables

    beside = beside or Beside()
    with from_standard_input(path) as file, reading(path, quiet=quiet, position=position) as progress:
        analysis = analyse(
            file,
            execution_trace=beside.execution_trace,
            graph_capture=beside.graph_capture,
            reports=beside.reports,
            progress=progress,
        )
    if file is not path:
        analysis = replace(analysis, path=str(path))
    known, given = analysis.device, asked.device
    if known is not None and given is not None and known is not given and not quiet:
        say(f"{path}: the trace says {known.title}; --gpu is for traces whose GPU is not known")
    found = mined(analysis, asked)
    if beside.tables is not None:
        write_tables(analysis, found, beside.tables)
    if not pictured:
        return FoundIn(found)
    from tracemine.api.pictures import picture_of

    return FoundIn(found, picture_of(analysis, found, asked))
