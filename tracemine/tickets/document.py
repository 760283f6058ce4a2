"""A ticket's text before it is Markdown or Jira's: a few kinds of blocks, which say what comes from the trace.

`Text` is ours, a rule's or a sentence of a finding: its `code` stays code, all else is text. `Name` comes from the
trace and is shown as code, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """A part of a line."""

    text: str


class Text(Run):
    """A sentence, or a part of one."""


class Strong(Run):
    """A sentence's part that is printed bold."""


class Name(Run):
    """A name from the trace."""


Runs = tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Runs on one line."""

    runs: Runs


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list."""

    items: tuple[Runs, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """Lines of code, whole."""

    text: str
    language: str


@dataclass(frozen=True, slots=True)
class TicketTable:
    """Cells below a head; those of the columns from `numbers` on are numbers."""

    head: tuple[str, ...]
    rows: tuple[tuple[Runs, ...], ...]


@dataclass(frozen=True, slots=True)
class Folded:
    """Blocks that a reader unfolds. title: ours, nothing of a trace."""

    title: str
    blocks: tuple[Block, ...]


Block = Paragraph | Bullets | Code | TicketTable | Folded


def listed(between: str, names: Iterable[str]) -> Iterator[Run]:
    """Yield names with a text between them."""
    for number, name in enumerate(names):
        yield from [Text(between)] if number else []
        yield Name(name)
