"""Tickets as files, for whoever files them by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tracemine.files import make_folder, write_file, writing
from tracemine.report.escape import prose
from tracemine.tickets.fixed import FixedFinding
from tracemine.tickets.markdown import body, markdown
from tracemine.tickets.record import TicketDraft

_OPENS, _SHOWN = "<!--", "<! --"  # as markdown.py has it: a hidden line is tracemine's own


def text_of(draft: TicketDraft) -> str:
    """Return a draft's text as Markdown, without hidden lines."""
    return markdown(draft.blocks)


def write_tickets(drafts: Iterable[TicketDraft], folder: Path) -> list[Path]:
    """Write FOLDER/IDENTITY.md for each draft: its title, and its text with the hidden lines.

    Raises UsageError where a file cannot be written, or something else than a file lies there.
    """
    texts = ((draft.mark.key, f"# {prose(draft.title).replace(_OPENS, _SHOWN)}\n\n{body(draft)}\n") for draft in drafts)
    return [*_written(texts, folder, ".md")]


def write_fixed(fixed: Iterable[tuple[str, FixedFinding]], folder: Path) -> list[Path]:
    """Write FOLDER/IDENTITY.fixed.md for each finding that is fixed: the comment to close its ticket with. As above."""
    return [*_written(((key, f"{said}\n") for key, said in fixed), folder, ".fixed.md")]


def _written(texts: Iterable[tuple[str, str]], folder: Path, ending: str) -> Iterator[Path]:
    """Write a file for each key and text."""
    with writing(folder):
        make_folder(folder)
    for key, text in texts:
        path = folder / f"{key.rpartition('/')[2]}{ending}"
        write_file(path, text, named=False)
        yield path
