"""tracemine scan: from traces, and findings that were kept, to reports.

scan --format perfetto: a trace with its findings as slices over it, one file to open in ui.perfetto.dev.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from tracemine.cli.baseline import Kept, SaveBaselineOption, place_of
from tracemine.cli.console import options, say, say_error, write
from tracemine.cli.findings import judged, say_verdicts, stored_in
from tracemine.cli.gates import BaselineOption, Gate, scan_gate
from tracemine.cli.job import drawn_job, job_of, of_rank
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
    RankOption,
    RayOption,
    RuleOption,
    RulesOption,
    SkipOption,
    SourceOption,
    TablesOption,
    WhyNotOption,
    check_top,
)
from tracemine.cli.request import FoundIn, ScanRequest, all_traces, asked, found_in
from tracemine.collector import collected_between
from tracemine.errors import Location, TracemineError, UsageError
from tracemine.files import write_file, write_pieces
from tracemine.report import PERFETTO, PICTURED, REPORTS, Drawing, render_page, renderer
from tracemine.units import count_text

if TYPE_CHECKING:
    from tracemine.findings.record import Scan

FAIL_ON_REACHED = 1
# Options whose file belongs to one trace.
_OF_ONE = frozenset({"--et", "--graph-capture", "--parquet", f"--format {PERFETTO}", "--save-baseline"})


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
    source: SourceOption = None,
    counters: CountersOption = None,
    evidence: EvidenceOption = None,
    calibration: CalibrationOption = None,
    baseline: BaselineOption = None,
    save_baseline: SaveBaselineOption = None,
    tables: TablesOption = None,
    why_not: WhyNotOption = False,
    rank: RankOption = None,
    ray: RayOption = None,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
) -> int:
    """Say on one screen what bounds the step and what to change first; --all lists everything that was found.

    `scan` may be left out where a file is named. Several traces: one after the other (JSON: a line each); ranks as one.
    Findings that were kept as JSON or HTML need no trace: they are printed again, with the verdicts of --evidence.

    Exit code: 0 done, 1 --fail-on reached, 2 the call or a trace is wrong.

    \b
    Examples:
      tracemine scan runs/ --format json -o findings.jsonl
      tracemine scan trace.json.gz --et et.json.gz --format html -o report.html
      tracemine scan trace.json.gz --format perfetto -o both.json.gz
      curl -s https://host/trace.json.gz | tracemine scan -
    """
    _check(report, output, top)
    gate, kept = scan_gate(baseline, fail_on), None if save_baseline is None else place_of(save_baseline)
    request = asked(
        quiet=quiet, gpu=gpu, rules=rules, rule=rule, skip=skip, min_saving=min_saving, evidence=evidence,
        calibration=calibration, counters=counters, why_not=why_not, execution_trace=execution_trace, source=source,
        graph_capture=graph_capture, tables=tables, pictured=report in (*PICTURED, PERFETTO),
    )  # fmt: skip
    drawn = _Drawn(report, output, drawing(output, top, whole=every or why_not, no_color=no_color), kept, quiet)
    given = {
        "--gpu": gpu, "--rules": rules, "--rule": rule, "--skip": skip, "--min-saving": min_saving, "--source": source,
        "--calibration": calibration, "--ncu": counters, "--et": execution_trace, "--graph-capture": graph_capture,
        "--parquet": tables, f"--format {PERFETTO}": report == PERFETTO, "--save-baseline": save_baseline,
    }  # fmt: skip
    named = [name for name, value in given.items() if value]
    sources = of_rank(_sources(paths, request, [name for name in named if name != "--save-baseline"]), rank)
    if job := job_of(paths, sources, request, report, (*named, baseline, fail_on, rank), ray):
        return drawn_job(job, report, output, drawn.how)
    _check_one([name for name in named if name in _OF_ONE], len(sources))
    return drawn.exit_code(_each(sources, request), gate)


def _sources(
    given: Sequence[str], request: ScanRequest, of_traces: Sequence[str]
) -> Iterator[Path | Scan | TracemineError]:
    """Yield the traces that arguments name, each once, and the scans that were kept; what is wrong in its place.

    of_traces: options that were given, and that say how to look at a trace.
    """
    seen: set[Path] = set()
    for one in given:
        try:
            found = stored_in(Path(one))
        except TracemineError as error:
            yield error
            continue
        if found and of_traces:
            says = f"{of_traces[0]}: is of a trace, and this holds findings"
            yield UsageError(says, where=Location(one), hint="name the trace they were found in, or leave it out")
        elif found:
            yield from (scan for _, scan in found)
            if request.options.evidence is None and not request.quiet:
                for file in dict.fromkeys(file for file, _ in found):
                    say_verdicts(file)
        else:
            yield from all_traces([one], quiet=request.quiet, seen=seen)


class _Drawn:
    """The reports of a call: printed one by one, or written to one file or page at the end."""

    def __init__(self, report: str, file: Path | None, how: Drawing, kept: Kept | None, quiet: bool) -> None:
        self.report, self.file, self.how, self.quiet = report, file, how, quiet
        self.kept = kept  # where the one scan is kept, for later ones to be compared with
        self.text = StringIO()  # for the file
        self.count = 0
        self.pages: list[tuple[Scan, Drawing]] = []  # what one page is of

    def add(self, found: FoundIn, gate: Gate) -> bool:
        """Draw a report. Return whether it makes the call fail."""
        text, how = StringIO(), replace(self.how, picture=found.picture, frames=found.frames)
        judged = gate(found.scan, how)
        if self.report in PICTURED:
            self.pages.append((found.scan, how))
        elif self.report == PERFETTO and self.file is not None:
            with_findings(found, self.file, quiet=self.quiet)
        else:
            text.write("\n\n" if self.count and self.report != "json" else "")
            judged.draw(self.report, found.scan, text, how)
        if self.kept is not None:
            self.kept.write(found.scan, quiet=self.quiet)
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
        if self.pages:
            text = StringIO()
            render_page(self.report, self.pages, text)
            (self.text.write if self.file else write)(text.getvalue())
        if self.file and self.count and self.report != PERFETTO:
            write_file(self.file, self.text.getvalue())
        return UsageError.exit_code if failed else FAIL_ON_REACHED if shut else 0


def _each(sources: Sequence[Path | Scan | TracemineError], request: ScanRequest) -> Iterator[FoundIn | TracemineError]:
    """Yield what is found in each trace, and what was found before; what is wrong with one in its place."""
    for number, one in enumerate(collected_between(sources), 1):
        position = f"{number} of {len(sources)} · " if len(sources) > 1 else ""
        try:
            if isinstance(one, TracemineError):
                yield one
            elif isinstance(one, Path):
                yield found_in(one, request, position=position)
            else:
                yield FoundIn(judged(one, request.options.evidence))
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
    check_page(name, output)
    if name == PERFETTO and output is None:
        raise UsageError(f"--format {name}: is a trace to open, and no file is named", hint="-o findings.json.gz")
    if name not in (*REPORTS, PERFETTO):
        try:
            renderer(name)
        except TracemineError as error:
            raise UsageError(f"--format: {error.message}", hint=error.hint) from None


def check_page(name: str, output: Path | None) -> None:
    """Raises UsageError where a page would go to a terminal."""
    if name in PICTURED and output is None and sys.stdout.isatty():
        raise UsageError(f"--format {name}: is a page, and this is a terminal", hint="-o report.html writes it")


def _check_one(options: Sequence[str], count: int) -> None:
    """Raises UsageError where there is an option whose file belongs to one trace, and not one is named."""
    if options and count != 1:
        ways = {"--et": ", or put each into a folder as trace.json and et.json"}
        raise UsageError(
            f"{options[0]}: belongs to one trace, and {count} are named",
            hint=f"scan them one by one{ways.get(options[0], '')}",
        )


def with_findings(found: FoundIn, file: Path, *, quiet: bool) -> None:
    """Write a trace's own events and a track for each rule, a slice for each occurrence; `.gz` packs them.

    Findings alone where the trace is no file of torch.profiler's, or came by standard input: their times are the same.
    """
    from tracemine.report.overlay import events, overlay

    assert found.picture is not None  # noqa: S101 - it was asked for
    with ExitStack() as stack:
        pieces = _merged(found.trace, events(found.scan, found.picture.activities), stack)
        merged = pieces is not None
        if pieces is None:
            pieces = overlay(found.scan, found.picture.activities)
        write_pieces(file, _packed(pieces) if file.suffix == ".gz" else pieces)
    if not quiet:
        what = count_text(len(found.scan.reported), "finding")
        say(f"{file}: {what}{' and the trace' if merged else ''}; open it in https://ui.perfetto.dev")


def _merged(trace: Path | None, events: Iterator[bytes], stack: ExitStack) -> Iterator[bytes] | None:
    """Return the trace's own text with further events; None where that is no Chrome trace that lies in a file."""
    from tracemine.formats import format_of, recording_in
    from tracemine.formats.kineto.insert import with_events
    from tracemine.formats.source import FileSource

    recorded = None if trace is None else recording_in(trace) if trace.is_dir() else (trace, None)
    if recorded is None or not recorded[0].is_file():
        return None
    source = stack.enter_context(FileSource(recorded[0]))
    return with_events(source, events) if format_of(source).name == "kineto" else None


def _packed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield pieces as gzip."""
    packer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()
