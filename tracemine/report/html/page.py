"""What the HTML report says, as records that its templates draw: everything is decided here, nothing in a template."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath
from typing import TYPE_CHECKING

from tracemine.documents import verdict_words, words
from tracemine.documents.bar import legend
from tracemine.documents.cost_words import cost_rows, traffic_texts
from tracemine.documents.numbered import claimed
from tracemine.documents.step_words import device_texts, headline, nothing_text, step_texts
from tracemine.documents.trust import no_findings, no_lines, notes_below, nothing_found, trust_text
from tracemine.findings.record import Finding, Range, Scan, Variant, Verified
from tracemine.ops.kernel_names import short_name
from tracemine.report.html.figures import Bar, IntervalFigure, bar, interval
from tracemine.report.html.flow_figure import FlowFigure, flow_figure
from tracemine.report.html.roofline_figure import RooflineFigure, roofline_figure
from tracemine.units import percent_text, range_text, time_text
from tracemine.version import __version__

if TYPE_CHECKING:
    from tracemine.report.picture import Picture

__all__ = ["FindingPage", "Page", "page"]

_SEVERITIES = {"high": 0, "medium": 1, "low": 2}  # and where each stands
_NO_PICTURE = "The trace is not at hand here, its findings alone are: scan the trace itself to see this."
_MOST_ALIASES, _MOST_KERNELS = 8, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """A saving as it is read: its middle, its ends, its share of the whole."""

    ns: int
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
    """A finding with all that is said of it."""

    rank: int
    finding: Finding
    severity_rank: int
    step: Saving
    gpu: Saving
    savings: tuple[tuple[str, Saving], ...]  # those that are any, each with what it is of
    cost: str
    places: tuple[str, ...]  # innermost source line, module
    why: tuple[tuple[bool, str], ...]  # is code, and the text
    fix: tuple[tuple[bool, str], ...]
    evidence: str
    counted: str
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
class Page:
    """The report."""

    scan: Scan
    version: str
    name: str  # of the file
    read: str
    cut_off: str
    headline: str
    bar: Bar | None
    legend: str
    whole: str  # what savings are of: a step, the trace
    facts: tuple[tuple[str, tuple[str, ...]], ...]
    savings: tuple[tuple[str, Saving], ...]
    findings: tuple[FindingPage, ...]
    refuted: tuple[tuple[str, str, str, str], ...]
    nothing: tuple[str, str] | None  # why there is no finding
    rules: tuple[str, ...]
    severities: tuple[str, ...]
    roofline: RooflineFigure | None
    no_roofline: str
    timeline: str  # why it is not drawn; "": it is
    left_out: tuple[tuple[str, str], ...]  # how many, and why
    warnings: tuple[str, ...]


def page(scan: Scan, picture: Picture | None, timeline: str) -> Page:
    """Return the report of a scan. timeline: why it is not drawn, "" where it is."""
    shown = claimed(scan)
    summary = scan.summary
    drawn, legend_text = (None, "") if summary.parts is None else (bar(summary.parts), legend(summary.parts))
    return Page(
        scan=scan,
        version=__version__,
        name=PurePath(scan.trace.path.replace("\\", "/")).name or scan.trace.path,
        read=" · ".join(words.summary_parts(scan.trace)),
        cut_off=trust_text(scan),
        headline=headline(scan),
        bar=drawn,
        legend=legend_text,
        whole="a step" if summary.per_step is not None else "over the trace",
        facts=tuple(_facts(scan)) if scan.trace.activities else (),
        savings=tuple(_savings(scan)) if scan.findings else (),
        findings=tuple(_finding_pages(shown, scan, picture)),
        refuted=tuple(_refuted(scan)),
        nothing=None if scan.reported else (no_findings(scan), nothing_found(scan)),
        rules=tuple(sorted({finding.rule for finding in shown})),
        severities=tuple(sorted({finding.severity for finding in shown} & {*_SEVERITIES}, key=_SEVERITIES.__getitem__)),
        roofline=_roofline(shown, picture),
        no_roofline=_NO_PICTURE if picture is None else "Of no GPU here bandwidth and peaks are known.",
        timeline=_NO_PICTURE if picture is None else timeline,
        left_out=tuple(_left_out(scan)),
        warnings=notes_below(scan),
    )


def _roofline(shown: Sequence[Finding], picture: Picture | None) -> RooflineFigure | None:
    if picture is None or picture.roofline is None:
        return None
    return roofline_figure(picture.roofline, {finding.fingerprint: finding.title for finding in shown})


def _facts(scan: Scan) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what the head says of the trace, under its labels."""
    summary = scan.summary
    each = "over the trace" if summary.per_step is None else "a step"
    if nothing_text(scan):
        return
    steps = [words.busy_text(summary)] if summary.per_step is None else list(step_texts(summary.per_step))
    for label, texts in (
        (each, [words.unprofiled_text(summary), *steps]),
        ("devices", device_texts(summary)),
        ("limit", [words.ceiling_text(scan)]),
        ("memory", [words.memory_text(scan)]),
        ("pays", [words.payback_text(scan)]),
        ("verdicts", [verdict_words.evidence_text(scan)]),
        ("where", [no_lines(scan)]),
    ):
        if said := tuple(filter(None, texts)):
            yield label, said


def _savings(scan: Scan) -> Iterator[tuple[str, Saving]]:
    """Yield what all findings save together, of the step and of GPU time."""
    summary, whole_ns = scan.summary, verdict_words.unprofiled_ns(scan.summary)
    if summary.step_saving_ns.high:
        step = words.all_of(scan, "step_saving_ns")
        share = "" if whole_ns is None else f"{percent_text(step.mid, whole_ns)} of {words.share_of_text(scan)}"
        text = f"{share} ({verdict_words.saved_text(scan)})" if verdict_words.saved_text(scan) else share
        yield ("each step" if summary.per_step else "the trace"), _saving(step, text, max(step.high, whole_ns or 0))
    if summary.gpu_saving_ns.high:
        gpu = words.all_of(scan, "gpu_saving_ns")
        spent_ns = summary.gpu_time_ns if summary.per_step is None else summary.per_step.gpu_busy_ns
        yield (
            ("GPU time a step" if summary.per_step else "GPU time"),
            _saving(gpu, words.gpu_text(gpu.mid, scan), max(gpu.high, spent_ns)),
        )


def _saving(of: Range, share: str, most_ns: int, measured_ns: int | None = None) -> Saving:
    ends = range_text(of.low, of.high)
    return Saving(ns=of.mid, mid=time_text(of.mid), ends=ends, share=share, figure=interval(of, most_ns, measured_ns))


def _finding_pages(shown: Sequence[Finding], scan: Scan, picture: Picture | None) -> Iterator[FindingPage]:
    most = {name: max((words.of_finding(one, name).high for one in shown), default=0) for name in _NAMES}
    flows = {} if picture is None else picture.dataflow
    for rank, finding in enumerate(shown, 1):
        flow = flow_figure(flows[finding.fingerprint]) if finding.fingerprint in flows else None
        kernels = tuple((short_name(name), name, len(list(run))) for name, run in groupby(finding.kernels))
        step, gpu = (_of_finding(finding, scan, name, most) for name in _NAMES)
        yield FindingPage(
            rank=rank,
            finding=finding,
            severity_rank=_SEVERITIES.get(finding.severity, len(_SEVERITIES)),
            step=step,
            gpu=gpu,
            savings=tuple(_of_what(finding, step, gpu)),
            cost=words.cost_text(finding, scan),
            places=tuple(_places(finding)),
            why=words.blocks(finding.why),
            fix=words.blocks(finding.fix),
            evidence=words.EVIDENCE.get(finding.evidence, "see the documentation"),
            counted=words.counted_text(finding.counters) if finding.counters else "",
            costs=tuple(cost_rows(finding)),
            traffic=tuple(traffic_texts(finding)),
            variants=tuple(_variants(finding, scan)) if len(finding.variants) > 1 else (),
            kernels=kernels[:_MOST_KERNELS],
            more_kernels=sum(count for _, _, count in kernels[_MOST_KERNELS:]),
            where=tuple(_where(finding)),
            ops=(" → " if finding.on_gpu else ", ").join(words.chain(finding.ops)),
            verdicts=tuple(_verdicts(finding, picture)),
            names=(finding.fingerprint, *finding.identity.aliases[:_MOST_ALIASES]),
            flow=flow,
            flow_unknown=_flow_unknown(finding, picture) if flow is None else "",
        )


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


def _places(finding: Finding) -> Iterator[str]:
    """Yield its innermost source line and its module, as far as they are known."""
    if finding.source:
        first = finding.source[0]
        yield f"{first.file.replace(chr(92), '/').rpartition('/')[2]}:{first.line}"
    if finding.module:
        yield finding.module


def _where(finding: Finding) -> Iterator[str]:
    if finding.module:
        yield f"module {finding.module}"
    yield from (words.source_text(source, source.file) for source in finding.source)


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
