"""Paragraphs of reports for a terminal, and what writes them: lines of a document behind a label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TextIO

from msgspec import Struct
from rich.console import Console
from rich.text import Text

from tracemine.documents.finding import CALM, CODE, Line
from tracemine.report.escape import line

if TYPE_CHECKING:
    from tracemine.report import Drawing

LABEL = "dim"
RANK_WIDTH = 4  # a rank and the space after it
LABEL_WIDTH = 10  # a label and the spaces after it
_LONGEST = 2000  # characters of a line


class LabelledText(Struct, frozen=True):
    """A paragraph with a label in front of its first line; the others are indented as far."""

    value: Text
    label: str = ""
    indent: int = 0  # of the label
    width: int = 0  # of the label with the spaces after it
    style: str | None = None  # of the label alone; null: the margin is as dim as the label

    def wrapped(self, console: Console) -> Iterator[Text]:
        margin = self.indent + self.width
        whole = self.value.no_wrap  # code: where the terminal breaks it, it can still be copied
        lines = [self.value] if whole else self.value.wrap(console, max(console.width - margin, 20)) or [Text()]
        for number, text in enumerate(lines):
            label = "" if number else " " * self.indent + self.label
            style = LABEL if self.style is None else "" if number else self.style
            row = Text.assemble((f"{label:<{margin}}", style), text)
            row.rstrip()
            yield row


def paragraph(*parts: str | tuple[str, str]) -> LabelledText:
    return LabelledText(Text.assemble(*parts))


def labelled(label: str, *values: Text, indent: int = 0) -> Iterator[LabelledText]:
    for value in values:
        yield LabelledText(value, label, indent, LABEL_WIDTH)
        label = ""


def plain(text: str) -> str:
    """Return a text on one line, as a terminal may show it."""
    return line(" ".join(text.split()), _LONGEST)


def drawn_lines(lines: Iterable[Line]) -> Iterator[Text]:
    """Yield lines of a document: code that can be copied as it is, and paragraphs."""
    for one in lines:
        if one.kind == CODE:
            for code in filter(str.strip, one.text.splitlines()):
                yield Text(f"  {line(code, _LONGEST)}", "cyan", no_wrap=True)
        else:
            yield Text(plain(one.text), LABEL if one.kind == CALM else "")


def console_for(out: TextIO, options: Drawing) -> Console:
    """Return what writes a report: nothing of it is taken for markup."""
    return Console(
        file=out,
        width=options.width,
        force_terminal=options.color,
        color_system="standard" if options.color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


def print_rows(console: Console, rows: Iterable[LabelledText]) -> None:
    """Write paragraphs, wrapped as wide as the terminal."""
    for row in rows:
        for wrapped in row.wrapped(console):
            console.print(wrapped, no_wrap=True, overflow="ignore", crop=False)
