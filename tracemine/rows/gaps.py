"""The row set "gaps": one row a maximal interval in which a device did nothing, and why, from recorded facts alone.

A device is idle where none of its streams runs a kernel, a copy, a set or a collective, between its first and its last
activity. Gaps are not cut at step boundaries, so that over a device Σ gaps = span − busy. A gap belongs to the step
that the host was in for all of it. Where the host went from one step to the next meanwhile, the gap says so
(`between_steps`) and belongs to no step, because a profiler's own work at a step's end cannot be told from the
program's.

Why a gap came about is decided by the first line that holds:

    unknown           it is not longer than the clock's resolution
    unknown           both activities are of one graph replay: the graph's own order is not recorded
    unknown           the call that launched the next activity is not recorded
    unknown           most of it, and more than a launch takes, passed after that call had returned: the activity waited
                      for something that is not recorded (an event, another device, memory, a module being loaded)
    launch_latency    that call had returned before the device went idle: the work was queued
    synchronisation   the host was blocked on the device when it went idle, launched nothing before this, and was
                      blocked for at least half the time by which this launch came late
    host_bound        the call was not made, or not done, when the device went idle

The half: a host that waits for 8 µs and launches 140 µs later was behind without the wait. Taking the wait away closes
at most `blocked_ns` of the gap, so a gap that is called a synchronisation's is one at least half of which it can close.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tracemine.rows.activities import grouped_running_maximum, is_graph_launch, place_codes, segments
from tracemine.rows.arrow import categories, coded, joined, numbers, rows_of, take, take_numbers
from tracemine.rows.source import source_lines
from tracemine.rows.table import BoolArray, Flags, IntArray, Numbers, Rows
from tracemine.timeline import Timeline

# Host calls that return only when the device has done what was asked. Asynchronous copies that touch pageable memory
# are staged through a buffer and block as well; whether one does is told by the copy it launched.
_BLOCKING = re.compile(
    r"^(cuda|hip)(Device|Stream|Event)Synchronize|^cu(Ctx|Stream|Event)Synchronize"
    r"|^(cuda|hip)Memcpy(2D|3D|ToSymbol|FromSymbol|Peer|WithStream|[DH]to[DH])?(_ptds)?(_v\d+)?$|^cuMemcpy([DH]to[DH])?(_v\d+)?$"
    r"|^(cuda|hip)(Free|FreeHost|HostFree)$"
)
_ASYNCHRONOUS_COPY = re.compile(r"Memcpy\w*Async")
_HOST_WAITS = re.compile(r"^(Stream|Context|Event) Sync", re.IGNORECASE)  # kinds of recorded syncs that block the host
# From a launch call's return to its activity's start on an idle device: some 3 µs on NVIDIA, 25 µs on ROCm.
_LONGEST_LAUNCH_NS = 50_000
CAUSES = ("launch_latency", "host_bound", "synchronisation", "unknown")


def gap_rows(timeline: Timeline) -> Rows:
    """The idle intervals of each device with their cause.

    >>> from tracemine.timeline import Meta
    >>> gap_rows(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))).count
    0
    """
    activities, api = timeline.activities, timeline.api
    start, dur = (numbers(activities.column(each)).values.astype(np.int64) for each in ("start_ns", "dur_ns"))
    device = numbers(activities.column("device"))
    previous, following = idle_intervals(start, dur, place_codes(device))
    begin = start[previous] + dur[previous]
    gap = start[following] - begin
    launch_row = rows_of(activities.column("launch_row"))
    calls = _Calls.of(timeline, launch_row)
    launch = launch_row[following]
    launched = launch >= 0
    launch_begin = np.where(launched, calls.begin[launch] if len(calls.begin) else 0, 0)
    launch_end = np.where(launched, calls.end[launch] if len(calls.end) else 0, 0)
    resolution = timeline.meta.time_resolution_ns
    launch_name = take(categories(api.column("name")), launch)
    unresolved = (gap <= resolution) & (resolution > 1)
    inside_graph = launched & (launch == launch_row[previous]) & is_graph_launch(launch_name)
    queued = launched & (launch_end <= begin)
    after_launch = gap - np.maximum(launch_end - begin, 0)
    held_up = launched & (after_launch > _LONGEST_LAUNCH_NS) & (2 * after_launch > gap)
    undecided = launched & ~queued & ~inside_graph & ~unresolved & ~held_up
    waiting, blocked = _blocking_call(calls, launch, launch_row[previous], begin)
    waiting = np.where(undecided, waiting, -1)
    late = np.where(launched, launch_begin - begin, 0)
    sync = np.where(2 * blocked >= late, waiting, -1)
    cause = _first_that_holds(
        (unresolved | inside_graph | ~launched | held_up, "unknown"),
        (queued, "launch_latency"),
        (sync >= 0, "synchronisation"),
        (np.ones(len(gap), np.bool_), "host_bound"),
    )
    waited_for = np.where(sync >= 0, sync, launch)
    step, between = _steps(timeline, previous, following, begin)
    op_of_call = rows_of(api.column("op_row"))
    call_op = np.where(waited_for >= 0, op_of_call[waited_for], -1) if len(op_of_call) else waited_for
    next_op_row = rows_of(activities.column("op_row"))[following]
    ops = categories(timeline.ops.column("name"))
    modules = joined(
        take(categories(api.column("module")), waited_for), take(categories(timeline.ops.column("module")), call_op)
    )
    stack = rows_of(api.column("stack_row"))
    stack = np.where(waited_for >= 0, stack[waited_for], -1) if len(stack) else np.full(len(gap), -1, np.int64)
    own_launch = launched & ~is_graph_launch(launch_name)
    return Rows(
        "gaps",
        len(gap),
        {
            "start_ns": Numbers(begin),
            "dur_ns": Numbers(gap),
            "device": take_numbers(device, following),
            "step": step,
            "segment": Numbers(segments(step)),
            "between_steps": Flags(between),
            "cause": coded(CAUSES, cause),
            "op": take(ops, np.where(sync >= 0, call_op, next_op_row)),
            "next_op": take(ops, next_op_row),
            "next_kind": take(categories(activities.column("kind")), following),
            "module": modules,
            "source": take(source_lines(timeline.stacks), stack),
            "launch": launch_name,
            "sync": take(categories(api.column("name")), waiting),
            "launch_late_ns": Numbers(late, launched),
            "launch_dur_ns": take_numbers(numbers(api.column("dur_ns")), launch),
            "launch_excess_ns": Numbers(
                np.where(own_launch, launch_end - launch_begin - dur[following], 0), own_launch
            ),
            "busy_before_ns": Numbers(_busy_before(begin, gap, start, place_codes(device), following)),
            "blocked_ns": Numbers(np.where(waiting >= 0, blocked, 0), waiting >= 0),
            "previous_row": Numbers(previous),
            "next_row": Numbers(following),
            "launch_row": Numbers(np.where(launched, launch, 0), launched),
            "sync_row": Numbers(np.where(sync >= 0, sync, 0), sync >= 0),
            "stack_row": Numbers(np.where(stack >= 0, stack, 0), stack >= 0),
        },
    )


def _busy_before(begin: IntArray, gap: IntArray, start: IntArray, place: IntArray, following: IntArray) -> IntArray:
    """For each gap, how long its device had been busy since the gap before, or since its first activity."""
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
    """Rows of the activities before and after each interval in which a device is idle, in order of time.

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


def _first_that_holds(*decisions: tuple[BoolArray, str]) -> IntArray:
    """For each row, the position in CAUSES of the first decision that holds."""
    return np.select([holds for holds, _ in decisions], [CAUSES.index(cause) for _, cause in decisions]).astype(
        np.int64
    )


def _steps(timeline: Timeline, previous: IntArray, following: IntArray, begin: IntArray) -> tuple[Numbers, BoolArray]:
    """The step that the host was in throughout, null where it was in none or in several; and where it was in several.

    It was in the step of the next activity if the activity before is of that step, or if that step had begun on the
    host when the device went idle.
    """
    number = segments(numbers(timeline.activities.column("step_row")))
    begun = np.r_[np.iinfo(np.int64).max, numbers(timeline.steps.column("start_ns")).values.astype(np.int64)]
    after = number[following]
    same = (number[previous] == after) | (begun[after] <= begin)
    known = same & (after > 0)
    return Numbers(np.where(known, after - 1, 0), known), ~same


# --- which call blocked the host -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Calls:
    """The `api` table as arrays. `thread` is a code, −1 for a recorded sync, which has none."""

    begin: IntArray
    end: IntArray
    thread: IntArray
    launches: BoolArray  # the call launched an activity
    blocks: BoolArray  # the call waits for the device

    @staticmethod
    def of(timeline: Timeline, launch_row: IntArray) -> _Calls:
        api, activities = timeline.api, timeline.activities
        begin = numbers(api.column("start_ns")).values.astype(np.int64)
        end = begin + numbers(api.column("dur_ns")).values.astype(np.int64)
        kind, name = categories(api.column("kind")), categories(api.column("name"))
        is_sync = np.array([*(each == "sync" for each in kind.values), False], np.bool_)[kind.codes]
        by_name = np.array(
            [*((_BLOCKING.search(each) or _HOST_WAITS.search(each)) is not None for each in name.values), False],
            np.bool_,
        )[name.codes]
        staged = np.zeros(len(begin), np.bool_)
        pageable = np.zeros(activities.num_rows, np.bool_)
        for column in ("source_memory", "target_memory"):
            memory = categories(activities.column(column))
            pageable |= np.array([*(each == "pageable" for each in memory.values), False], np.bool_)[memory.codes]
        staged[launch_row[pageable & (launch_row >= 0)]] = True
        copies = np.array([*(_ASYNCHRONOUS_COPY.search(each) is not None for each in name.values), False], np.bool_)
        launches = np.zeros(len(begin), np.bool_)
        launches[launch_row[launch_row >= 0]] = True
        thread = np.where(is_sync, -1, place_codes(numbers(api.column("pid")), numbers(api.column("tid"))))
        return _Calls(begin, end, thread, launches, by_name | (staged & copies[name.codes]))


def _blocking_call(
    calls: _Calls, launch: IntArray, previous_launch: IntArray, idle_from: IntArray
) -> tuple[IntArray, IntArray]:
    """For each gap, the call that had the host blocked when the device went idle (−1: none did), and for how long.

    It began before the device went idle, ended after that and before the next launch began, and its thread launched
    nothing in between. Looked for on the thread that launched next, then on the one that launched before (a backward
    pass runs on a thread of its own), then among recorded syncs, which say no thread.
    """
    found, blocked = np.full(len(launch), -1, np.int64), np.zeros(len(launch), np.int64)
    if not len(calls.begin):
        return found, blocked
    next_begin = calls.begin[launch]
    own, other = calls.thread[launch], np.where(previous_launch >= 0, calls.thread[previous_launch], -2)
    free = calls.launches & ~calls.blocks
    for thread in (own, other, np.full(len(launch), -1, np.int64)):
        launching = np.where(thread < 0, own, thread)
        last = _last_ended(calls, calls.blocks, thread, next_begin)
        begin, end = calls.begin[last], calls.end[last]
        fits = (last >= 0) & (begin < idle_from) & (end >= idle_from) & (found < 0)
        # Nothing was launched in between: the thread's last launch before the next one began no later than this call.
        latest = _last_begun(calls, calls.launches, launching, next_begin)
        fits &= (latest < 0) | (calls.begin[latest] <= begin)
        latest_free = _last_begun(calls, free, launching, next_begin)
        since = np.where(latest_free >= 0, calls.begin[latest_free], np.iinfo(np.int64).min)
        found, blocked = (
            np.where(fits, last, found),
            np.where(fits, _blocked_since(calls, thread, since, last), blocked),
        )
    return found, blocked


def _blocked_since(calls: _Calls, thread: IntArray, since: IntArray, last: IntArray) -> IntArray:
    """Time that the thread spent in blocking calls begun after `since`, up to and with `last`; 0 without one."""
    rows = np.flatnonzero(calls.blocks)
    order = rows[np.lexsort((calls.end[rows], calls.thread[rows]))]
    if not len(order):
        return np.zeros(len(last), np.int64)
    place = np.zeros(len(calls.begin), np.int64)
    place[order] = np.arange(len(order))
    total = np.r_[0, np.cumsum(calls.end[order] - calls.begin[order])]
    before = _last(rows, calls.thread, calls.begin, thread, since, inclusive=True)
    first = np.where(before >= 0, place[before] + 1, np.searchsorted(calls.thread[order], thread))
    first = np.minimum(first, place[last])
    span = calls.end[last] - calls.begin[order[first]]  # a call inside another must not count twice
    return np.where(last >= 0, np.minimum(total[place[last] + 1] - total[first], span), 0)


def _last_ended(calls: _Calls, which: BoolArray, thread: IntArray, until: IntArray) -> IntArray:
    return _last(np.flatnonzero(which), calls.thread, calls.end, thread, until, inclusive=True)


def _last_begun(calls: _Calls, which: BoolArray, thread: IntArray, until: IntArray) -> IntArray:
    return _last(np.flatnonzero(which), calls.thread, calls.begin, thread, until, inclusive=False)


def _last(
    rows: IntArray, thread: IntArray, time: IntArray, wanted: IntArray, until: IntArray, *, inclusive: bool
) -> IntArray:
    """Of `rows`, the one of the `wanted` thread whose time is the last before `until` (or at it); −1: none."""
    if not len(rows):
        return np.full(len(wanted), -1, np.int64)
    # One number for thread and time, in the order of both. The least thread that is asked for is −2.
    moments, moment = np.unique(np.concatenate((time[rows], until)), return_inverse=True)
    key = (np.concatenate((thread[rows], wanted)) + 2) * len(moments) + moment
    order = np.argsort(key[: len(rows)], kind="stable")
    asked = np.searchsorted(key[order], key[len(rows) :], side="right" if inclusive else "left") - 1
    last = rows[order[np.maximum(asked, 0)]]
    return np.where((asked >= 0) & (thread[last] == wanted), last, -1)
