"""A timeline with the times of its light window: the host's part is measured there, not guessed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from tracemine.columns import from_numbers, sorted_unique, with_columns
from tracemine.host.kinds import threads_of
from tracemine.rows.arrow import rows_of
from tracemine.rows.host import threads
from tracemine.rows.table import IntArray
from tracemine.timeline import Timeline


def in_light(timeline: Timeline) -> Timeline:
    """Return the timeline with each activity, call and operator when it came in the light window, rows as they stand.

    Launches and waits, what they launch and steps were recorded there. What lies between two of these on a thread, of
    operators and other calls, has the same share of the time between as it had in the trace. What comes before the
    first step or after the last is as long as it was, and so are what it launched and the time between.

    >>> from tracemine.timeline import Meta
    >>> in_light(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))).activities.num_rows
    0
    """
    light = timeline.light
    if not light.num_rows:
        return timeline
    start, dur = rows_of(light["start_ns"]), rows_of(light["dur_ns"])
    of_calls, of_ops = threads(timeline)
    steps, calls = (_told(light, f"{name}_row", start, dur) for name in ("step", "api"))
    step_begin, step_end = _times(timeline.steps)
    call_begin, call_end = _times(timeline.api)
    bounds = _Bounds(step_begin[steps.row], step_end[steps.row], steps)
    ops = _moved(_times(timeline.ops), of_ops, call_begin, call_end, of_calls, calls, bounds)
    api = _moved((call_begin, call_end), of_calls, call_begin, call_end, of_calls, calls, bounds)
    api = _set(api, calls)
    activities = _on_device(_times(timeline.activities), _told(light, "activity_row", start, dur))

    def beside(times: tuple[IntArray, IntArray], *of: IntArray) -> tuple[IntArray, IntArray]:
        thread = threads_of(timeline, np.concatenate((of_ops, of_calls)), *of)
        return _moved(times, thread, call_begin, call_end, of_calls, calls, bounds)

    garbage, locks = timeline.meta.garbage_ns, timeline.lock_waits
    if garbage:
        since, until, tid = np.array(garbage, np.int64).T
        garbage = tuple(zip(*(each.tolist() for each in (*beside((since, until), tid), tid)), strict=True))
    return replace(
        timeline,
        meta=replace(timeline.meta, garbage_ns=garbage),
        lock_waits=_timed(locks, beside(_times(locks), rows_of(locks["tid"]), rows_of(locks["pid"]))),
        activities=_timed(timeline.activities, activities),
        ops=_timed(timeline.ops, ops),
        api=_timed(timeline.api, api),
        steps=_timed(timeline.steps, _set((step_begin, step_end), steps)),
    )


def waits_ns(timeline: Timeline, call: IntArray, recorded_ns: IntArray) -> IntArray:
    """Return for how long each of these calls (−1: none) blocked the host in the light window; else as recorded.

    A host that is slowed down comes later, and waits less.
    """
    row, dur = rows_of(timeline.light["api_row"]), rows_of(timeline.light["dur_ns"])
    of_call = np.full(timeline.api.num_rows + 1, -1, np.int64)
    of_call[row[row >= 0]] = dur[row >= 0]
    light = of_call[call]
    return np.where(light >= 0, light, recorded_ns)


class _Told:
    """Rows of a table, and when each begins and ends in the light window."""

    def __init__(self, row: IntArray, begin: IntArray, end: IntArray) -> None:
        self.row, self.begin, self.end = row, begin, end


class _Bounds:
    """When steps begin and end in the trace, and in the light window."""

    def __init__(self, begin: IntArray, end: IntArray, told: _Told) -> None:
        self.recorded = np.concatenate((begin, end))
        self.light = np.concatenate((told.begin, told.end))


def _told(light: pa.Table, column: str, start: IntArray, dur: IntArray) -> _Told:
    row = rows_of(light[column])
    known = np.flatnonzero(row >= 0)
    return _Told(row[known], start[known], start[known] + dur[known])


def _times(table: pa.Table) -> tuple[IntArray, IntArray]:
    begin = rows_of(table["start_ns"])
    return begin, begin + rows_of(table["dur_ns"])


def _set(times: tuple[IntArray, IntArray], told: _Told) -> tuple[IntArray, IntArray]:
    begin, end = times[0].copy(), times[1].copy()
    begin[told.row], end[told.row] = told.begin, told.end
    return begin, end


def _on_device(times: tuple[IntArray, IntArray], told: _Told) -> tuple[IntArray, IntArray]:
    """Return times of activities; what is in no step is as far from what ran before as it was, or from the first."""
    begin, end = times
    if not len(told.row):
        return times
    order = np.argsort(begin[told.row], kind="stable")
    row, later = told.row[order], (told.begin - begin[told.row])[order]
    before = np.maximum(np.searchsorted(begin[row], begin, side="right") - 1, 0)
    return _set((begin + later[before], end + later[before]), told)


def _moved(
    times: tuple[IntArray, IntArray],
    thread: IntArray,
    call_begin: IntArray,
    call_end: IntArray,
    of_calls: IntArray,
    told: _Told,
    bounds: _Bounds,
) -> tuple[IntArray, IntArray]:
    """Return times of host events as those of the light window, by what is known of their threads."""
    begin, end = times[0].copy(), times[1].copy()
    for code in sorted_unique(thread).tolist():
        own = np.flatnonzero(of_calls[told.row] == code)
        rows = told.row[own]
        recorded = np.concatenate((call_begin[rows], call_end[rows], bounds.recorded))
        light = np.concatenate((told.begin[own], told.end[own], bounds.light))
        order = np.lexsort((light, recorded))
        recorded, light = recorded[order], np.maximum.accumulate(light[order])
        of_thread = np.flatnonzero(thread == code)
        begin[of_thread], end[of_thread] = (_at(time[of_thread], recorded, light) for time in times)
    return begin, np.maximum(begin, end)


def _at(time: IntArray, recorded: IntArray, light: IntArray) -> IntArray:
    """Return times of one clock as times of the other, by moments that are known of both; outside, as far from them.

    >>> _at(np.array([0, 15, 50]), np.array([10, 20]), np.array([110, 112])).tolist()
    [100, 111, 142]
    """
    origin, base = int(recorded[0]), int(light[0])  # so that a float holds the rest to the nanosecond
    within = base + np.interp(time - origin, recorded - origin, (light - base).astype(np.float64)).astype(np.int64)
    moved = np.where(time < recorded[0], time - origin + base, within)
    return np.where(time > recorded[-1], time - int(recorded[-1]) + int(light[-1]), moved)


def _timed(table: pa.Table, times: tuple[IntArray, IntArray]) -> pa.Table:
    begin, end = times
    columns = {"start_ns": begin, "dur_ns": np.maximum(end - begin, 0)}
    return with_columns(table, {name: from_numbers(each, pa.int64()) for name, each in columns.items()})
