"""A difference for a person at a terminal: what differs besides the program, the step, then what became of what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from rich.text import Text

from tracemine.report import diff_words as words
from tracemine.report.escape import line
from tracemine.report.paragraphs import console_for
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
_LABEL_WIDTH = 11
_STATUS_WIDTH = 10


def render(difference: Difference, out: TextIO, options: Drawing) -> None:
    """Write the report; nothing but text and, with `options.color`, styles."""
    console = console_for(out, options)
    for margin, text in _rows(difference, options):
        if not text:
            console.print()
            continue
        lines = text[margin:].wrap(console, max(console.width - margin, 20))
        for number, one in enumerate(lines):
            row = Text.assemble(text[:margin] if not number else " " * margin, one)
            row.rstrip()
            console.print(row, soft_wrap=True)


def _rows(difference: Difference, options: Drawing) -> Iterator[tuple[int, Text]]:
    """Yield paragraphs: how wide the label is, and the text with it."""
    for text in words.incomparable_texts(difference):
        yield _labelled("unknown", text)
    yield 0, Text(line(words.title(difference)), "bold")
    yield 0, Text(line(words.sides_text(difference)))
    per = words.per_text(difference)
    yield _labelled(
        "step" if difference.per == "step" else "span",
        f"{words.step_text(difference.step)} ({words.basis_text(difference)})",
    )
    yield _labelled("GPU work", words.step_text(difference.gpu_work))
    for text in words.predicted_texts(difference):
        yield _labelled("predicted", text)
    for text in words.differs_texts(difference):
        yield _labelled("differs", text)
    yield _labelled("noise", words.noise_text(difference.noise))
    yield 0, Text()
    yield from _classes(difference)
    changed = [change for change in difference.changes if change.status != "same"]
    shown = changed[: options.top]
    for change in shown:
        yield from _change(change)
    if len(shown) < len(changed):
        yield 0, Text(f"  … {count_text(len(changed) - len(shown), 'more change')}: --top 0")
    if same := [change for change in difference.changes if change.status == "same"]:
        yield _STATUS_WIDTH + 2, Text.assemble(_status("same"), words.same_text(same))
    if difference.changes:
        yield 0, Text()
    yield 0, Text(f"{words.counts_text(difference)}; times {per}")
    for note in difference.notes:
        yield _labelled("note", note)


def _classes(difference: Difference) -> Iterator[tuple[int, Text]]:
    rows = [*words.class_rows(difference)]
    if not rows:
        return
    yield 0, Text(line(words.classes_text(difference)))
    widths = [max(len(row[at]) for row in rows) + 2 for at in range(4)]
    for row in rows:
        cells = "".join(f"{cell:<{width}}" for cell, width in zip(row[:4], widths, strict=True))
        yield 2 + sum(widths), Text.assemble(f"  {cells}", (line(row[4], longest=400), "dim"))
    yield 0, Text()


def _labelled(label: str, text: str) -> tuple[int, Text]:
    return _LABEL_WIDTH, Text.assemble((f"{label:<{_LABEL_WIDTH}}", "dim"), line(text, longest=2000))


def _status(status: str) -> tuple[str, str]:
    return f"  {status:<{_STATUS_WIDTH}}", _STYLES.get(status, "")


def _change(change: FindingChange) -> Iterator[tuple[int, Text]]:
    margin = _STATUS_WIDTH + 2
    cost = f"{words.change_text(change.before_ns, change.after_ns)}  {words.signed(change.after_ns - change.before_ns)}"
    yield margin, Text.assemble(_status(change.status), f"{cost}  ", line(change.title))
    details = " · ".join(filter(None, (words.where(change), change.rule, words.marks(change))))
    yield margin, Text.assemble(" " * margin, (line(details), "dim"))
    for label, text in (("", change.reason), ("accepted: ", change.accepted)):
        if text:
            yield margin, Text.assemble(" " * margin, f"{label}{line(text)}")
