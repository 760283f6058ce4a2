"""A difference as Markdown: for a pull request, a ticket, or the summary of a CI run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from tracemine.report import diff_words as words
from tracemine.report.escape import code, code_cell, prose, prose_cell, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracemine.comparison import Difference, FindingChange
    from tracemine.report import Drawing


def render(difference: Difference, out: TextIO, options: Drawing) -> None:
    """Write the report. What did not change stands folded at the end."""
    out.write("\n".join(_lines(difference, options)) + "\n")


def _lines(difference: Difference, options: Drawing) -> Iterator[str]:
    per = words.per_text(difference)
    yield f"# {code(words.title(difference))}\n"
    for text in words.incomparable_texts(difference):
        yield f"**Unknown:** {prose(text)}.\n"
    yield f"{prose(words.sides_text(difference))}. Times {per}.\n"
    span = "Step" if difference.per == "step" else "Span"
    took = (f"{span}, {words.basis_text(difference)}", *words.step_cells(difference.step))
    work = ("GPU work", *words.step_cells(difference.gpu_work))
    yield table(("", "before → after", "change", ""), [[*map(prose_cell, row)] for row in (took, work)]) + "\n"
    yield from (f"- **{label.capitalize()}** {prose(text)}" for label, text in words.facts(difference))
    yield f"- **Findings** {words.counts_text(difference)}\n"
    yield from _classes(difference)
    shown, more, same = words.changes_of(difference, options.top)
    if shown:
        yield _changes(shown)
    if more:
        yield f"\n{more:,} more changes are left out."
    if same:
        yield f"\n<details><summary>{len(same):,} the same</summary>\n"
        yield _changes(same[: options.top])
        yield "\n</details>"
    if difference.notes:
        yield ""
        yield from (f"> {prose(note)}\n>" for note in difference.notes[:-1])
        yield f"> {prose(difference.notes[-1])}"


def _classes(difference: Difference) -> Iterator[str]:
    """Yield the table of kernels by class, where both sides are one model's by two producers."""
    if rows := [*words.class_rows(difference)]:
        heads = (prose_cell(words.classes_text(difference)), "kernels", "time", "change", "fused")
        yield table(heads, [[*map(prose_cell, row)] for row in rows]) + "\n"


def _changes(changes: Sequence[FindingChange]) -> str:
    heads = ("", "before → after", "change", "finding", "where", "fingerprint")
    return table(heads, [[*_cells(change)] for change in changes])


def _cells(change: FindingChange) -> Iterator[str]:
    texts = [change.title, *filter(None, (change.reason, change.accepted and f"accepted: {change.accepted}"))]
    yield from (change.status, words.change_text(change.before_ns, change.after_ns))
    yield from (words.signed(change.after_ns - change.before_ns), "<br>".join(map(prose_cell, texts)))
    yield from (code_cell(words.where(change)), code_cell(words.marks(change)))
