"""Where the host's time goes, as text of a screen, as CSV and as JSON."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Final

import msgspec

from tracemine.report.escape import json_text, line
from tracemine.report.top_lines import OWN, Shown, TableLine, amount, csv_text, lines_of, percent, table, unit_of
from tracemine.top import KIND_WORDS, HostRow, HostTop
from tracemine.units import count_text, percent_text, time_text

_COLUMNS: Final[Mapping[str, str]] = {
    "critical": "critical_ns",
    "launching": "launch_ns",
    "waiting": "wait_ns",
    "Python": "python_ns",
    "other": "other_ns",
}


def rendered(top: HostTop, form: str, shown: Shown) -> str:
    """Return a table as `json`, `csv` or text."""
    if form == "text":
        return render_text(top, shown)
    return (render_json if form == "json" else render_csv)(top)


def render_json(top: HostTop) -> str:
    """Return one object, all rows."""
    return json_text(msgspec.json.format(msgspec.json.encode(top), indent=1).decode()) + "\n"


def render_csv(top: HostTop) -> str:
    """Return a header and all rows, with the names that each is part of before its own."""
    out = StringIO()
    names = [field for field in HostRow.__struct_fields__ if field not in ("name", "parent")]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((top.by, "part_of", *names, "per", "steps"))
    for row in top.rows:
        inside = None if row.parent is None else csv_text(top.rows[row.parent].name)
        writer.writerow((csv_text(row.name), inside, *(getattr(row, name) for name in names), top.per, top.steps))
    return out.getvalue()


def render_text(top: HostTop, shown: Shown) -> str:
    """Return a table with what it is of above it, and what to know of it below."""
    text = [*_head(top)]
    if top.rows:
        text += ["", *_table(top, shown), "", *_foot(top)]
    return "\n".join([*text, *(line(note) for note in top.notes)]) + "\n"


def _head(top: HostTop) -> Iterator[str]:
    about = [line(Path(top.trace).name or top.trace, 60), line(top.gpu or "GPU not named", 40)]
    if not top.rows:
        yield " · ".join(about)
        return
    each = "a step" if top.per == "step" else "in all that was recorded"
    yield " · ".join([*about, f"{time_text(top.host_ns / top.steps)} of host time {each}, as recorded"])
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
    for title, field in _COLUMNS.items():
        if any(getattr(row, field) for row in top.rows):
            columns.append((title, [_cell(entry, field, top.steps, unit_ns) for entry in lines]))
    return columns


def _cell(entry: TableLine[HostRow], field: str, steps: int, unit_ns: int) -> str:
    if entry.row is None or entry.name == OWN:
        return ""
    spent_ns = getattr(entry.row, field)
    return amount(spent_ns / steps / unit_ns) if spent_ns else "–"
