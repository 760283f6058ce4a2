"""What the HTML report says, for its templates to draw: everything is decided here, nothing in a template."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from tracemine.documents import words
from tracemine.documents.bar import IDLE
from tracemine.documents.finding import sections, verdict
from tracemine.documents.numbered import claimed
from tracemine.documents.screen import ScreenRow, all_rows, first_screen, off_terminal
from tracemine.documents.step_words import is_sums, unestimated
from tracemine.documents.trust import no_lines
from tracemine.documents.whole import facts, refuted
from tracemine.findings.parts import PARTS
from tracemine.findings.record import Finding, Scan, Source, Variant, Verified, activity_rows
from tracemine.report.html.data import MOST_ACTIVITIES, not_drawn, trace_json
from tracemine.report.html.figures import bar, interval
from tracemine.report.html.flow_figure import flow_figure
from tracemine.report.html.host_tables import host_tables
from tracemine.report.html.roofline_figure import roofline_figure
from tracemine.report.html.top_tables import top_tables
from tracemine.report.picture import trace_name
from tracemine.units import count_text
from tracemine.version import __version__

if TYPE_CHECKING:
    from tracemine.report.picture import Picture

_NO_PICTURE = "The trace is not at hand here, its findings alone are: scan the trace itself to see this."
_SUMS = "When kernels ran was not recorded, their sums alone: there is no timeline to draw."
_MOST_ALIASES = 8
_LEAST_PART = 0.1  # of a finding's time


def page(drawn: Sequence[tuple[Scan, Picture | None, Mapping[str, Source]]]) -> SimpleNamespace:
    """Return the report of scans, each with its picture and the user's own lines of findings that hold none."""
    traces: list[SimpleNamespace] = []
    room = MOST_ACTIVITIES
    for number, (scan, picture, frames) in enumerate(drawn, 1):
        why_not = _NO_PICTURE if picture is None else not_drawn(picture.activities, room)
        why_not = why_not or (_SUMS if is_sums(scan.summary) else "")
        room -= 0 if picture is None or why_not else len(picture.activities.start_ns)
        traces.append(_trace_page(scan, picture, frames, f"trace-{number}" if len(drawn) > 1 else "", why_not))
    name = traces[0].name if len(traces) == 1 else count_text(len(traces), "trace")
    return SimpleNamespace(version=__version__, name=name, traces=tuple(traces))


def _trace_page(
    scan: Scan, picture: Picture | None, frames: Mapping[str, Source], number: str, why_not: str
) -> SimpleNamespace:
    lines = {**frames, **({} if picture is None else picture.frames)}
    screen, rows = first_screen(scan, lines), all_rows(scan, lines)
    prefix = f"{number}-" if number else ""
    anchors = {one.fingerprint: (f"{prefix}{one.fingerprint}", str(rank)) for rank, one in enumerate(claimed(scan), 1)}
    hint = unestimated(scan) or no_lines(scan)
    return SimpleNamespace(
        id=number,  # of its section; "": there is one alone
        name=(picture.name if picture is not None else "") or trace_name(scan.trace.path),
        screen=screen,
        bar=None if scan.summary.parts is None else bar(scan.summary.parts),
        findings=tuple(_finding_pages(rows, scan, picture, lines, anchors)),  # those of the first screen first
        total=off_terminal(screen.total),
        refuted=tuple((ns, finding.title, finding.fingerprint, why) for ns, finding, why in refuted(scan)),
        tables=() if picture is None else tuple(top_tables(picture.tops, anchors)),
        host=tuple(host_tables(picture, claimed(scan), anchors)),  # of one tab
        roofline=_roofline(scan, picture, anchors),
        timeline=why_not,  # why it is not drawn; "": it is
        trace_json="" if picture is None or why_not else trace_json(picture),
        hint=f"{hint[:1].upper()}{hint[1:]}",  # how more would be known
        caveats=tuple(text for text in screen.notes if text != hint),
        facts=tuple(facts(scan)),
        left_out=tuple(_left_out(scan)),  # how many, and why
    )


def _roofline(scan: Scan, picture: Picture | None, anchors: Mapping[str, tuple[str, str]]) -> SimpleNamespace | None:
    if picture is None or picture.roofline is None:
        return None
    titles = {one.fingerprint: (anchors[one.fingerprint][0], one.title) for one in claimed(scan)}
    return roofline_figure(picture.roofline, titles)


def _finding_pages(
    rows: Sequence[ScreenRow],
    scan: Scan,
    picture: Picture | None,
    lines: Mapping[str, Source],
    anchors: Mapping[str, tuple[str, str]],
) -> Iterator[SimpleNamespace]:
    shown = claimed(scan)
    flows = {} if picture is None else picture.dataflow
    said = {one.fingerprint: sections(one, scan, lines) for one in shown}
    most_ns = max((line.saves.high for each in said.values() for line in each["saves"] if line.saves), default=0)
    for row in rows:
        finding = shown[row.number - 1]
        flow = flow_figure(flows[finding.fingerprint]) if finding.fingerprint in flows else None
        saves = said[finding.fingerprint]["saves"]
        yield SimpleNamespace(
            anchor=anchors[finding.fingerprint][0],
            row=row,
            finding=finding,
            parts=_parts(finding, picture),  # of the bar, that its activities are of
            said=said[finding.fingerprint],  # all that is known of it, under labels
            saves=tuple((one.text, interval(one.saves, most_ns) if one.saves else None) for one in saves),
            verdicts=tuple(_verdicts(finding, picture)),
            names=(finding.fingerprint, *finding.identity.aliases[:_MOST_ALIASES]),  # under which `diff` finds it
            flow=flow,
            flow_unknown=_flow_unknown(finding, picture) if flow is None else "",  # why there is none
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


def _verdicts(finding: Finding, picture: Picture | None) -> Iterator[SimpleNamespace]:
    every: Sequence[Finding | Variant] = finding.variants or (finding,)
    for one in every:
        if one.verdict is not None:
            yield _verdict(one, one.verdict, several=len(every) > 1, picture=picture)


def _verdict(one: Finding | Variant, verified: Verified, *, several: bool, picture: Picture | None) -> SimpleNamespace:
    says, *lines = verdict(one, verified, whole=True)
    measured_ns = one.gpu_saving_ns.mid if verified.basis == "measured" else None
    if verified.basis == "refuted":
        measured_ns = 0
    most_ns = max(verified.predicted_ns.high, measured_ns or 0)
    name = one.identity.finding
    return SimpleNamespace(
        of=name if several else "",  # fingerprint of the variant, "" where there is one alone
        says=says.text,
        lines=tuple(lines),
        predicted=None if measured_ns is None else interval(verified.predicted_ns, most_ns, measured_ns),
        code=None if picture is None else picture.sources.get(name),  # generated, and validated or timed
    )


def _flow_unknown(finding: Finding, picture: Picture | None) -> str:
    if not finding.on_gpu:
        return ""
    if picture is None:
        return _NO_PICTURE
    return "What these kernels read and write is not known, so no dataflow is drawn: they are neighbours on a stream."


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
