"""Whether a timeline directory's rows can be what an ingest wrote. It may come from a stranger, as a trace may."""

from __future__ import annotations

from pathlib import Path

from tracemine.columns import MISSING, numbers
from tracemine.errors import Location, TimelineError
from tracemine.timeline import TABLES, Timeline

# The table that a row number counts in; `parent_row` counts in its own.
_COUNTED_IN = {"launch_row": "api", "op_row": "ops", "step_row": "steps", "stack_row": "stacks"}
_FURTHEST_NS = (1 << 62) - 1  # from the epoch, 146 years: a start and a duration add up within 64 bits


def checked(timeline: Timeline, directory: Path) -> Timeline:
    """The timeline, if its row numbers are rows, its times are times, and its rows stand in order of start.

    Raises TimelineError otherwise.
    """
    for name in TABLES:
        if wrong := _wrong(timeline, name):
            where = Location(str(directory / f"{name}.parquet"))
            raise TimelineError(f"is damaged: {wrong}", where=where, hint="ingest the profiler's export again")
    return timeline


def _wrong(timeline: Timeline, name: str) -> str | None:
    table = getattr(timeline, name)
    for column in table.column_names:
        counted_in = name if column == "parent_row" else _COUNTED_IN.get(column)
        if counted_in is not None:
            rows = numbers(table.column(column))
            beyond = getattr(timeline, counted_in).num_rows
            if ((rows != MISSING) & ((rows < 0) | (rows >= beyond))).any():
                return f"{column} holds a number that is no row of {counted_in}"
        elif column in ("start_ns", "dur_ns"):
            times = numbers(table.column(column))
            if ((times > _FURTHEST_NS) | (times < -_FURTHEST_NS)).any() or (column == "dur_ns" and (times < 0).any()):
                return f"{column} holds what is no time"
            if column == "start_ns" and (times[1:] < times[:-1]).any():
                return "its rows are not in order of start"
    return None
