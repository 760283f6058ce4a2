"""A ticket's text for each finding: what, where, on what evidence, the cost, the fix and how to check it.

Everything that may come from the trace stands in code spans, or is escaped: see escape.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TextIO

from tracemine.documents import verdict_words, words
from tracemine.documents.bar import legend
from tracemine.documents.finding import CALM, CODE, NAME, Line, sections
from tracemine.documents.numbered import claimed
from tracemine.documents.screen import first_screen, off_terminal
from tracemine.documents.serving_words import serving_texts
from tracemine.documents.step_words import bound_sentence, device_texts, step_texts
from tracemine.report.escape import code, code_cell, fenced, prose, prose_cell, shorten, without_html
from tracemine.units import bytes_text, percent_text, time_text

if TYPE_CHECKING:
    from tracemine.documents.screen import Screen
    from tracemine.findings.record import Finding, Scan, Source
    from tracemine.report import Drawing

_LONGEST_NAME = 1_000


def render(scan: Scan, out: TextIO, options: Drawing) -> None:
    """Write the first screen, and below it, folded, the first `options.top` findings and what was left out."""
    numbered = claimed(scan)
    shown = numbered[: options.top]
    screen = first_screen(scan, options.frames)
    parts = [*_screen(screen, scan)]
    if screen.bar:
        parts += _folded("The step", [*_facts(scan)])
    for rank, finding in enumerate(shown, 1):
        said = _finding(finding, scan, options.frames)
        parts += _folded(f"Finding {rank}", [f"## {rank}. {prose(finding.title)}", *said])
    parts += _refuted([finding for finding in scan.reported if finding.refuted])
    parts += _why_not(scan)
    parts += _foot(scan, len(numbered) - len(shown))
    out.write("\n\n".join(parts) + "\n")


def _folded(summary: str, parts: Sequence[str]) -> Iterator[str]:
    """Yield parts that a reader unfolds. summary: ours, nothing of a trace."""
    yield f"<details>\n<summary>{summary}</summary>"
    yield from parts
    yield "</details>"


def ticket(finding: Finding, scan: Scan, out: TextIO, frames: Mapping[str, Source]) -> None:
    """Write one finding as a text that stands alone: for an issue, with the trace that it was found in."""
    trace = f"Found in {code(scan.trace.path)}: {prose(' · '.join(words.summary_parts(scan.trace)))}."
    out.write("\n\n".join([f"# {prose(finding.title)}", trace, *_finding(finding, scan, frames)]) + "\n")


def _screen(screen: Screen, scan: Scan) -> Iterator[str]:
    """Yield what a terminal's first screen says."""
    yield f"# tracemine: {code(screen.path)}"
    yield from (f"**{prose(text)}**" for text in (screen.doubts, screen.headline) if text)
    yield prose(" · ".join(screen.about))
    if scan.summary.parts is not None:
        yield f"{'A step' if scan.summary.per_step else 'All'}: {prose(legend(scan.summary.parts))}."
    if screen.at_once:
        yield f"**{prose(screen.at_once)}**"
    if screen.rows:
        yield "\n".join(_table(screen))
    if screen.total:
        yield prose(off_terminal(screen.total))
    for number, text in enumerate(screen.nothing):
        yield prose(text) if number else f"**{prose(text)}**"
    if screen.notes:
        yield "\n".join(f"- {prose(note)}" for note in screen.notes)


def _table(screen: Screen) -> Iterator[str]:
    place = "your code" if screen.own else "where"
    saves = f"saves{' alone' if screen.alone else ''}, {screen.unit}"
    yield f"| # | {saves} | % of {screen.whole} | cause | {place} | sure | effort | to do |"
    yield "|--:|--:|--:|---|---|---|---|---|"
    for row in screen.rows:
        cells = (row.cause, row.place, row.sure, row.effort, row.todo)
        shown = (prose_cell(cells[0]), code_cell(cells[1]), *map(prose_cell, cells[2:4]), code_cell(cells[4]))
        yield f"| {row.number} | {row.saves} | {prose_cell(row.share)} | {' | '.join(shown)} |"


def _facts(scan: Scan) -> list[str]:
    """Return a paragraph each: what was read, busy time, steps, what bounds the step, limits, verdicts."""
    summary = scan.summary
    whole = summary.gpu_busy_ns + summary.gpu_idle_ns
    share = percent_text(summary.gpu_busy_ns, whole)
    steps = [] if summary.per_step is None else list(step_texts(summary.per_step))
    steps += serving_texts(summary.serving)
    unprofiled = words.unprofiled_text(summary)
    memory = f"memory: {text}" if (text := words.memory_text(scan)) else ""
    verdicts = f"verdicts: {text}" if (text := verdict_words.evidence_text(scan)) else ""
    sentences = (
        " · ".join(words.summary_parts(scan.trace)),
        f"the GPU was busy for {share} of the time ({time_text(summary.gpu_busy_ns)} of {time_text(whole)})",
        "; ".join(filter(None, (unprofiled, *steps))),
        "; ".join(device_texts(summary)),
        bound_sentence(scan),
        words.ceiling_text(scan),
        memory,
        words.payback_text(scan),
        verdicts,
    )
    return [f"{prose(text[:1].upper() + text[1:])}." for text in sentences if text]


def _finding(finding: Finding, scan: Scan, frames: Mapping[str, Source]) -> Iterator[str]:
    for label, lines in sections(finding, scan, frames).items():
        yield f"**{label.capitalize()}**"
        yield from _lines(lines)


def _lines(lines: Sequence[Line]) -> Iterator[str]:
    """Yield a list of what are no sentences, paragraphs, and code in a fence that nothing in it can close."""
    for is_name, members in groupby(lines, key=lambda one: one.kind in (NAME, CALM)):
        if is_name:
            yield "\n".join(f"- {code(shorten(one.text, _LONGEST_NAME))}" for one in members)
        else:
            yield from (_fenced(one.text) if one.kind == CODE else prose(one.text) for one in members)


def rule_text(text: str) -> str:
    """Return a rule's text as `rules show` prints it: its author's own Markdown, for a terminal and without HTML.

    >>> rule_text("Call `f`, <b>not</b>\\n`g`.")
    'Call `f`, &lt;b>not&lt;/b> `g`.'
    """
    return "\n\n".join(_fenced(block) if is_code else without_html(block) for is_code, block in words.blocks(text))


def _fenced(block: str) -> str:
    return fenced(block, "bash" if block.startswith("tracemine ") else "python")


def _refuted(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield what verdicts took away: a line each, for it saves nothing."""
    if not findings:
        return
    yield "## Refuted"
    yield "Nothing is claimed for these, and no other rule claims them."
    rows = ["| predicted | finding | fingerprint | verdict |", "|--:|---|---|---|"]
    for finding in findings:
        verified = finding.verdict
        if verified is None:
            continue
        cells = (
            prose_cell(finding.title),
            code_cell(finding.fingerprint),
            prose_cell(verdict_words.refuted_text(verified)),
        )
        rows.append(f"| {time_text(verdict_words.refuted_ns(finding))} | {' | '.join(cells)} |")
    yield "\n".join(rows)


def _why_not(scan: Scan) -> Iterator[str]:
    if not scan.refused:
        return
    yield "## Why not one kernel"
    rows = ["| traffic that stays | times | first | second | because |", "|--:|--:|---|---|---|"]
    for one in scan.refused:
        names = " | ".join(code_cell(name) for name in (one.first, one.second))
        stays = "?" if one.bytes is None else bytes_text(one.bytes)
        rows.append(f"| {stays} | {one.occurrences:,} | {names} | {prose(one.reason)} |")
    yield "\n".join(rows)


def _foot(scan: Scan, hidden: int) -> Iterator[str]:
    if hidden:
        yield f"{words.shown_text(scan, hidden)}: `--top 0` shows all"
    if text := words.little_text(scan):
        yield prose(text)
    if scan.dropped:
        yield f"Skipped: {prose(words.dropped_text(scan.dropped))}."
