"""Two recordings of a job side by side: as text, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tracemine.report.escape import line, prose_cell, table
from tracemine.report.json import json_of
from tracemine.units import range_text, time_text

if TYPE_CHECKING:
    from tracemine.ranks.compare import JobDifference
    from tracemine.ranks.record import Interval, JobStep

FORMATS = ("text", "json", "markdown")


def render(form: str, found: JobDifference, width: int) -> str:
    """Return the difference in one of these formats."""
    if form == "json":
        return json_of(found)
    made = _markdown(found) if form == "markdown" else _text(found, width)
    return "\n".join(made) + "\n"


def _text(found: JobDifference, width: int) -> Iterator[str]:
    yield _steps(found)
    yield f"{line(found.before)} → {line(found.after)}"
    yield ""
    for change in found.changes:
        text = line(f"{change.status:<9} {_costs(change.before):>9} → {_costs(change.after):<9} {change.title}")
        yield text if len(text) <= width else text[: width - 1] + "…"
    if not found.changes:
        yield "Nothing was found on either side."
    yield from (f"Note: {line(note)}" for note in found.notes)


def _markdown(found: JobDifference) -> Iterator[str]:
    yield f"## {_steps(found)}"
    yield ""
    rows = [
        (change.status, _costs(change.before), _costs(change.after), prose_cell(change.title))
        for change in found.changes
    ]
    yield table(("", "before", "after", "finding"), rows, {1, 2})
    yield ""
    yield from (f"*{prose_cell(note)}*" for note in found.notes)


def _steps(found: JobDifference) -> str:
    before, after = (_step(step) for step in (found.step_before_ns, found.step_after_ns))
    return f"Job's step without the profiler: {before} → {after}"


def _step(step: JobStep) -> str:
    return f"{time_text(step.mid)} ({range_text(step.low, step.high)})"


def _costs(saving: Interval | None) -> str:
    return "" if saving is None else time_text(saving.mid)
