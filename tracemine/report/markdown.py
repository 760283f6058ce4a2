"""A ticket's text for each finding: what, where, on what evidence, the cost, the fix and how to check it.

Everything that may come from the trace stands in code spans, or is escaped: see escape.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TextIO

from tracemine.documents import words
from tracemine.documents.bar import legend
from tracemine.documents.finding import CALM, CODE, NAME, Line, sections
from tracemine.documents.numbered import claimed
from tracemine.documents.screen import first_screen, off_terminal
from tracemine.documents.whole import facts, refuted, separate
from tracemine.report.escape import code, code_cell, fenced, prose, prose_cell, shorten, table, without_html

if TYPE_CHECKING:
    from tracemine.documents.screen import Screen
    from tracemine.findings.record import Finding, Scan, Source
    from tracemine.report import Drawing

_LONGEST_NAME = 1_000
_NO_CLAIM = "Nothing is claimed for these, and no other rule claims them."


def render(scan: Scan, out: TextIO, options: Drawing) -> None:
    """Write the first screen, and below it, folded, the first `options.top` findings and what was left out."""
    numbered = claimed(scan)
    shown = numbered[: options.top]
    screen = first_screen(scan, options.frames)
    parts = [*_screen(screen, scan)]
    if screen.bar:
        known = (f"- **{label}** {prose('; '.join(texts))}" for label, texts in facts(scan))
        parts += _folded("The step", [prose(" · ".join(words.summary_parts(scan.trace))), "\n".join(known)])
    for rank, finding in enumerate(shown, 1):
        said = _finding(finding, scan, options.frames)
        parts += _folded(f"Finding {rank}", [f"## {rank}. {prose(finding.title)}", *said])
    parts += _refuted(scan)
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
        yield _table(screen)
    if screen.total:
        yield prose(off_terminal(screen.total))
    for number, text in enumerate(screen.nothing):
        yield prose(text) if number else f"**{prose(text)}**"
    if screen.notes:
        yield "\n".join(f"- {prose(note)}" for note in screen.notes)


def _table(screen: Screen) -> str:
    saves, place = f"saves{' alone' if screen.alone else ''}, {screen.unit}", "your code" if screen.own else "where"
    heads = ("#", saves, f"% of {screen.whole}", "cause", place, "sure", "effort", "to do")
    rows = [
        (
            *(str(row.number), row.saves, prose_cell(row.share), prose_cell(row.cause), code_cell(row.place)),
            *(prose_cell(row.sure), prose_cell(row.effort), code_cell(row.todo)),
        )
        for row in screen.rows
    ]
    return table(heads, rows, range(3))


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


def _refuted(scan: Scan) -> Iterator[str]:
    """Yield what verdicts took away: a line each, for it saves nothing."""
    rows = [
        (ns, prose_cell(finding.title), code_cell(finding.fingerprint), prose_cell(why))
        for ns, finding, why in refuted(scan)
    ]
    if rows:
        yield from ("## Refuted", _NO_CLAIM, table(("predicted", "finding", "fingerprint", "verdict"), rows, {0}))


def _why_not(scan: Scan) -> Iterator[str]:
    if rows := [(*counts, *map(code_cell, names), prose_cell(why)) for counts, names, why in separate(scan)]:
        heads = ("traffic that stays", "times", "first", "second", "because")
        yield from ("## Why not one kernel", table(heads, rows, range(2)))


def _foot(scan: Scan, hidden: int) -> Iterator[str]:
    if hidden:
        yield f"{words.shown_text(scan, hidden)}: `--top 0` shows all"
    if text := words.little_text(scan):
        yield prose(text)
    if scan.dropped:
        yield f"Skipped: {prose(words.dropped_text(scan.dropped))}."
