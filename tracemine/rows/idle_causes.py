"""Causes of idle time: one a gap, from recorded facts alone.

The first decision that holds gives the cause; docs.py explains them in the same order (CAUSE_SAYS).

The half: a host that waits for 8 µs and launches 140 µs later was behind without the wait. Taking the wait away closes
at most `blocked_ns` of the gap, so a gap that is called a synchronisation's is one at least half of which it can close.

Graph replays of which the trace lacks kernels: while one may be running, a device that looks idle may not be.

A profiler can miss a replay's kernels: graphs are traced as a whole or not at all, buffers ran over, recording began
after the graph was made. The call that launched it is there all the same, and says since when the device may have been
busy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from msgspec import Struct

from tracemine.columns import codes, sorted_unique
from tracemine.ops import lookup
from tracemine.patterns import deferred
from tracemine.rows.ancestors import nearest
from tracemine.rows.arrow import categories, numbers, rows_of, take
from tracemine.rows.captures import captured
from tracemine.rows.codes import first_rows
from tracemine.rows.host import (
    WORK,
    HostCalls,
    HostWork,
    Intervals,
    blocking_call,
    is_graph_launch,
    last_begun,
    named,
    threads,
)
from tracemine.rows.rounds import wait_of_fetch, wait_of_round
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline

# From a launch call's return to its activity's start on an idle device: some 3 µs on NVIDIA, 25 µs on ROCm.
_LONGEST_LAUNCH_NS = 50_000
_LOADING_LAUNCH_NS = 100_000  # a launch that has nothing to load takes some five, and ten where it is recorded
_LIBRARIES = frozenset({"gemm", "conv", "attention"})  # classes of operators that libraries with handles run
_WARM_UP = deferred(r"(?<![a-z])warm[-_ ]?up(?![a-z])", re.IGNORECASE)
_ALLOCATIONS = [at for at, kind in enumerate(WORK) if kind.cause == "allocator"]
_BY_OPERATORS = np.array([*(kind.calls is None for kind in WORK), False], np.bool_)  # and for no kind, -1
CAUSES = (
    *("launch_latency", "host_bound", "synchronisation", "after_wait", "event_wait", "allocator", "module_load"),
    *("compilation", "data_loading", "graph_launch", "graph_replay", "graph_not_recorded", "graph_capture", "unknown"),
)
_EVENT = deferred("Event")  # a wait for an event can be one for an event from before the replay
_MOST_STREAMS = 256  # of a made-up trace with more it is never said that a replay is over
_NEVER = np.iinfo(np.int64).max


class Causes(Struct, frozen=True, kw_only=True):
    """Cause of each gap, and what that rests on. Rows are −1 where there is none."""

    cause: IntArray  # position in CAUSES
    launch: IntArray  # row of `api`: the call that launched the next activity
    late_ns: IntArray  # by how long that began after the device went idle; 0 where it is not recorded
    launch_dur_ns: IntArray
    waiting: IntArray  # row of `api`: the call that had the host blocked when the device went idle
    blocked_ns: IntArray
    sync: IntArray  # the same where that call is the cause
    work_call: IntArray  # row of `api`: the allocation or the module's loading that the cause names
    blamed_call: IntArray  # row of `api`: the waiting call, else the work's, else the launch
    blamed_op: IntArray  # row of `ops`: the loader's or compiler's, where that is the cause
    work_ns: IntArray  # time in the gap that work of the cause's kind took

    @property
    def pointed(self) -> BoolArray:
        """Where the cause is a call of its own, not the launch that came late."""
        return (self.sync >= 0) | (self.work_call >= 0)


def causes_of(timeline: Timeline, previous: IntArray, following: IntArray, begin: IntArray, gap: IntArray) -> Causes:
    """Return the cause of each gap between the activities `previous` and `following`, from `begin` on for `gap` ns."""
    launch_row, (call_thread, op_thread) = rows_of(timeline.activities.column("launch_row")), threads(timeline)
    calls = HostCalls.of(timeline, launch_row, call_thread)
    launch, before, launched = launch_row[following], launch_row[previous], launch_row[following] >= 0
    launch_begin, launch_end = (np.append(each, 0)[launch] for each in (calls.begin, calls.end))  # 0: not recorded
    replays = is_graph_launch(take(categories(timeline.api.column("name")), launch))
    within, queued = launched & (launch == before), launched & (launch_end <= begin)
    unresolved = (gap <= timeline.meta.time_resolution_ns) & (timeline.meta.time_resolution_ns > 1)
    held_up = launched & _passed_after(launch_end, begin, gap)
    told_to_wait = _told_to_wait(calls, launch)
    missing = _graph_may_run(timeline, calls, launch[replays & held_up & (within | ~told_to_wait)], begin, begin + gap)
    undecided = launched & ~(queued | (within & replays) | unresolved | missing | held_up)
    waiting, blocked = _asked(undecided, partial(blocking_call, calls), launch, before, begin)
    late = np.where(launched, launch_begin - begin, 0)
    sync = np.where(2 * blocked >= late, waiting, -1)
    in_call = np.minimum(launch_end, begin + gap) - np.maximum(launch_begin, begin)
    loads = _first_of_its_name(timeline)[following] & (in_call >= np.maximum(_LOADING_LAUNCH_NS, gap / 2))
    work = partial(_work, timeline, calls, op_thread)
    works, row, spent = _asked(undecided, work, launch, before, begin, begin + gap)
    allocates, sets_up = _allocates(timeline), _sets_up(timeline)
    freeing = (sync >= 0) & allocates[sync]
    fetch = wait_of_fetch(timeline, calls, before, launch, following)
    round_wait = np.where(fetch >= 0, fetch, wait_of_round(timeline, calls, allocates, launch_row, launch))
    cause = _first_that_holds(
        (unresolved, "unknown"),
        (missing, "graph_not_recorded"),
        (captured(timeline, begin, begin + gap), "graph_capture"),
        (within & replays, "graph_replay"),
        (~launched, "unknown"),
        (held_up & told_to_wait, "event_wait"),
        (held_up, "unknown"),
        (queued, "launch_latency"),
        (freeing & sets_up[sync], "module_load"),
        (freeing, "allocator"),
        (sync >= 0, "synchronisation"),
        (replays & (2 * (begin + gap - np.maximum(launch_begin, begin)) >= gap), "graph_launch"),
        (sets_up[np.where(np.isin(works, _ALLOCATIONS), row, -1)], "module_load"),
        *((works == at, kind.cause) for at, kind in enumerate(WORK)),
        (loads, "module_load"),
        (round_wait >= 0, "after_wait"),
        (np.ones(len(gap), np.bool_), "host_bound"),
    )
    sync = np.where(cause == CAUSES.index("after_wait"), round_wait, sync)
    by_work = (works >= 0) & (sync < 0) & ~(cause == CAUSES.index("graph_launch"))
    of_op = by_work & _BY_OPERATORS[works]
    work_call = np.where(by_work & ~of_op, row, -1)
    return Causes(
        cause=cause,
        launch=launch,
        late_ns=late,
        launch_dur_ns=launch_end - launch_begin,
        waiting=waiting,
        blocked_ns=blocked,
        sync=sync,
        work_call=work_call,
        blamed_call=np.where(sync >= 0, sync, np.where(work_call >= 0, work_call, launch)),
        blamed_op=np.where(of_op, row, -1),
        work_ns=np.where(by_work, spent, 0),
    )


def _passed_after(launch_end: IntArray, begin: IntArray, gap: IntArray) -> BoolArray:
    """Return whether most of a gap, and more than a launch takes, passed after the launch call had returned."""
    after = gap - np.maximum(launch_end - begin, 0)
    most: BoolArray = (after > _LONGEST_LAUNCH_NS) & (2 * after > gap)
    return most


def _asked(some: BoolArray, find: Callable[..., Sequence[IntArray]], *columns: IntArray) -> IntArray:
    """Return what `find` gives for some rows of these columns, −1 of the others."""
    found = find(*(column[some] for column in columns))
    told = np.full((len(found), len(some)), -1)
    told[:, some] = found
    return told


def _graph_may_run(
    timeline: Timeline, calls: HostCalls, holes: IntArray, since: IntArray, until: IntArray
) -> BoolArray:
    """Return whether a graph of which kernels are missing may have run in each [since, until).

    `holes`: calls whose replay is longer without a record than a launch takes; a graph does not wait inside.
    """
    incomplete = sorted_unique(np.append(under_recorded(timeline), holes))
    if not len(incomplete):
        return np.zeros(len(since), np.bool_)
    return overlaps(*may_be_running(timeline, calls, incomplete), since, until)


def _work(
    timeline: Timeline,
    calls: HostCalls,
    op_thread: IntArray,
    launch: IntArray,
    before: IntArray,
    since: IntArray,
    until: IntArray,
) -> tuple[IntArray, IntArray, IntArray]:
    """Return, for each [since, until), the first kind of WORK that took at least half of it: its position, the last
    call or operator of that kind (row of `api` or `ops`), and the time. −1, −1 and 0 where there is none.

    Looked for on the thread that launched next and on the one that launched before.
    """
    kind, row, spent = (np.full(len(launch), each, np.int64) for each in (-1, -1, 0))
    for at, work in enumerate(WORK):
        done = _done(timeline, calls, op_thread, work)
        if not len(done.row):
            continue
        for caller in (launch, before):
            thread = np.where(caller >= 0, calls.thread[caller], -2)
            time = done.covered(thread, since, until)
            holds = (kind < 0) & (time > 0) & (2 * time >= until - since)
            last = done.row[done.last_begun(thread, until)]
            kind, row, spent = np.where(holds, at, kind), np.where(holds, last, row), np.where(holds, time, spent)
    return kind, row, spent


def _done(timeline: Timeline, calls: HostCalls, op_thread: IntArray, work: HostWork) -> Intervals:
    """Return when threads did a kind of work; rows are those of `api` or `ops`."""
    if work.calls is not None:
        rows = np.flatnonzero(named(categories(timeline.api.column("name")), work.calls))
        return Intervals.of(rows, calls.thread[rows], calls.begin[rows], calls.end[rows])
    assert work.operators is not None  # noqa: S101 - each kind of work has one of the two
    rows = np.flatnonzero(named(categories(timeline.ops.column("name")), work.operators))
    if not len(rows):
        return Intervals.of(*[rows] * 4)
    begin, dur = (numbers(timeline.ops.column(name)).values[rows].astype(np.int64) for name in ("start_ns", "dur_ns"))
    return Intervals.of(rows, op_thread[rows], begin, begin + dur)


def _allocates(timeline: Timeline) -> BoolArray:
    """Return which rows of `api` allocate or free memory."""
    (pattern,) = (work.calls for work in WORK if work.cause == "allocator" and work.calls is not None)
    allocates = named(categories(timeline.api.column("name")), pattern)
    return allocates if len(allocates) else np.zeros(1, np.bool_)


def _sets_up(timeline: Timeline) -> BoolArray:
    """Return which rows of `api` lie directly in a library operator's first call, or below a warm-up.

    A library makes its handle and workspace at its first call; the allocator's calls lie in `aten::empty`.
    """
    ops = timeline.ops
    name, op_row = categories(ops.column("name")), rows_of(timeline.api.column("op_row"))
    if not len(op_row) or not len(name.codes):
        return np.zeros(len(op_row) + 1, np.bool_)
    library = np.array([(found := lookup(text)) is not None and found.op_class in _LIBRARIES for text in name.values])
    calls = np.flatnonzero(np.append(library, False)[name.codes])
    begun = first_rows(name.codes[calls], len(name.values))
    first = np.zeros(len(name.codes), np.bool_)
    first[calls[begun[begun >= 0]]] = True
    warms = np.append([_WARM_UP.search(text) is not None for text in name.values], False)[name.codes].astype(np.bool_)
    begins = first | (nearest(rows_of(ops.column("parent_row")), warms) >= 0)
    return np.append(np.append(begins, False)[op_row], False)


def _told_to_wait(calls: HostCalls, launch: IntArray) -> BoolArray:
    """Return whether that thread had a stream wait for an event between the launch before and this one."""
    if not calls.stream_waits.any():
        return np.zeros(len(launch), np.bool_)
    begin, thread = calls.begin[launch], calls.thread[launch]
    wait = last_begun(calls, calls.stream_waits, thread, begin)
    before = last_begun(calls, calls.launches, thread, begin)
    return (launch >= 0) & (wait >= 0) & ((before < 0) | (calls.begin[wait] >= calls.begin[before]))


def _first_of_its_name(timeline: Timeline) -> BoolArray:
    """Return which activities are the first of their name in the trace."""
    name = categories(timeline.activities.column("name"))
    first = np.zeros(len(name.codes) + 1, np.bool_)  # the last one answers for a name that no row has
    first[first_rows(name.codes, len(name.values))] = True
    return first[:-1]


def _first_that_holds(*decisions: tuple[BoolArray, str]) -> IntArray:
    """Return, for each row, the position in CAUSES of the first decision that holds."""
    return np.select([holds for holds, _ in decisions], [CAUSES.index(cause) for _, cause in decisions]).astype(
        np.int64
    )


def under_recorded(timeline: Timeline) -> IntArray:
    """Return rows of `api` that launched a graph with no activity recorded, or fewer than another replay of it.

    The second can be known only where the export numbers its graphs.

    >>> from tracemine.timeline import Meta
    >>> under_recorded(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))).tolist()
    []
    """
    activities, names = timeline.activities, categories(timeline.api.column("name"))
    launch = rows_of(activities.column("launch_row"))
    count = np.bincount(launch[launch >= 0], minlength=len(names.codes))
    most = count.copy()
    graph = rows_of(activities.column("graph_id"))
    known = np.flatnonzero((graph >= 0) & (launch >= 0))
    if len(known):
        _, code = np.unique(graph[known], return_inverse=True)
        of_graph = np.zeros(int(code.max()) + 1, np.int64)
        np.maximum.at(of_graph, code, count[launch[known]])
        np.maximum.at(most, launch[known], of_graph[code])
    return np.flatnonzero(is_graph_launch(names) & ((count == 0) | (count < most)))


def may_be_running(timeline: Timeline, calls: HostCalls, replays: IntArray) -> tuple[IntArray, IntArray]:
    """Return begin and end of the time in which each of these replays may have kept a device busy. Nanoseconds.

    It begins when the streams on which some of it was recorded are done with what was launched before, and not before
    the call. It is over when they have begun with what was launched later, or when a call that waits for the device has
    returned on the same thread. Where nothing of it was recorded it may have run on any stream: the first that is done
    begins it, and all that are used again must have begun.
    """
    begin = calls.begin[replays]
    blocking = np.flatnonzero(calls.blocks & ~named(categories(timeline.api.column("name")), _EVENT))
    synced = _next_end(calls, blocking, replays)
    activities = timeline.activities
    launch, start = rows_of(activities.column("launch_row")), rows_of(activities.column("start_ns"))
    end = start + rows_of(activities.column("dur_ns"))
    stream = codes(*(rows_of(activities.column(each)) for each in ("device", "stream")))
    rows = np.flatnonzero(launch >= 0)
    rows = rows[np.lexsort((calls.begin[launch[rows]], stream[rows]))]
    streams = np.split(rows, np.flatnonzero(np.diff(stream[rows])) + 1) if len(rows) else []
    if len(streams) > _MOST_STREAMS:
        return begin, synced
    again, free = np.full(len(replays), -1, np.int64), np.full(len(replays), _NEVER)
    seen = np.isin(replays, launch)
    for one in streams:
        earliest = np.minimum.accumulate(start[one][::-1])[::-1]
        latest = np.concatenate(([0], np.maximum.accumulate(end[one])))
        before, after = (np.searchsorted(calls.begin[launch[one]], begin, side=side) for side in ("left", "right"))
        counts = ~seen | np.isin(replays, launch[one])
        begun = earliest[np.minimum(after, len(one) - 1)]
        again = np.where(counts & (after < len(one)), np.maximum(again, begun), again)
        free = np.where(counts, np.minimum(free, latest[before]), free)
    since = np.maximum(begin, np.where(free == _NEVER, begin, free))
    return since, np.minimum(synced, np.where(again < since, _NEVER, again))


def _next_end(calls: HostCalls, blocking: IntArray, replays: IntArray) -> IntArray:
    """Return when each replay's thread next returns from a blocking call; the end of time where it does not."""
    if not len(blocking):
        return np.full(len(replays), _NEVER)
    order = blocking[np.lexsort((calls.begin[blocking], calls.thread[blocking]))]
    moments, moment = np.unique(np.concatenate((calls.begin[order], calls.begin[replays])), return_inverse=True)
    key = np.concatenate((calls.thread[order], calls.thread[replays])) * len(moments) + moment
    place = np.minimum(np.searchsorted(key[: len(order)], key[len(order) :], side="right"), len(order) - 1)
    places = order[place]
    fits = (calls.thread[places] == calls.thread[replays]) & (calls.begin[places] > calls.begin[replays])
    return np.where(fits, calls.end[places], _NEVER)


def overlaps(begin: IntArray, end: IntArray, since: IntArray, until: IntArray) -> BoolArray:
    """Return whether each [since, until) overlaps one of the intervals [begin, end).

    >>> overlaps(np.array([10, 30]), np.array([20, 40]), np.array([0, 15, 20]), np.array([10, 16, 30])).tolist()
    [False, True, False]
    """
    if not len(begin):
        return np.zeros(len(since), np.bool_)
    order = np.argsort(begin, kind="stable")
    latest = np.maximum.accumulate(end[order])
    last = np.searchsorted(begin[order], until, side="left") - 1
    return (last >= 0) & (latest[np.maximum(last, 0)] > since)
