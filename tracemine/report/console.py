"""What reports for a terminal are written with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

from rich.console import Console

if TYPE_CHECKING:
    from tracemine.report import Drawing
    from tracemine.report.paragraphs import LabelledText


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
