"""Tables of a page: columns sort, and rows may lie within one another. Of a trace, a difference, or a fleet."""

from __future__ import annotations

from dataclasses import dataclass

from tracemine.report.html.figures import IntervalFigure


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table, and what its column sorts by."""

    text: str
    sorts: str
    figure: IntervalFigure | None = None
    bar: float | None = None  # a share, drawn as a bar
    code: str = ""
    whole: str = ""  # all of a text that is cut
    mark: str = ""  # `better` or `worse`
    links: tuple[tuple[str, str], ...] = ()  # anchors, and what they are called


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the page, under its title."""

    id: str
    title: str
    says: str
    columns: tuple[tuple[str, bool], ...]  # names, and whether numbers stand in it, which sort from the largest
    rows: tuple[tuple[Cell, ...], ...]
    depths: tuple[int, ...] = ()  # of rows, each before its parts; none: no row is part of another
    notes: tuple[str, ...] = ()


def text_cell(said: str, *, code: bool = False) -> Cell:
    """Return a cell that sorts by what it says."""
    return Cell("" if code else said, said, code=said if code else "")


def number_cell(of: float, said: str | None = None) -> Cell:
    """Return a cell that sorts by a number."""
    return Cell(f"{of:,}" if said is None else said, str(of))
