"""A ticket's text before it is Markdown or Jira's: a few kinds of blocks, which say what comes from the trace.

`Text` is ours, a rule's or a sentence of a finding: its `code` stays code, all else is text. `Name` comes from the
trace and is shown as code, whatever it holds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """A sentence, or a part of one."""

    text: str


@dataclass(frozen=True, slots=True)
class Strong:
    """A sentence's part that is printed bold."""

    text: str


@dataclass(frozen=True, slots=True)
class Name:
    """A name from the trace."""

    text: str


Run = Text | Strong | Name
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
