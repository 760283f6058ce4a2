"""A difference for a person at a terminal: what differs besides the program, the step, then what became of what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from rich.text import Text

from tracemine.report import diff_words as words
from tracemine.report.escape import line
from tracemine.report.paragraphs import LABEL, LabelledText, console_for, paragraph, print_rows
from tracemine.units import count_text

if TYPE_CHECKING:
    from tracemine.comparison import Difference, FindingChange
    from tracemine.report import Drawing

_STYLES = {
    "new": "bold red",
    "worse": "red",
    "fixed": "bold green",
    "improved": "green",
    "moved": "yellow",
    "unknown": "yellow",
    "same": "dim",
}
_LABEL_WIDTH, _STATUS_INDENT, _STATUS_WIDTH = 11, 2, 10


def render(difference: Difference, out: TextIO, options: Drawing) -> None:
    """Write the report; nothing but text and, with `options.color`, styles."""
    print_rows(console_for(out, options), _rows(difference, options))


def _rows(difference: Difference, options: Drawing) -> Iterator[LabelledText]:
    for text in words.incomparable_texts(difference):
        yield _labelled("unknown", text)
    yield paragraph((line(words.title(difference)), "bold"))
    yield paragraph(line(words.sides_text(difference)))
    step = f"{words.step_text(difference.step)} ({words.basis_text(difference)})"
    yield _labelled("step" if difference.per == "step" else "span", step)
    yield _labelled("GPU work", words.step_text(difference.gpu_work))
    yield from (_labelled(label, text) for label, text in words.facts(difference))
    yield paragraph()
    yield from _classes(difference)
    shown, more, same = words.changes_of(difference, options.top)
    for change in shown:
        yield from _change(change)
    if more:
        yield paragraph(f"  … {count_text(more, 'more change')}: --top 0")
    if same:
        yield _status("same", Text(words.same_text(same)))
    if difference.changes:
        yield paragraph()
    yield paragraph(f"{words.counts_text(difference)}; times {words.per_text(difference)}")
    yield from (_labelled("note", note) for note in difference.notes)


def _classes(difference: Difference) -> Iterator[LabelledText]:
    rows = [*words.class_rows(difference)]
    if not rows:
        return
    yield paragraph(line(words.classes_text(difference)))
    widths = [max(len(row[at]) for row in rows) + 2 for at in range(4)]
    for row in rows:
        cells = "".join(f"{cell:<{width}}" for cell, width in zip(row[:4], widths, strict=True))
        yield LabelledText(Text(line(row[4], longest=400), "dim"), cells, 2, sum(widths), "")
    yield paragraph()


def _labelled(label: str, text: str) -> LabelledText:
    return LabelledText(Text(line(text, longest=2000)), label, 0, _LABEL_WIDTH, LABEL)


def _status(status: str, text: Text) -> LabelledText:
    return LabelledText(text, status, _STATUS_INDENT, _STATUS_WIDTH, _STYLES.get(status, ""))


def _change(change: FindingChange) -> Iterator[LabelledText]:
    cost = f"{words.change_text(change.before_ns, change.after_ns)}  {words.signed(change.after_ns - change.before_ns)}"
    yield _status(change.status, Text(f"{cost}  {line(change.title)}"))
    details = " · ".join(filter(None, (words.where(change), change.rule, words.marks(change))))
    yield _status("", Text(line(details), "dim"))
    for label, text in (("", change.reason), ("accepted: ", change.accepted)):
        if text:
            yield _status("", Text(f"{label}{line(text)}"))
