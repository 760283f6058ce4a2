"""Whether a timeline directory's rows can be what an ingest wrote. It may come from a stranger, as a trace may."""

from __future__ import annotations

import re
from itertools import accumulate
from pathlib import Path

from tracemine.columns import Array, numbers, string_ids
from tracemine.errors import InputError, Location, TimelineError
from tracemine.patterns import deferred
from tracemine.timeline import TABLES, Timeline

# The table that a row number counts in; `parent_row` counts in its own.
_COUNTED_IN = {
    "launch_row": "api",
    "op_row": "ops",
    "step_row": "steps",
    "stack_row": "stacks",
    "before_stack_row": "stacks",
    "since_stack_row": "stacks",
    "holder_stack_row": "stacks",
    "activity_row": "activities",
    "api_row": "api",
}
_MOST = (1 << 62) - 1  # two such numbers add up within 64 bits; nanoseconds from the epoch: 146 years
_TIMES = ("start_ns", "dur_ns")
_PLACES = ("position", "list_index")
_AMOUNTS = ("numel", "offset_elements", "itemsize_bytes")
_JSON = ("input_shapes", "input_dtypes", "input_strides", "concrete_inputs")
_DEEPEST = 100  # a list of lists of shapes is three deep; what reads it recurses
_STRING = deferred(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def checked(timeline: Timeline, directory: Path) -> Timeline:
    """Return the timeline, if it is sound. Raises TimelineError otherwise.

    Row numbers are rows, times are times, rows stand in order of start, positions and amounts are possible, and JSON
    texts can be parsed.
    """
    for name in TABLES:
        if wrong := _wrong(timeline, name):
            where = Location(str(directory / f"{name}.parquet"))
            raise TimelineError(f"is damaged: {wrong}", where=where, hint="ingest the profiler's export again")
    return timeline


def check_times(timeline: Timeline, path: Path) -> Timeline:
    """Return the timeline that a reader made of a file, if its times are times and its rows stand in order of start.

    Raises InputError otherwise.
    """
    for name in TABLES:
        table = getattr(timeline, name)
        for column in sorted({*_TIMES} & {*table.column_names}):
            if wrong := _wrong_times(column, numbers(table.column(column))):
                raise InputError(f"cannot be a timeline: in its {name} {wrong}", where=Location(str(path)))
    return timeline


def _wrong_times(column: str, times: Array) -> str | None:
    if _is_beyond(times) or (column == "dur_ns" and (times < 0).any()):
        return f"{column} holds what is no time"
    return "its rows are not in order of start" if column == "start_ns" and (times[1:] < times[:-1]).any() else None


def _wrong(timeline: Timeline, name: str) -> str | None:
    table = getattr(timeline, name)
    for column in table.column_names:
        counted_in = name if column == "parent_row" else _COUNTED_IN.get(column)
        if counted_in is not None:
            rows = numbers(table.column(column))
            beyond = getattr(timeline, counted_in).num_rows
            if ((rows < 0) | (rows >= beyond)).sum() > table.column(column).null_count:  # a null is MISSING, below 0
                return f"{column} holds a number that is no row of {counted_in}"
        elif column in _TIMES:
            if wrong := _wrong_times(column, numbers(table.column(column))):
                return wrong
        elif column in _PLACES and (numbers(table.column(column), 0) < 0).any():
            return f"{column} holds a negative number"
        elif column in _AMOUNTS and _is_beyond(numbers(table.column(column), 0)):
            return f"{column} holds more than can be"
        elif column in _JSON and any(map(_is_deep, string_ids(table.column(column))[1])):
            return f"{column} holds JSON that is nested more deeply than any trace's"
    return None


def _is_beyond(values: Array) -> bool:
    return bool(((values > _MOST) | (values < -_MOST)).any())


def _is_deep(text: str) -> bool:
    """Return whether a JSON text nests so deeply that taking it apart could fail.

    >>> _is_deep("[" * 101 + "]" * 101), _is_deep("[[1, 2], []]" * 101), _is_deep('["' + "[" * 101 + '"]')
    (True, False, False)
    """
    if text.count("[") + text.count("{") <= _DEEPEST:
        return False
    brackets = (sign for sign in _STRING.sub("", text) if sign in "[]{}")
    return max(accumulate(1 if sign in "[{" else -1 for sign in brackets), default=0) > _DEEPEST
