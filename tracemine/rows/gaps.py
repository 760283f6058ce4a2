"""The row set "gaps": one row a maximal interval in which a device did nothing, and why, from recorded facts alone.

A device is idle where none of its streams runs a kernel, a copy, a set or a collective, between its first and its last
activity. Gaps are not cut at step boundaries, so that over a device Σ gaps = span − busy. A gap belongs to the step
that the host was in for all of it. Where the host went from one step to the next meanwhile, the gap says so
(`between_steps`) and belongs to no step, because a profiler's own work at a step's end cannot be distinguished from the
program's.
Why it was idle is decided in idle_causes.py. What the host was at before a launch that came late is not the line that
launches, but what held it up.
"""

from __future__ import annotations

import numpy as np

from tracemine.rows.ancestors import nearest, taken
from tracemine.rows.arrow import categories, coded, joined, numbers, rows_of, take, take_numbers
from tracemine.rows.codes import combination_codes, grouped_running_maximum, segments
from tracemine.rows.host import is_graph_launch, threads
from tracemine.rows.idle_causes import CAUSES, Causes, causes_of
from tracemine.rows.table import BoolArray, Column, Flags, IntArray, Numbers, Rows
from tracemine.rows.user_frames import source_lines
from tracemine.timeline import Timeline

_LONG_NS = 1_000_000  # what is shorter is no work of its own: the launch's operator and what leads to it


def gap_rows(timeline: Timeline) -> Rows:
    """Return the idle intervals of each device with their cause.

    >>> from tracemine.timeline import Meta
    >>> gap_rows(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))).count
    0
    """
    activities, api, ops = timeline.activities, timeline.api, timeline.ops
    start, dur = (rows_of(activities.column(each)) for each in ("start_ns", "dur_ns"))
    device = numbers(activities.column("device"))
    place = combination_codes(device)
    previous, following = idle_intervals(start, dur, place)
    begin = start[previous] + dur[previous]
    end, gap = start[following], start[following] - begin
    why = causes_of(timeline, previous, following, begin, gap)
    launch, blamed, launched, by_op = why.launch, why.blamed_call, why.launch >= 0, why.blamed_op >= 0
    op_name, call_name = categories(ops.column("name")), categories(api.column("name"))
    launch_name = take(call_name, launch)
    step, between, opens = _steps(timeline, previous, following, begin)
    call_op, next_op_row = taken(rows_of(api.column("op_row")), blamed), rows_of(activities.column("op_row"))[following]
    host_work = joined(take(op_name, why.blamed_op), take(call_name, why.work_call))
    op = joined(take(op_name, np.where(by_op, -1, np.where(why.pointed, call_op, next_op_row))), host_work)
    op_module = take(categories(ops.column("module")), np.where(by_op, why.blamed_op, call_op))
    into, left = _in_steps(timeline, previous, following, begin, gap)
    stack = _stack(timeline, why, end - np.where(between, into, gap), end)
    own_launch = launched & ~is_graph_launch(launch_name)
    columns: dict[str, Column] = {
        "start_ns": Numbers(begin),
        "dur_ns": Numbers(gap),
        "device": take_numbers(device, following),
        "step": step,
        "segment": Numbers(segments(step)),
        "between_steps": Flags(between),
        "within_steps_ns": Numbers(into + left, between),
        "longest_in_step_ns": Numbers(np.maximum(into, left), between),
        "opens_step": Flags(opens),
        "cause": coded(CAUSES, why.cause),
        "op": op,
        "next_op": take(op_name, next_op_row),
        "next_kind": take(categories(activities.column("kind")), following),
        "module": joined(take(categories(api.column("module")), np.where(by_op, -1, blamed)), op_module),
        "source": take(source_lines(timeline.stacks), stack),
        "launch": launch_name,
        "sync": take(call_name, why.waiting),
        "host_work": host_work,
        "host_work_ns": Numbers(why.work_ns, why.work_ns > 0),
        "launch_late_ns": Numbers(why.late_ns, launched),
        "launch_dur_ns": take_numbers(numbers(api.column("dur_ns")), launch),
        "launch_excess_ns": Numbers(np.where(own_launch, why.launch_dur_ns - dur[following], 0), own_launch),
        "busy_before_ns": Numbers(_busy_before(begin, gap, start, place, following)),
        "blocked_ns": Numbers(np.where(why.waiting >= 0, why.blocked_ns, 0), why.waiting >= 0),
        "previous_row": Numbers(previous),
        "next_row": Numbers(following),
        "launch_row": Numbers(np.where(launched, launch, 0), launched),
        "sync_row": Numbers(np.where(why.sync >= 0, why.sync, 0), why.sync >= 0),
        "stack_row": Numbers(np.where(stack >= 0, stack, 0), stack >= 0),
    }
    return Rows("gaps", len(gap), columns)


def _stack(timeline: Timeline, why: Causes, begin: IntArray, end: IntArray) -> IntArray:
    """Return the row of `stacks` that leads to what is blamed; where the host was late, to what held it up since
    `begin`, a function or a line's operators."""
    of_call = taken(rows_of(timeline.api.column("stack_row")), why.blamed_call)
    of_op = taken(rows_of(timeline.ops.column("stack_row")), why.blamed_op)
    late = np.where(why.cause == CAUSES.index("host_bound"), why.launch, -1)
    held_up = held_up_in(timeline, late)
    held_up = np.where(held_up >= 0, held_up, worked_in(timeline, np.where(held_up < 0, late, -1), begin, end))
    return np.where(why.blamed_op >= 0, of_op, np.where(held_up >= 0, held_up, of_call))


def _busy_before(begin: IntArray, gap: IntArray, start: IntArray, place: IntArray, following: IntArray) -> IntArray:
    """Return, for each gap, how long its device had been busy since the gap before, or since its first activity."""
    order = np.lexsort((begin, place[following]))
    place_in_order = place[following][order]
    first = np.concatenate(([True], place_in_order[1:] != place_in_order[:-1]))[: len(order)]
    since = np.concatenate(([0], (begin + gap)[order][:-1]))[: len(order)]
    begins = np.full(int(place.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(begins, place, start)
    since[first] = begins[place_in_order[first]]
    busy = np.empty_like(begin)
    busy[order] = begin[order] - since
    return busy


def idle_intervals(start: IntArray, dur: IntArray, device: IntArray) -> tuple[IntArray, IntArray]:
    """Return rows of the activities before and after each interval in which a device is idle, in order of time.

    Before: the activity that ended last. Activities are in order of start; `device` is a code a row.

    >>> idle_intervals(np.array([0, 2, 20]), np.array([10, 3, 1]), np.array([0, 0, 0]))
    (array([0]), array([2]))
    """
    order = np.argsort(device, kind="stable")
    place = device[order]
    begins, ends = start[order], start[order] + dur[order]
    latest = grouped_running_maximum(ends, place)
    idle = np.flatnonzero((place[1:] == place[:-1]) & (begins[1:] > latest[:-1])) + 1
    # The row at which the running maximum was reached: it only grows where a row's own end is the latest.
    reached = np.where(ends == latest, np.arange(len(order)), 0)
    last = np.maximum.accumulate(reached) if len(reached) else reached
    previous, following = order[last[idle - 1]], order[idle]
    by_time = np.argsort(start[following], kind="stable")
    return previous[by_time].astype(np.int64), following[by_time].astype(np.int64)


def _in_steps(
    timeline: Timeline, previous: IntArray, following: IntArray, begin: IntArray, gap: IntArray
) -> tuple[IntArray, IntArray]:
    """Return how much of each gap passed since the host had begun the step of the next activity; and while it was
    still in the step of the activity before: not of several devices, whose step the others may hold up."""
    start, dur = (numbers(timeline.steps.column(name)).values.astype(np.int64) for name in ("start_ns", "dur_ns"))
    begun, ended = np.r_[np.iinfo(np.int64).max, start], np.r_[0, start + dur]
    step, end = segments(numbers(timeline.activities.column("step_row"))), begin + gap
    into = np.clip(end - np.minimum(begun[step[following]], end), 0, gap)
    until = np.minimum(np.minimum(ended[step[previous]], begun[step[following]]), end)
    device = numbers(timeline.activities.column("device")).values
    opens = (step[previous] != step[following]) & (step[following] > 0) & bool((device == device[:1]).all())
    return into, np.where(opens, np.maximum(until - begin, 0), 0)


def _steps(
    timeline: Timeline, previous: IntArray, following: IntArray, begin: IntArray
) -> tuple[Numbers, BoolArray, BoolArray]:
    """Return the step that the host was in throughout, null where none or several; where it was in several; and which
    gaps end with an activity of a step that the one before is not of.

    It was in the next activity's step if the one before is of it too, or it had begun when the device went idle.
    """
    number = segments(numbers(timeline.activities.column("step_row")))
    begun = np.r_[np.iinfo(np.int64).max, numbers(timeline.steps.column("start_ns")).values.astype(np.int64)]
    after = number[following]
    opens = number[previous] != after
    same = ~opens | (begun[after] <= begin)
    known = same & (after > 0)
    return Numbers(np.where(known, after - 1, 0), known), ~same, opens & (after > 0)


def held_up_in(timeline: Timeline, launch: IntArray) -> IntArray:
    """Return for each launch the row of `stacks` of the function that lasted through most of the time before it, -1
    where there is none. What the launch itself was made from lasts as well, and is no answer.
    """
    api = timeline.api
    lasting, stack = (taken(rows_of(api.column(name)), launch) for name in ("before_stack_row", "stack_row"))
    parent = rows_of(timeline.stacks.column("parent_row")).tolist()
    for at in np.flatnonzero(lasting >= 0).tolist():
        row = int(stack[at])
        while row > lasting[at]:  # callers stand before callees
            row = parent[row] if parent[row] < row else -1
        if row == lasting[at]:
            lasting[at] = -1
    return lasting


def worked_in(timeline: Timeline, launch: IntArray, begin: IntArray, end: IntArray) -> IntArray:
    """Return for each late launch the row of `stacks` of a line whose operators, before the one that launches, took
    more than half of [begin, end) on its thread; -1: none did, or that was no millisecond.
    """
    ops, found = timeline.ops, np.full(len(launch), -1, np.int64)
    asked = np.flatnonzero((launch >= 0) & (end - begin >= _LONG_NS))
    if not len(asked) or not timeline.stacks.num_rows:
        return found
    of_calls, of_ops = threads(timeline)
    started = rows_of(ops.column("start_ns")).astype(np.int64)
    ended, stack = started + rows_of(ops.column("dur_ns")), rows_of(ops.column("stack_row"))
    is_op = categories(ops.column("kind")).among("op")
    around = taken(nearest(rows_of(ops.column("parent_row")), is_op), rows_of(ops.column("parent_row")))
    whole = np.flatnonzero(is_op & (around < 0) & (stack >= 0))
    line = source_lines(timeline.stacks).codes
    called = rows_of(timeline.api.column("start_ns")).astype(np.int64)
    for at in asked.tolist():  # few: a device stood idle for a millisecond before each
        rows = whole[(of_ops[whole] == of_calls[launch[at]]) & (started[whole] >= begin[at])]
        rows = rows[(ended[rows] <= called[launch[at]]) & (line[stack[rows]] >= 0)]
        if not len(rows):
            continue
        spent = np.bincount(line[stack[rows]], weights=ended[rows] - started[rows])
        most = int(spent.argmax())
        if 2 * spent[most] > end[at] - begin[at]:
            of_line = rows[line[stack[rows]] == most]
            found[at] = stack[of_line[np.argmax(ended[of_line] - started[of_line])]]
    return found
