"""What the HTML report says, as records that its templates draw: everything is decided here, nothing in a template."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from tracemine.documents import verdict_words, words
from tracemine.documents.bar import IDLE
from tracemine.documents.cost_words import cost_rows, traffic_texts
from tracemine.documents.finding import NAMED
from tracemine.documents.numbered import claimed
from tracemine.documents.screen import Screen, ScreenRow, all_rows, first_screen, off_terminal
from tracemine.documents.serving_words import serving_texts
from tracemine.documents.step_words import device_texts, nothing_text, step_texts, unestimated
from tracemine.documents.trust import no_lines
from tracemine.findings.members import activity_rows
from tracemine.findings.parts import PARTS
from tracemine.findings.record import Finding, Range, Scan, Source, Variant, Verified
from tracemine.ops.kernel_names import short_name
from tracemine.report.html.data import MOST_ACTIVITIES, not_drawn, trace_json
from tracemine.report.html.figures import Bar, IntervalFigure, bar, interval
from tracemine.report.html.flow_figure import FlowFigure, flow_figure
from tracemine.report.html.host_tables import host_tables
from tracemine.report.html.roofline_figure import RooflineFigure, roofline_figure
from tracemine.report.html.tables import Table
from tracemine.report.html.top_tables import top_tables
from tracemine.report.picture.names import trace_name
from tracemine.rows.user_frames import is_own
from tracemine.units import count_text, percent_text, range_text, time_text
from tracemine.version import __version__

if TYPE_CHECKING:
    from tracemine.report.picture import Picture

__all__ = ["FindingPage", "Page", "TracePage", "mark", "page"]

_NO_PICTURE = "The trace is not at hand here, its findings alone are: scan the trace itself to see this."
_MOST_ALIASES, _MOST_KERNELS = 8, 40
_LEAST_PART = 0.1  # of a finding's time


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """A saving as it is read: its middle, its ends, its share of the whole."""

    mid: str
    ends: str
    share: str
    figure: IntervalFigure


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictPage:
    """What was measured of a finding or a variant of it, and what was predicted."""

    of: str  # fingerprint of the variant, "" where there is one alone
    says: str
    lines: tuple[str, ...]
    predicted: IntervalFigure | None  # None: nothing was measured
    code: str | None  # generated, and validated or timed


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingPage:
    """A finding with all that is said of it: its row of the first screen, and what that opens to."""

    anchor: str
    row: ScreenRow
    finding: Finding
    parts: tuple[str, ...]  # of the bar, that its activities are of
    savings: tuple[tuple[str, Saving], ...]  # those that are any, each with what it is of
    gains: bool  # the step does, whatever else sets its pace
    cost: str
    why: tuple[tuple[bool, str], ...]  # is code, and the text
    fix: tuple[tuple[bool, str], ...]
    evidence: str
    counted: str
    whole: str  # what costs are of: a step, the trace
    costs: tuple[tuple[str, str, str, str], ...]
    traffic: tuple[str, ...]
    variants: tuple[tuple[str, ...], ...]
    kernels: tuple[tuple[str, str, int], ...]  # in few words, whole, and how many one after another
    more_kernels: int  # behind those
    where: tuple[str, ...]
    ops: str
    verdicts: tuple[VerdictPage, ...]
    names: tuple[str, ...]  # under which `diff` finds it
    flow: FlowFigure | None
    flow_unknown: str  # why there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePage:
    """All that is said of one trace."""

    id: str  # of its section; "": there is one alone
    name: str
    screen: Screen
    bar: Bar | None
    findings: tuple[FindingPage, ...]  # those of the first screen first
    total: str
    refuted: tuple[tuple[str, str, str, str], ...]
    tables: tuple[Table, ...]
    host: tuple[Table, ...]  # of one tab
    roofline: RooflineFigure | None
    timeline: str  # why it is not drawn; "": it is
    trace_json: str
    hint: str  # how more would be known
    caveats: tuple[str, ...]
    facts: tuple[tuple[str, tuple[str, ...]], ...]
    left_out: tuple[tuple[str, str], ...]  # how many, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The report: of one trace, or of several one below the other."""

    version: str
    name: str
    traces: tuple[TracePage, ...]


def page(drawn: Sequence[tuple[Scan, Picture | None, Mapping[str, Source]]]) -> Page:
    """Return the report of scans, each with its picture and the user's own lines of findings that hold none."""
    traces: list[TracePage] = []
    room = MOST_ACTIVITIES
    for number, (scan, picture, frames) in enumerate(drawn, 1):
        why_not = _NO_PICTURE if picture is None else not_drawn(picture.activities, room)
        room -= 0 if picture is None or why_not else len(picture.activities.start_ns)
        traces.append(_trace_page(scan, picture, frames, f"trace-{number}" if len(drawn) > 1 else "", why_not))
    name = traces[0].name if len(traces) == 1 else count_text(len(traces), "trace")
    return Page(version=__version__, name=name, traces=tuple(traces))


def _trace_page(
    scan: Scan, picture: Picture | None, frames: Mapping[str, Source], number: str, why_not: str
) -> TracePage:
    lines = {**frames, **({} if picture is None else picture.frames)}
    screen, rows = first_screen(scan, lines), all_rows(scan, lines)
    prefix = f"{number}-" if number else ""
    anchors = {finding.fingerprint: (f"{prefix}{finding.fingerprint}", str(rank)) for rank, finding in _ranked(scan)}
    hint = unestimated(scan) or no_lines(scan)
    return TracePage(
        id=number,
        name=(picture.name if picture is not None else "") or trace_name(scan.trace.path),
        screen=screen,
        bar=None if scan.summary.parts is None else bar(scan.summary.parts),
        findings=tuple(_finding_pages(rows, scan, picture, anchors)),
        total=off_terminal(screen.total),
        refuted=tuple(_refuted(scan)),
        tables=() if picture is None else tuple(top_tables(picture.tops, anchors)),
        host=tuple(host_tables(picture, claimed(scan), anchors)),
        roofline=_roofline(scan, picture, anchors),
        timeline=why_not,
        trace_json="" if picture is None or why_not else trace_json(picture),
        hint=f"{hint[:1].upper()}{hint[1:]}",
        caveats=tuple(text for text in screen.notes if text != hint),
        facts=tuple(_facts(scan)) if scan.trace.activities else (),
        left_out=tuple(_left_out(scan)),
    )


def _ranked(scan: Scan) -> Iterator[tuple[int, Finding]]:
    return enumerate(claimed(scan), 1)


def _roofline(scan: Scan, picture: Picture | None, anchors: Mapping[str, tuple[str, str]]) -> RooflineFigure | None:
    if picture is None or picture.roofline is None:
        return None
    return roofline_figure(
        picture.roofline, {one.fingerprint: (anchors[one.fingerprint][0], one.title) for one in claimed(scan)}
    )


def _facts(scan: Scan) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what the head says of the trace, under its labels."""
    summary = scan.summary
    each = "over the trace" if summary.per_step is None else "a step"
    if nothing_text(scan):
        return
    steps = [words.busy_text(summary)] if summary.per_step is None else list(step_texts(summary.per_step))
    steps += serving_texts(summary.serving)
    for label, texts in (
        (each, [words.unprofiled_text(summary), *steps]),
        ("devices", device_texts(summary)),
        ("limit", [words.ceiling_text(scan)]),
        ("memory", [words.memory_text(scan)]),
        ("pays", [words.payback_text(scan)]),
        ("verdicts", [verdict_words.evidence_text(scan)]),
    ):
        if said := tuple(filter(None, texts)):
            yield label, said


def _saving(of: Range, share: str, most_ns: int, measured_ns: int | None = None) -> Saving:
    ends = range_text(of.low, of.high)
    return Saving(mid=time_text(of.mid), ends=ends, share=share, figure=interval(of, most_ns, measured_ns))


def _finding_pages(
    rows: Sequence[ScreenRow], scan: Scan, picture: Picture | None, anchors: Mapping[str, tuple[str, str]]
) -> Iterator[FindingPage]:
    shown = claimed(scan)
    most = {name: max((words.of_finding(one, name).high for one in shown), default=0) for name in _NAMES}
    flows = {} if picture is None else picture.dataflow
    for row in rows:
        finding = shown[row.number - 1]
        flow = flow_figure(flows[finding.fingerprint]) if finding.fingerprint in flows else None
        kernels = tuple((short_name(name), name, len(list(run))) for name, run in groupby(finding.kernels))
        step, gpu = (_of_finding(finding, scan, name, most) for name in _NAMES)
        yield FindingPage(
            anchor=anchors[finding.fingerprint][0],
            row=row,
            finding=finding,
            parts=_parts(finding, picture),
            savings=tuple(_of_what(finding, step, gpu)),
            gains=bool(step.figure.high),
            cost=words.cost_text(finding, scan),
            why=words.blocks(finding.why),
            fix=words.blocks(finding.fix),
            evidence=words.EVIDENCE.get(finding.evidence, "see the documentation"),
            counted=words.counted_text(finding.counters) if finding.counters else "",
            whole="per step" if finding.per_step is not None else "over the trace",
            costs=tuple(cost_rows(finding)),
            traffic=tuple(traffic_texts(finding)),
            variants=tuple(_variants(finding, scan)) if len(finding.variants) > 1 else (),
            kernels=kernels[:_MOST_KERNELS],
            more_kernels=sum(count for _, _, count in kernels[_MOST_KERNELS:]),
            where=tuple(_where(finding, scan)),
            ops=(" → " if finding.on_gpu else ", ").join(words.chain(finding.ops)),
            verdicts=tuple(_verdicts(finding, picture)),
            names=(finding.fingerprint, *finding.identity.aliases[:_MOST_ALIASES]),
            flow=flow,
            flow_unknown=_flow_unknown(finding, picture) if flow is None else "",
        )


def _parts(finding: Finding, picture: Picture | None) -> tuple[str, ...]:
    """Return the parts of the bar that a finding is of: those that a tenth of its time is, or idle time."""
    if not finding.on_gpu:
        return (IDLE,)
    if picture is None:
        return ()
    rows = activity_rows([finding])
    rows = rows[rows < len(picture.activities.dur_ns)]
    spent = np.bincount(picture.activities.part[rows], picture.activities.dur_ns[rows], len(PARTS))
    return tuple(name for name, ns in zip(PARTS, spent.tolist(), strict=True) if ns and ns >= _LEAST_PART * spent.sum())


_NAMES = ("step_saving_ns", "gpu_saving_ns")


def _of_finding(finding: Finding, scan: Scan, name: str, most: dict[str, int]) -> Saving:
    saving: Range = getattr(finding, name) if words.outside_steps(finding) else words.of_finding(finding, name)
    whole_ns = verdict_words.unprofiled_ns(scan.summary)
    if words.outside_steps(finding):
        share = "over the trace, outside of the steps"
    elif name == "gpu_saving_ns":
        share = ", ".join(text for text in (words.gpu_text(saving.mid, scan), words.basis_text(finding)) if text)
    else:
        share = "" if whole_ns is None else percent_text(saving.mid, whole_ns)
    return _saving(saving, share, most[name])


def _of_what(finding: Finding, step: Saving, gpu: Saving) -> Iterator[tuple[str, Saving]]:
    each = finding.per_step is not None and not words.outside_steps(finding)
    if step.figure.high:
        yield ("of each step" if each else "of the recorded time"), step
    if gpu.figure.high:
        yield ("of GPU time a step" if each else "of GPU time"), gpu


def _where(finding: Finding, scan: Scan) -> Iterator[str]:
    """Yield its module and its source lines, the user's own first; of an engine its layers."""
    if scan.trace.format in NAMED:
        yield from dict.fromkeys(finding.kernels)
    elif finding.module:
        yield f"module {finding.module}"
    frames = sorted(finding.source, key=lambda source: not is_own(source.file))
    yield from (words.source_text(source, source.file) for source in frames)


def _variants(finding: Finding, scan: Scan) -> Iterator[tuple[str, ...]]:
    for variant in finding.variants:
        yield (
            words.cost_text(finding, scan, variant),
            time_text(variant.gpu_saving_ns.mid),
            time_text(variant.step_saving_ns.mid),
            " → ".join(words.chain(variant.ops)),
            variant.shapes or "–",
            variant.identity.finding,
        )


def _verdicts(finding: Finding, picture: Picture | None) -> Iterator[VerdictPage]:
    every: Sequence[Finding | Variant] = finding.variants or (finding,)
    for one in every:
        if one.verdict is not None:
            yield _verdict(one, one.verdict, several=len(every) > 1, picture=picture)


def _verdict(one: Finding | Variant, verified: Verified, *, several: bool, picture: Picture | None) -> VerdictPage:
    by = "" if verified.by == "kernel" else f" · with {verified.by}"
    untested = verdict_words.not_tested_text(verified)
    lines = (
        verdict_words.times_text(verified),
        verdict_words.error_text(one),
        f"not tested: {untested}" if untested else "",
    )
    assumed = (*(f"assumed: {text}" for text in verified.assumptions), f"read from {verified.file}")
    measured_ns = one.gpu_saving_ns.mid if verified.basis == "measured" else None
    if verified.basis == "refuted":
        measured_ns = 0
    most_ns = max(verified.predicted_ns.high, measured_ns or 0)
    name = one.identity.finding
    return VerdictPage(
        of=name if several else "",
        says=f"{verified.level}, {verified.says}{by}",
        lines=tuple(text for text in (*lines, *assumed) if text),
        predicted=None if measured_ns is None else interval(verified.predicted_ns, most_ns, measured_ns),
        code=None if picture is None else picture.sources.get(name),
    )


def _flow_unknown(finding: Finding, picture: Picture | None) -> str:
    if not finding.on_gpu:
        return ""
    if picture is None:
        return _NO_PICTURE
    return "What these kernels read and write is not known, so no dataflow is drawn: they are neighbours on a stream."


def _refuted(scan: Scan) -> Iterator[tuple[str, str, str, str]]:
    """Yield what verdicts took away: predicted, title, fingerprint, and why."""
    for finding in scan.reported:
        if finding.refuted and finding.verdict is not None:
            why = verdict_words.refuted_text(finding.verdict)
            yield time_text(verdict_words.refuted_ns(finding)), finding.title, finding.fingerprint, why


def _left_out(scan: Scan) -> Iterator[tuple[str, str]]:
    """Yield what was looked at and not reported, most first: how many matches, and why."""
    if text := words.little_text(scan):
        yield "", text
    for reason, count in sorted(scan.dropped.items(), key=lambda item: (-item[1], item[0])):
        yield f"{count:,}", words.left_out_text(reason)
    for one in scan.refused or ():
        yield f"{one.occurrences:,}", f"{one.first} and {one.second} are not one kernel: {one.reason}"


def mark(name: str) -> str:
    """Return a fingerprint as a shell takes it.

    >>> mark("10bb; rm -rf ~")
    '10bbrmrf'
    """
    return re.sub("[^0-9a-zA-Z]", "", name)
