"""Tickets as files, for whoever files them by hand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tracemine.files import make_folder, write_file, writing
from tracemine.report.escape import prose
from tracemine.tickets.markdown import body
from tracemine.tickets.record import Draft

_OPENS, _SHOWN = "<!--", "<! --"  # as markdown.py has it: a hidden line is tracemine's own


def write_tickets(drafts: Iterable[Draft], folder: Path) -> list[Path]:
    """Write FOLDER/IDENTITY.md for each draft: its title, and its text with the hidden lines.

    Raises UsageError where a file cannot be written, or something else than a file lies there.
    """
    with writing(folder):
        make_folder(folder)
    paths = []
    for draft in drafts:
        path = folder / f"{draft.mark.key.rpartition('/')[2]}.md"
        write_file(path, f"# {prose(draft.title).replace(_OPENS, _SHOWN)}\n\n{body(draft)}\n", named=False)
        paths.append(path)
    return paths
