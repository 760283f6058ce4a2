"""Where the host's time goes, as text of a screen and as rows of CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tracemine.report.escape import line
from tracemine.report.top_lines import OWN, Shown, TableLine, about, amount, lines_of, percent, table, unit_of
from tracemine.top import KIND_WORDS, HostRow, HostTop
from tracemine.units import count_text, percent_text, time_text

WINDOWS: Final[Mapping[str, str]] = {"whole": "as recorded", "light": "in the light window"}
COLUMNS: Final[Mapping[str, str]] = {
    "critical": "critical_ns",
    "launching": "launch_ns",
    "waiting": "wait_ns",
    "Python": "python_ns",
    "other": "other_ns",
}


def csv_rows(top: HostTop) -> Iterator[Sequence[object]]:
    """Yield a header and all rows, with the names that each is part of before its own."""
    names = [field for field in HostRow.__struct_fields__ if field not in ("name", "parent")]
    yield top.by, "part_of", *names, "per", "steps"
    for row in top.rows:
        inside = None if row.parent is None else top.rows[row.parent].name
        yield row.name, inside, *(getattr(row, name) for name in names), top.per, top.steps


def render_text(top: HostTop, shown: Shown) -> str:
    """Return a table with what it is of above it, and what to know of it below."""
    text = [*_head(top)]
    if top.rows:
        text += ["", *_table(top, shown), "", *_foot(top)]
    return "\n".join([*text, *(line(note) for note in top.notes)]) + "\n"


def _head(top: HostTop) -> Iterator[str]:
    if not top.rows:
        yield " · ".join(about(top))
        return
    each = "a step" if top.per == "step" else "in all that was recorded"
    spent = f"{time_text(top.host_ns / top.steps)} of host time {each}, {WINDOWS[top.window]}"
    yield " · ".join([*about(top), spent])
    steps = count_text(top.steps, "step") if top.per == "step" else ""
    alone = "" if top.unprofiled_ns is None else f"a step takes {time_text(top.unprofiled_ns)} unprofiled"
    if said := ", recording stretches them: ".join(filter(None, (steps, alone))):
        yield said


def _foot(top: HostTop) -> Iterator[str]:
    whole = max(top.host_ns, 1)
    parts = [f"{KIND_WORDS[kind.kind]} {percent_text(kind.host_ns, whole)}" for kind in top.kinds if kind.host_ns]
    yield ", ".join(parts)
    yield (
        f"critical: while no device was at work and waited for the next launch, "
        f"{time_text(top.critical_ns / top.steps)} ({percent_text(top.critical_ns, whole)})"
    )


def _table(top: HostTop, shown: Shown) -> Iterator[str]:
    lines = lines_of(top.rows, [row.host_ns for row in top.rows], shown)
    unit_ns, unit = unit_of(top.host_ns / top.steps)
    yield from table(lines, _columns(lines, top, unit_ns, unit), top.by, shown.width)


def _columns(
    lines: Sequence[TableLine[HostRow]], top: HostTop, unit_ns: int, unit: str
) -> list[tuple[str, Sequence[str]]]:
    """Return titles and cells of the columns in which something stands."""
    columns: list[tuple[str, Sequence[str]]] = [
        (unit, [amount(entry.spent_ns / top.steps / unit_ns) for entry in lines]),
        ("share", [percent(entry.spent_ns / max(top.host_ns, 1)) for entry in lines]),
    ]
    for title, field in COLUMNS.items():
        if any(getattr(row, field) for row in top.rows):
            columns.append((title, [_cell(entry, field, top.steps, unit_ns) for entry in lines]))
    return columns


def _cell(entry: TableLine[HostRow], field: str, steps: int, unit_ns: int) -> str:
    if entry.row is None or entry.name == OWN:
        return ""
    spent_ns = getattr(entry.row, field)
    return amount(spent_ns / steps / unit_ns) if spent_ns else "–"
