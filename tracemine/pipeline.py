"""The one way from a trace to findings: the command line, `verify`, benchmarks and people's programs all take it.

analysis = analyse("trace.json.gz")          # the timeline, its dataflow, and what one kernel could do
scan = mined(analysis)                       # what the rules find in it
scan = pipeline.scan("trace.json.gz")        # both
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from tracemine.calls import calls_of
from tracemine.causes import Cause, columns_of, known, load_rules
from tracemine.collector import paused
from tracemine.counters import CounterReport, Counters, counters_table, match, with_stored
from tracemine.devices import Device
from tracemine.files import path_text
from tracemine.findings import Scan, device_of, find
from tracemine.findings.accounting import measure
from tracemine.findings.compile_losses import compile_losses
from tracemine.findings.measured import with_counters
from tracemine.findings.notes import gpu_name, sm_count
from tracemine.findings.statements import with_statements
from tracemine.findings.tables import FINDINGS, OCCURRENCES, findings_table, occurrences_table
from tracemine.findings.why_not import with_refusals
from tracemine.flow import activity_edges, flow
from tracemine.flow.record import Flow
from tracemine.formats import open_trace
from tracemine.formats.format import Progress
from tracemine.formats.graph_capture import with_known_captures
from tracemine.fusion import Groups, groups
from tracemine.matching import Rule, mine
from tracemine.matching.rule import of_producer
from tracemine.perfmodel import GPU, UserCalibration, chosen, of_this_user
from tracemine.rows import Rows, row_sets
from tracemine.timeline import Timeline, producer_of
from tracemine.units import Threshold, count_text

if TYPE_CHECKING:
    from tracemine.verdicts import Evidence

__all__ = ["Analysis", "ScanOptions", "analyse", "analysed", "mined", "scan", "write_tables"]


class Analysis(Struct, frozen=True, kw_only=True, dict=True):
    """A trace before any rule has looked at it."""

    path: str
    timeline: Timeline
    dataflow: Flow
    groups: Groups  # what one kernel could do
    reports: Sequence[CounterReport] = ()  # of Nsight Compute
    counters: Counters | None = None  # what they say of the trace's activities; None: no report was given
    execution_trace: str | None = None  # where one was named; None: none, or the one that lies next to the trace
    causes: Sequence[Cause] = field(default_factory=lambda: known().causes)

    @cached_property
    def rows(self) -> dict[str, Rows]:
        """The row sets that rules are matched against, by name."""
        columns, counters = columns_of(self.causes), self.counters
        return row_sets(self.timeline, self.groups, counters=counters, dataflow=self.dataflow, columns=columns)

    @property
    def rules(self) -> Sequence[Rule]:
        """The rules that are asked where no others are given."""
        return load_rules()

    @cached_property
    def device(self) -> Device | None:
        """The GPU that the trace names; None where it names none, or one that is not in the device table."""
        return device_of(self.timeline)


class ScanOptions(Struct, frozen=True, kw_only=True):
    """What is asked of a scan, the same for every trace."""

    rules: Sequence[Rule] | None = None  # None: those that tracemine ships
    device: Device | None = None  # for traces whose GPU is not known
    threshold: Threshold | None = None  # below which nothing is reported; None: as `find` says
    evidence: Evidence | None = None  # verdicts, whose measured savings take the place of predicted ones
    why_not: bool = False  # also what shares data and is not one kernel
    source: Path | None = None  # a folder with the program's source: for lines within functions
    calibrations: Sequence[UserCalibration] | None = None  # not the package's; None: those of the user's data folder


def analyse(
    path: Path | str,
    *,
    execution_trace: Path | str | None = None,
    graph_capture: Path | str | None = None,
    reports: Sequence[CounterReport] = (),
    progress: Progress | None = None,
) -> Analysis:
    """Read a trace and follow its dataflow.

    path, execution_trace, graph_capture, progress: as in `tracemine.formats.open_trace`. Where no capture is given, one
    that lies in the trace, or next to it under a name that says so, is taken if it fits. reports: what Nsight Compute
    counted of the same program (`tracemine.formats.ncu.read_counters`), besides the counters that lie in a timeline
    directory.

    Raises InputError where a path is no readable trace, TimelineError where a timeline directory is damaged.

    >>> analysis = analyse("fixtures/kineto/chain.json.gz")
    >>> analysis.timeline.activities.num_rows, len(analysis.groups)
    (8, 2)
    """
    timeline = open_trace(path, progress, execution_trace=execution_trace, graph_capture=graph_capture)
    if graph_capture is None:
        timeline = with_known_captures(timeline, Path(path), open_trace)
    reports = with_stored(reports, path, timeline)
    return analysed(timeline, path, execution_trace=execution_trace, reports=reports)


def analysed(
    timeline: Timeline,
    path: Path | str = "",
    *,
    execution_trace: Path | str | None = None,
    reports: Sequence[CounterReport] = (),
) -> Analysis:
    """Follow the dataflow of a timeline that was read already. Paths are only repeated in the scan."""
    with paused():  # lists of edges, an object each
        dataflow = flow(timeline)
        grouped = groups(dataflow)
    return Analysis(
        path=path_text(path),
        timeline=timeline,
        dataflow=dataflow,
        groups=grouped,
        reports=tuple(reports),
        counters=match(timeline, reports) if reports else None,
        execution_trace=None if execution_trace is None else path_text(execution_trace),
    )


def mined(analysis: Analysis, options: ScanOptions | None = None) -> Scan:
    """Return what the rules find in a trace, claimed without overlap, estimated and ranked.

    >>> scan = mined(analyse("fixtures/kineto/chain.json.gz"))
    >>> scan.findings[0].gpu_saving_ns.mid <= scan.findings[0].measured_ns
    True
    """
    options = options or ScanOptions()
    timeline, evidence = analysis.timeline, options.evidence
    device = analysis.device or options.device
    gpu = gpu_name(timeline) or (None if options.device is None else options.device.title)
    own, unread = of_this_user() if options.calibrations is None else (options.calibrations, ())
    calibrated = chosen(GPU(gpu, sm_count(timeline), device), own)
    found = find(
        timeline,
        analysis.rows,
        mine(analysis.rows, _rules_for(analysis, options)),
        device,
        groups=analysis.groups,
        curves=calibrated.curves,
        judge=None if evidence is None else lambda finding: evidence.on(finding, gpu),
        min_saving_ns=None if options.threshold is None else options.threshold.of(measure(timeline).span_ns),
        path=analysis.path,
        causes=analysis.causes,
    )
    notes = [*known().notes, *unread, *calibrated.notes, *compile_losses(timeline, analysis.dataflow, found.findings)]
    if damaged := calls_of(timeline).damaged:
        notes.append(f"left out: what {count_text(damaged, 'damaged text')} of recorded calls would have said")
    if analysis.device is None and options.device is not None:
        notes.append(f"estimates are for {options.device.title}, as --gpu says")
    about = replace(found.trace, execution_trace=analysis.execution_trace, calibration=calibrated.path)
    found = replace(found, trace=about, warnings=(*found.warnings, *notes))
    found = _with_more(found, analysis, options, gpu)
    if options.source is None:
        return found
    return with_statements(found, options.source, [cause.rule for cause in analysis.causes if cause.operators_wait])


def _rules_for(analysis: Analysis, options: ScanOptions) -> tuple[Rule, ...]:
    """Return the rules that hold for a recording: of sums nothing is known that neighbours or gaps would tell."""
    timeline = analysis.timeline
    rules = of_producer(analysis.rules if options.rules is None else options.rules, producer_of(timeline.meta))
    return tuple(rule for rule in rules if not timeline.untimed or "stated" in rule.needs)


def _with_more(found: Scan, analysis: Analysis, options: ScanOptions, gpu: str | None) -> Scan:
    """Return a scan with what verdicts, counters and refusals add to it, where these are given or asked for."""
    if options.evidence is not None:
        found = replace(found, evidence=options.evidence.account(found, gpu))
    if analysis.counters is not None:
        found = with_counters(found, analysis.rows["activities"], analysis.counters)
    return with_refusals(found, analysis.timeline, analysis.groups) if options.why_not else found


def write_tables(analysis: Analysis, found: Scan, directory: Path) -> None:
    """Keep a trace as a timeline directory, what `mined` found in it next to it: `findings` and `occurrences` join it.

    Raises TimelineError, UsageError: as `Timeline.write`.
    """
    dataflow, reports = analysis.dataflow, analysis.reports
    analysis.timeline.write(
        directory,
        edges=activity_edges(dataflow) if len(dataflow.nodes) else None,
        counters=counters_table(reports, analysis.counters) if reports else None,
        found=((FINDINGS, findings_table(found)), (OCCURRENCES, occurrences_table(found))),
    )


def scan(
    path: Path | str,
    options: ScanOptions | None = None,
    *,
    execution_trace: Path | str | None = None,
    graph_capture: Path | str | None = None,
    reports: Sequence[CounterReport] = (),
    progress: Progress | None = None,
) -> Scan:
    """Read a trace and mine it: `analyse`, then `mined`. Arguments and errors as there.

    >>> found = scan("fixtures/captures/chain")
    >>> found.trace.gpu, [finding.rule for finding in found.findings]
    ('NVIDIA H200', ['memory_bound_chain', 'launch_gap'])
    """
    analysis = analyse(
        path, execution_trace=execution_trace, graph_capture=graph_capture, reports=reports, progress=progress
    )
    return mined(analysis, options)
