"""The report for a person at a terminal: what the trace is, what is worth doing, most first, what was left out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from rich.text import Text

from tracemine.documents import words
from tracemine.documents.bar import bar_parts, covered_text
from tracemine.documents.finding import Line, first_of_fix, operators, saves, sure, verdicts, where
from tracemine.documents.headline import bound_headline
from tracemine.documents.numbered import claimed
from tracemine.documents.step_words import unequal_text, unestimated
from tracemine.documents.trust import no_findings, no_lines, notes_below, nothing_found, trust_text
from tracemine.documents.whole import facts, refuted, separate
from tracemine.report import screen
from tracemine.report.escape import line, shorten
from tracemine.report.paragraphs import (
    LABEL,
    LABEL_WIDTH,
    RANK_WIDTH,
    LabelledText,
    console_for,
    drawn_lines,
    labelled,
    paragraph,
    plain,
    print_rows,
)
from tracemine.report.screen import bar_rows
from tracemine.units import count_text

if TYPE_CHECKING:
    from tracemine.findings.record import Finding, Parts, Scan
    from tracemine.report import Drawing

_RIGHT_EDGE = 90
_LONGEST_NAME = 40
_MOST_LINES = 20
_NO_PATHS = ("", "standard input")  # where a trace came from that is no file any more


def render(scan: Scan, out: TextIO, options: Drawing) -> None:
    """Write the report, or its first screen alone; nothing but text and, with `options.color`, styles."""
    if not options.whole:
        screen.render(scan, out, options)
        return
    console = console_for(out, options)
    numbered = claimed(scan)
    shown = numbered[: options.top]
    blocks = [
        _head(scan, options.width),
        *(_finding(rank, finding, scan, options) for rank, finding in enumerate(shown, 1)),
        *([_refuted(scan)] if any(one.refuted for one in scan.reported) else []),
        *([_why_not(scan)] if scan.refused is not None else []),
        _foot(scan, len(numbered) - len(shown)),
    ]
    for number, block in enumerate(blocks):
        if number:
            console.print()
        print_rows(console, block)


def _head(scan: Scan, width: int) -> Iterator[LabelledText]:
    if text := trust_text(scan):
        yield paragraph((line(text), "bold red"))
    for text in filter(None, (bound_headline(scan), unequal_text(scan.summary.devices), unestimated(scan))):
        yield paragraph((line(text), "bold"))
    yield paragraph((line(scan.trace.path), "bold"))
    yield paragraph((line(" · ".join(words.summary_parts(scan.trace))), LABEL))
    known = [*facts(scan)]
    if not known:
        return
    yield paragraph()
    drawn = [*_parts(scan.summary.parts, min(width - LABEL_WIDTH, _RIGHT_EDGE))]
    for label, texts in (*known, *([("where", (text,))] if (text := no_lines(scan)) else [])):
        yield from labelled(label, *drawn, *(Text(line(text)) for text in texts))
        drawn = []


def _parts(parts: Parts | None, width: int) -> Iterator[Text]:
    """Yield the step as a bar, and what cannot be seen in it."""
    if parts is not None:
        yield from bar_rows(bar_parts(parts), width)
        yield from [Text(text)] if (text := covered_text(parts)) else []


def _finding(rank: int, finding: Finding, scan: Scan, options: Drawing) -> Iterator[LabelledText]:
    width = options.width
    title = Text(line(finding.title), "bold")
    certainty = Text(f"sure: {sure(finding)}", LABEL)
    # At the right edge, unless that is far away; in the title's own line where both fit.
    room = min(width, _RIGHT_EDGE) - RANK_WIDTH - title.cell_len - certainty.cell_len
    yield LabelledText(Text.assemble(title, " " * max(room, 2), certainty), f"{rank:>{RANK_WIDTH - 1}}", 0, RANK_WIDTH)
    room = width - RANK_WIDTH - LABEL_WIDTH
    for label, lines in (
        ("saves", [*saves(finding, scan)][:1]),
        ("verdict", verdicts(finding)),
        ("cost", [Line(words.cost_text(finding, scan))]),
        ("counted", [Line(words.counted_text(finding.counters))] if finding.counters else ()),
        ("kernels" if finding.on_gpu else "before", [*operators(finding)][: 1 if finding.ops else 0]),
        ("where", where(finding, scan, options.frames, short=True)),
    ):
        yield from labelled(label, *(Text(shorten(plain(one.text), 2 * room)) for one in lines), indent=RANK_WIDTH)
    yield from labelled("fix", *_fix(finding.fix, rank, scan.trace.path, room), indent=RANK_WIDTH)
    identity = f"{line(finding.fingerprint)} · rule {line(finding.rule)}"
    yield from labelled("id", Text(identity, LABEL), indent=RANK_WIDTH)


def _counted(rows: Sequence[tuple[str, Text]]) -> Iterator[LabelledText]:
    """Yield lines with an amount in front, and how many more there are."""
    for amount, what in rows[:_MOST_LINES]:
        yield LabelledText(what, f"{amount:>9}", 0, 11)
    if len(rows) > _MOST_LINES:
        yield paragraph((f"{count_text(len(rows) - _MOST_LINES, 'more line')}: --format json", LABEL))


def _refuted(scan: Scan) -> Iterator[LabelledText]:
    """Yield what verdicts took away: it saves nothing, so it is one line each."""
    yield paragraph(("refuted: no finding claims what was predicted here", "bold"))
    says = [(ns, finding.title, f" · {line(finding.fingerprint)}: {line(why)}") for ns, finding, why in refuted(scan)]
    yield from _counted([(ns, Text.assemble(line(title), (why, LABEL))) for ns, title, why in says])


def _fix(fix: str, rank: int, path: str, width: int) -> Iterator[Text]:
    """Yield the first sentence; a paragraph that leads up to code, with the code. That there is more is said."""
    lines, more = first_of_fix(fix)
    for text in drawn_lines(lines):
        if text.no_wrap:
            text = Text(f"  {_code_line(text.plain[2:], width - 2)}", "cyan", no_wrap=True)
        yield text
    if more:
        yield Text(_all_of_it(rank, path, width), LABEL)


def _all_of_it(rank: int, path: str, width: int) -> str:
    """Return what explains a finding, to be pasted; FILE replaces a path that a line cannot show whole, as it is.

    >>> _all_of_it(1, "my run/trace.json", 80)
    "… all of it: tracemine explain 1 'my run/trace.json'"
    >>> _all_of_it(1, "my run/trace.json", 40)
    '… all of it: tracemine explain 1 FILE'
    """
    command = f"… all of it: tracemine explain {rank}"
    whole = f"{command} {shlex.quote(path)}"
    return whole if path not in _NO_PATHS and line(path) == path and len(whole) <= width else f"{command} FILE"


def _code_line(text: str, width: int) -> str:
    """Return a line of code in full: without its comment where both do not fit, wider than the terminal if it must be.

    >>> _code_line("x = f(x)    # not: x = f(f(x))", 12)
    'x = f(x)'
    >>> _code_line("x = a_long_name(x)    # in place", 12)
    'x = a_long_name(x)'
    """
    return text if len(text) <= width else text.partition("  #")[0].rstrip()


def _why_not(scan: Scan) -> Iterator[LabelledText]:
    """Yield what shares data and is not one kernel."""
    rows = []
    for (size, times), both, why in separate(scan):
        names = " → ".join(line(name, _LONGEST_NAME) for name in both)
        often = "" if times == "1" else f", {times} times"
        rows.append((size, Text.assemble(names, (f"{often}: {line(why)}", LABEL))))
    yield paragraph(("why not one kernel", "bold"))
    yield from (
        _counted(rows)
        if rows
        else [paragraph("Nothing that shares data was kept apart, or its dataflow is not known.")]
    )


def _foot(scan: Scan, hidden: int) -> Iterator[LabelledText]:
    if not scan.reported:
        yield paragraph((line(no_findings(scan)), "bold"))
        yield paragraph(nothing_found(scan))
    if hidden:
        yield paragraph(f"{words.shown_text(scan, hidden)}: --top 0 shows all")
    if text := words.little_text(scan):
        yield paragraph(text)
    if scan.dropped and (scan.refused is not None or not scan.reported):
        yield from labelled("skipped", Text(line(words.dropped_text(scan.dropped))))
    for number, warning in enumerate(notes_below(scan)):
        yield from labelled("" if number else "note", Text(line(warning)))
