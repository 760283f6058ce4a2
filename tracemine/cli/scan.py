"""tracemine scan: from traces to reports."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path

from tracemine.cli.console import options, say_error, write
from tracemine.cli.gates import BaselineOption, Gate, scan_gate
from tracemine.cli.options import (
    LISTED,
    AllOption,
    CalibrationOption,
    CountersOption,
    EvidenceOption,
    ExecutionTraceOption,
    FailOnOption,
    FormatOption,
    GPUOption,
    GraphCaptureOption,
    ListTopOption,
    MinSavingOption,
    NoColorOption,
    OutputOption,
    PathsArgument,
    QuietOption,
    RuleOption,
    RulesOption,
    SkipOption,
    TablesOption,
    WhyNotOption,
    check_top,
)
from tracemine.cli.request import FoundIn, ScanRequest, all_traces, asked, found_in
from tracemine.errors import TracemineError, UsageError
from tracemine.files import write_file
from tracemine.report import PICTURED, REPORTS, Drawing, renderer

FAIL_ON_REACHED = 1
FLEET_PAGE = "a page over many: tracemine fleet PATH… -o DATASET, then tracemine fleet report DATASET --format html"


def scan(
    paths: PathsArgument,
    report: FormatOption = "text",
    output: OutputOption = None,
    every: AllOption = False,
    top: ListTopOption = None,
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
    """Say on one screen what bounds the step and what to change first; --all lists everything that was found.

    `scan` may be left out where a file is named. Several traces are reported one after the other; as JSON, one object a
    line each. One that cannot be read does not stop the others.

    Exit code: 0 done, 1 --fail-on reached, 2 the call or a trace is wrong.

    \b
    Examples:
      tracemine scan trace.json.gz
      tracemine scan trace.json.gz --all
      tracemine scan runs/ --format json -o findings.jsonl
      tracemine scan trace.json.gz --format html -o report.html
      tracemine scan trace.json.gz --fail-on high --min-saving 0.5%
      tracemine scan trace.json.gz --et et.json.gz --why-not
      tracemine scan trace.json.gz --ncu report.ncu-rep --evidence results/
      tracemine scan trace.json.gz --baseline decoder.json --fail-on new,worse
      curl -s https://host/trace.json.gz | tracemine scan -
    """
    _check(report, output, top)
    gate = scan_gate(baseline, fail_on)
    request = asked(
        quiet=quiet, gpu=gpu, rules=rules, rule=rule, skip=skip, min_saving=min_saving, evidence=evidence,
        calibration=calibration, counters=counters, why_not=why_not, execution_trace=execution_trace,
        graph_capture=graph_capture, tables=tables, pictured=report in PICTURED,
    )  # fmt: skip
    drawn = _Drawn(report, output, drawing(output, top, whole=every or why_not, no_color=no_color))
    traces: Iterable[Path | TracemineError] = all_traces(paths, quiet=quiet)
    of_one = {
        "--et": execution_trace,
        "--graph-capture": graph_capture,
        "--parquet": tables,
        f"--format {report}": report in PICTURED or None,
    }
    for option in (option for option, given in of_one.items() if given is not None):
        traces = [_only(option, traces)]
    return drawn.exit_code(_each(traces, request), gate)


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
        how = replace(self.how, picture=found.picture, frames=found.frames)
        judged = gate(found.scan, how)
        judged.draw(self.report, found.scan, text, how)
        (self.text.write if self.file else write)(text.getvalue())
        judged.say()
        self.count += 1
        return judged.failed

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


def _each(paths: Iterable[Path | TracemineError], request: ScanRequest) -> Iterator[FoundIn | TracemineError]:
    """Yield what is found in each trace; what is wrong with one in its place."""
    several = list(paths)
    for number, path in enumerate(several, 1):
        position = f"{number} of {len(several)} · " if len(several) > 1 else ""
        try:
            yield path if isinstance(path, TracemineError) else found_in(path, request, position=position)
        except TracemineError as error:
            yield error


def drawing(output: Path | None, top: int | None, *, whole: bool, no_color: bool) -> Drawing:
    """Return how to draw into a file or on the terminal: the first screen, or, where that is asked for, the list."""
    how = options(StringIO() if output else sys.stdout, top=LISTED if top is None else top, no_color=no_color)
    return replace(how, whole=whole or top is not None)


def _check(report: str, output: Path | None, top: int | None) -> None:
    check_report(report, output)
    check_top(top or 0, "prints all findings")


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
