"""A scan as a piece of HTML for a notebook's cell: the head, and a table of its findings.

It is put into a page that runs scripts, and every name in it comes from the trace: nothing gets there but through
`text`, and there is no attribute that holds anything of a trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from tracemine.report.bar import legend, segments
from tracemine.report.escape import line
from tracemine.report.step_words import headline
from tracemine.report.verdict_words import saved_text, unprofiled_ns
from tracemine.report.words import (
    all_of,
    ceiling_text,
    little_text,
    memory_text,
    no_findings,
    nothing_found,
    of_finding,
    payback_text,
    summary_parts,
    unprofiled_text,
)
from tracemine.units import count_text, percent_text, range_text, shares, time_text

if TYPE_CHECKING:
    from tracemine.findings.record import Finding, Parts, Range, Scan

MOST_ROWS = 20
_LONGEST_CELL = 160
# MathJax, which notebooks run over what cells print, passes over these classes.
_BEGIN = '<div class="tracemine tex2jax_ignore mathjax_ignore">'
_LEFT = '<th style="text-align: left">'
_BAR = "display: flex; max-width: 60em; white-space: nowrap; color: #000"
# Okabe and Ito's, which colour-blind readers tell apart.
_COLOURS = {
    "products": "#56b4e9",
    "attention": "#cc79a7",
    "memory_bound": "#f0e442",
    "optimizer": "#009e73",
    "copies": "#e69f00",
    "communication": "#d55e00",
    "idle": "#eee",
}
_GREY = "#bbb"
_LEFT_CELL = '<td style="text-align: left">'


def fragment(scan: Scan) -> str:
    """Return the head of a scan and at most `MOST_ROWS` findings of it, most worth first."""
    shown = [finding for finding in scan.reported if not finding.refuted]
    parts = [*_head(scan), *_table(scan, shown[:MOST_ROWS]), *_foot(scan, shown)]
    return "\n".join([_BEGIN, *parts, "</div>"])


def text(of: str, longest: int = _LONGEST_CELL) -> str:
    """Return a text of the trace as HTML that is nothing but text.

    >>> text("<img src=x onerror=alert(1)>")
    '&lt;img src=x onerror=alert(1)&gt;'
    """
    return escape(line(of, longest=longest), quote=True)


def _head(scan: Scan) -> Iterator[str]:
    if says := headline(scan):
        yield f"<p><strong>{text(says, 400)}</strong></p>"
    yield f"<p>{text(scan.trace.path)}<br>{text(' · '.join(summary_parts(scan.trace)), 400)}</p>"
    if scan.summary.parts is not None:
        yield _bar(scan.summary.parts)
        yield f"<p>{'A step' if scan.summary.per_step else 'All'}: {text(legend(scan.summary.parts), 400)}</p>"
    if says := ceiling_text(scan):
        yield f"<p>{text(says, 400)}.</p>"
    if says := memory_text(scan):
        yield f"<p>Memory: {text(says, 400)}.</p>"
    if says := payback_text(scan):
        yield f"<p>{text(says, 400)}.</p>"
    if alone := unprofiled_text(scan.summary):
        yield f"<p>{'A step' if scan.summary.per_step else 'All'}: {text(alone, 400)}</p>"


def _bar(parts: Parts) -> str:
    """Return the step as one bar: a box for each part, as wide as its share, with as much of its name as fits."""
    shown = [part.ns for part in parts.parts if part.ns]
    boxes = "".join(
        f'<div style="flex: {share} 1 0; background: {_COLOURS.get(piece.name, _GREY)}; overflow: hidden">'
        f"{text(piece.label)}</div>"
        for piece, share in zip(segments(parts, 0), shares(shown, 1_000), strict=True)
    )
    return f'<div style="{_BAR}">{boxes}</div>'


def _table(scan: Scan, findings: Sequence[Finding]) -> Iterator[str]:
    if not findings:
        if not scan.reported:
            yield f"<p>{text(no_findings(scan), 400)} {text(nothing_found(scan), 400)}</p>"
        return
    each = "a step" if scan.summary.per_step is not None else "in all"
    whole = unprofiled_ns(scan.summary)
    yield "<table>"
    numbers = "".join(f"<th>{title}</th>" for title in ("#", f"saves {each}", "of it", f"GPU time {each}"))
    words = "".join(f"{_LEFT}{title}</th>" for title in ("what", "where", "severity", "evidence", "id"))
    yield f"<thead><tr>{numbers}{words}</tr></thead>"
    yield "<tbody>"
    for rank, finding in enumerate(findings, 1):
        step, gpu = of_finding(finding, "step_saving_ns"), of_finding(finding, "gpu_saving_ns")
        share = "" if whole is None else percent_text(step.mid, max(whole, 1))
        figures = (str(rank), _interval(step), share, _interval(gpu))
        says = (finding.title, _where(finding), finding.severity, finding.evidence, finding.fingerprint)
        cells = [*(f"<td>{text(cell)}</td>" for cell in figures), *(f"{_LEFT_CELL}{text(cell)}</td>" for cell in says)]
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody>"
    yield "</table>"
    step, gpu = all_of(scan, "step_saving_ns"), all_of(scan, "gpu_saving_ns")
    left = text(f"{each} ({change})" if (change := saved_text(scan)) else each)
    yield f"<p>All findings together save {text(_interval(step))} {left},"
    yield f"and {text(_interval(gpu))} of GPU time.</p>"


def _foot(scan: Scan, shown: Sequence[Finding]) -> Iterator[str]:
    if len(shown) > MOST_ROWS:
        yield f"<p>{count_text(len(shown) - MOST_ROWS, 'more finding')}: <code>to_pandas()</code> has all.</p>"
    if refuted := sum(finding.refuted for finding in scan.reported):
        yield f"<p>Refuted by verdicts: {count_text(refuted, 'finding')}.</p>"
    if little := little_text(scan):
        yield f"<p>{text(little, 400)}</p>"
    for warning in scan.warnings[:MOST_ROWS]:
        yield f"<p>Note: {text(warning, 400)}</p>"


def _interval(of: Range) -> str:
    return f"{time_text(of.mid)} ({range_text(of.low, of.high)})"


def _where(finding: Finding) -> str:
    """Return its innermost source line and its module, as far as they are known."""
    first = next(iter(finding.source), None)
    place = "" if first is None else f"{first.file.replace(chr(92), '/').rpartition('/')[2]}:{first.line}"
    return " · ".join(part for part in (place, finding.module or "") if part)
