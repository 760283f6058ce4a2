"""The critical path: what each activity and host call of a recorded timeline waited for.

`replay.py` runs it again with other times: with the host as fast as without a profiler, it is production's.

Limits. Threads that launch are taken to take turns. Which event a stream waited for is not recorded: it is taken to be
the last that ended on each other stream, so that a wait holds up too much rather than too little. An activity whose
launch is not recorded follows the host as it did. Other ranks are taken to be as much faster as this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracemine.findings.replay import BLOCKS, LAUNCHES, RUNS, Event, HostStep, Operators, Replay
from tracemine.rows.ancestors import taken
from tracemine.rows.arrow import categories, is_named, numbers, rows_of
from tracemine.rows.host import LOADS, Calls, last_begun, named, threads
from tracemine.rows.table import Categories, IntArray
from tracemine.timeline import Timeline

# Delays where nothing recorded tells them, and the most that is believed: between two activities of a full queue, and
# from a launch call's begin to its activity's start on an idle device.
_CHANGE_OVER_NS, _MOST_CHANGE_OVER_NS = 1_000, 3_000
_LAUNCH_NS, _MOST_LAUNCH_NS = 6_000, 20_000
_MOST_STREAMS = 64  # of a made-up trace with more, only the streams with the most activities hold up others


def replay_of(timeline: Timeline) -> Replay:
    """Return a timeline as a replay: what waited for what.

    >>> from tracemine.timeline import Meta
    >>> replay = replay_of(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto")))
    >>> replay.run(np.ones(1)).done.tolist()
    [0.0]
    """
    activities = timeline.activities
    start, dur, launch_row = (rows_of(activities[name]) for name in ("start_ns", "dur_ns", "launch_row"))
    origin = int(start[0]) if len(start) else 0
    start = start - origin
    calls = Calls.of(timeline, launch_row, threads(timeline)[0])
    calls = replace(calls, begin=calls.begin - origin, end=calls.end - origin)
    lanes = np.stack([rows_of(activities[name]) for name in ("device", "stream")])
    stream = np.unique(lanes, axis=1, return_inverse=True)[1].reshape(-1)
    launch = _launches(calls, launch_row, start)
    waits = _Waits(start, dur, stream, launch, calls, launch_row)
    events, work, loading, blocked, begins = _host(calls, start, dur, launch_row, _Loading.of(timeline, origin))
    held_by, delays = waits.resolved()
    return Replay(
        events=events,
        begins=begins,
        start=start,
        dur=dur,
        launch=np.where(waits.inner, -1, launch),
        launch_delay=delays,
        held_by=held_by,
        sole_launch=(launch == launch_row)
        & (launch >= 0)
        & (np.bincount(launch_row[launch_row >= 0], minlength=len(calls.begin) + 1)[launch_row] == 1),
        work=work,
        loading=loading,
        operators=_operators(timeline, origin, calls, launch_row, work),
        waits=blocked,
        last=waits.last(delays),
        interval_ns=sum(work.values()) / max(sum(kind == LAUNCHES for kind, _ in work) - 1, 1),
        step=_first_step(timeline, origin, events, calls),
    )


def _operators(
    timeline: Timeline, origin: int, calls: Calls, launch_row: IntArray, work: dict[Event, int]
) -> Operators:
    """Return the operators around launch calls."""
    row, launches, lead, tail = (np.full(len(calls.begin), each, np.int64) for each in (-1, 0, 0, 0))
    ops = timeline.ops
    op = rows_of(timeline.activities["op_row"])
    rows = np.flatnonzero((op >= 0) & (launch_row >= 0)) if ops.num_rows else op[:0]
    _, first = np.unique(launch_row[rows], return_index=True)  # a graph's launch launches many
    rows = rows[first]
    if len(rows):
        call = launch_row[rows]
        row[call], launches[call] = _outermost(op[rows], rows_of(ops["parent_row"]), categories(ops["kind"]))
        begin = rows_of(ops["start_ns"])[row[call]] - origin
        end = begin + rows_of(ops["dur_ns"])[row[call]]
        own = np.array([work.get((LAUNCHES, each), 0) for each in call.tolist()], np.int64)
        lead[call] = np.clip(own - (calls.begin[call] - begin), 0, own)
        tail[call] = np.maximum(end - calls.begin[call], 0)
    return Operators(*(each.tolist() for each in (row, launches, lead, tail)))


def _outermost(op: IntArray, parent: IntArray, kind: Categories) -> tuple[IntArray, IntArray]:
    """Return, for each launch's operator, the outermost around it that launches no more, and how much it launches."""
    launches = np.zeros(len(parent), np.int64)
    level = op
    while (level >= 0).any():
        launches += np.bincount(level[level >= 0], minlength=len(launches))
        level = taken(parent, level)
    is_op = is_named(kind, "op")
    top = op
    while True:
        up = taken(parent, top)
        further = np.where((up >= 0) & is_op[up] & (launches[up] == launches[top]), up, top)
        if (further == top).all():
            return top, launches[top]
        top = further


def _first_step(timeline: Timeline, origin: int, events: Sequence[Event], calls: Calls) -> HostStep | None:
    """Return where the first step begins and ends in the events; None without steps, or where it launches nothing."""
    if not timeline.steps.num_rows:
        return None
    starts = rows_of(timeline.steps["start_ns"]) - origin
    at = int(np.argmin(starts))
    begin, end = int(starts[at]), int(starts[at] + rows_of(timeline.steps["dur_ns"])[at])
    when = {LAUNCHES: calls.begin, BLOCKS: calls.end}
    inside = [
        (index, int(when[kind][row]))
        for index, (kind, row) in enumerate(events)
        if kind != RUNS and begin <= when[kind][row] <= end
    ]
    if len(inside) < 2:
        return None
    (first, began), (last, ended) = inside[0], inside[-1]
    return HostStep(first, last, began - begin + end - ended)


def _launches(calls: Calls, launch_row: IntArray, start: IntArray) -> IntArray:
    """Return the call that each activity waits for: its own, else the last one before it; −1: none."""
    rows = np.flatnonzero(calls.launches)
    if not len(rows):
        return np.full(len(start), -1, np.int64)
    rows = rows[np.argsort(calls.begin[rows], kind="stable")]
    latest = np.searchsorted(calls.begin[rows], start, side="right") - 1
    own = (launch_row >= 0) & (calls.begin[launch_row] <= start)
    return np.where(own, launch_row, np.where(latest >= 0, rows[np.maximum(latest, 0)], -1))


class _Waits:
    """Dependencies of activities: what each waited for, and by how much it followed."""

    def __init__(
        self, start: IntArray, dur: IntArray, stream: IntArray, launch: IntArray, calls: Calls, launch_row: IntArray
    ) -> None:
        self.start, self.end, self.stream, self.launch, self.calls = start, start + dur, stream, launch, calls
        largest = np.argsort(-np.bincount(stream), kind="stable")[:_MOST_STREAMS]
        self.streams = [np.flatnonzero(stream == each) for each in largest]
        self.before = np.full(len(start), -1, np.int64)
        order = np.argsort(stream, kind="stable")
        same = stream[order][1:] == stream[order][:-1]
        self.before[order[1:][same]] = order[:-1][same]
        own = (launch >= 0) & (launch == launch_row)
        self.inner = own & (self.before >= 0) & (launch_row[self.before] == launch_row)
        self.known = own & ~self.inner
        self.ahead = start - calls.begin[launch] if len(calls.begin) else np.zeros(len(start), np.int64)
        self.free = np.where(self.before >= 0, start - self.end[self.before], np.iinfo(np.int64).max)
        queued = self.known & (self.before >= 0) & (self.ahead > self.free + 3 * _LAUNCH_NS)
        self.change_over = _usual(self.free[queued], _CHANGE_OVER_NS, _MOST_CHANGE_OVER_NS)
        self.latency = _usual(self.ahead[self.known & (self.free > self.ahead)], _LAUNCH_NS, _MOST_LAUNCH_NS)

    def resolved(self) -> tuple[tuple[tuple[tuple[int, int], ...], ...], IntArray]:
        """Return what held up each activity, with the delays after it; and the delay of each activity after its call.

        What would have let it start last is what it waited for, and has the delay that was recorded. After the others
        it could have started as soon as activities usually do, or as soon as it did.
        """
        others = self._others()
        delays = np.where(self.known, np.minimum(self.ahead, self.latency), self.ahead)
        held: list[tuple[tuple[int, int], ...]] = []
        start, end = self.start.tolist(), self.end.tolist()
        for at, before in enumerate(self.before.tolist()):
            if self.launch[at] < 0 or self.inner[at]:
                held.append(((before, start[at] - end[before]),) if self.inner[at] else ())
                continue
            holding = [*([before] if before >= 0 else []), *others.get(at, [])]
            last = max(holding, key=end.__getitem__, default=-1)
            by_call = last < 0 or not self.known[at]  # what an unknown launch waited for is not asked
            by_call |= start[at] - int(self.ahead[at]) + self.latency >= end[last] + self.change_over
            if by_call:
                delays[at] = self.ahead[at]
            held.append(
                tuple(
                    (
                        each,
                        start[at] - end[each]
                        if each == last and not by_call
                        else min(self.change_over, start[at] - end[each]),
                    )
                    for each in holding
                )
            )
        return tuple(held), delays

    def _others(self) -> dict[int, list[int]]:
        """Return, for activities whose stream was told to wait, the last that had ended on each other stream."""
        calls, rows = self.calls, np.flatnonzero(self.known)
        if not calls.stream_waits.any() or len(self.streams) < 2 or not len(rows):
            return {}
        begin, thread = calls.begin[self.launch[rows]], calls.thread[self.launch[rows]]
        wait = last_begun(calls, calls.stream_waits, thread, begin)
        launched = last_begun(calls, calls.launches, thread, begin)
        rows = rows[(wait >= 0) & ((launched < 0) | (calls.begin[wait] >= calls.begin[launched]))]
        found: dict[int, list[int]] = {}
        for members in self.streams:
            latest = np.maximum.accumulate(self.end[members])
            index = np.searchsorted(latest, self.start[rows], side="right") - 1
            for row, at in zip(rows.tolist(), index.tolist(), strict=True):
                if at >= 0 and self.stream[row] != self.stream[members[0]]:
                    found.setdefault(row, []).append(int(members[at]))
        return found

    def last(self, delays: IntArray) -> tuple[tuple[int, int, int, int], ...]:
        """Return each stream's last activity, its call, the delay of what that call launched, and its time."""
        found = []
        for each in np.unique(self.stream):
            members = np.flatnonzero(self.stream == each)
            at = int(members[np.argmax(self.end[members])])
            first = int(members[np.argmax(self.launch[members] == self.launch[at])])
            took, own = int(self.end[at] - self.start[first]), bool(self.known[at] or self.inner[at])
            delay = int(delays[first]) + (0 if own else took)  # what the host did meanwhile is not known
            found.append((at, int(self.launch[at]), delay, took if own else 0))
        return tuple(found)


def _usual(delays: IntArray, otherwise: int, most: int) -> int:
    return min(int(np.median(delays)), most) if len(delays) else otherwise


def _own_copies(
    calls: Calls, start: IntArray, dur: IntArray, launch_row: IntArray, blocking: IntArray
) -> dict[int, tuple[int, int]]:
    """Return the copy, and its end, of each blocking call that launches a copy itself.

    A copy from pageable memory goes through a buffer, piece by piece: the call returns with the last piece handed over,
    some microseconds before the device has it.
    """
    rows = np.flatnonzero(np.isin(launch_row, blocking))
    call = launch_row[rows]
    rows = rows[calls.end[call] >= start[rows] + dur[rows] // 2]
    return dict(
        zip(launch_row[rows].tolist(), zip(rows.tolist(), (start + dur)[rows].tolist(), strict=True), strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Loading:
    """Data loading: disjoint intervals in order, and how much of them lies before each."""

    begin: IntArray
    dur: IntArray
    before: IntArray

    @staticmethod
    def of(timeline: Timeline, origin: int) -> _Loading:
        ops = timeline.ops
        rows = np.flatnonzero(named(categories(ops["name"]), LOADS))
        begin = numbers(ops["start_ns"]).values.astype(np.int64)[rows] - origin
        end = begin + numbers(ops["dur_ns"]).values.astype(np.int64)[rows]
        order = np.argsort(begin, kind="stable")
        begin, latest = begin[order], np.maximum.accumulate(end[order])
        begin[1:] = np.maximum(begin[1:], latest[:-1])
        dur = np.maximum(latest - begin, 0)
        return _Loading(begin, dur, np.cumsum(dur) - dur)

    def until(self, time: int) -> int:
        """Return how much loading lies before a time."""
        at = int(np.searchsorted(self.begin, time, side="right")) - 1
        return 0 if at < 0 else int(self.before[at] + min(time - self.begin[at], self.dur[at]))


def _host(
    calls: Calls, start: IntArray, dur: IntArray, launch_row: IntArray, loader: _Loading
) -> tuple[tuple[Event, ...], dict[Event, int], dict[Event, int], dict[int, tuple[int, int, int]], float]:
    """Return the events in order, the host's own time before each of its own, how much of it went into loading data,
    what blocking calls wait for, and the host's begin.
    """
    blocks = calls.blocks & ((calls.thread >= 0) | ~(calls.blocks & (calls.thread >= 0)).any())
    launching, blocking = np.flatnonzero(calls.launches), np.flatnonzero(blocks)
    parts = (
        (LAUNCHES, launching, calls.begin[launching]),
        (RUNS, np.arange(len(start)), start),
        (BLOCKS, blocking, calls.end[blocking]),
    )
    kind = np.concatenate([np.full(len(rows), each) for each, rows, _ in parts])
    row, time = (np.concatenate([part[at] for part in parts]) for at in (1, 2))
    order = np.lexsort((row, kind, time))
    by_end = np.argsort(start + dur, kind="stable")
    ends = (start + dur)[by_end]
    done = np.searchsorted(ends, calls.end[blocking], side="right") - 1
    device = {
        call: (int(by_end[at]), int(ends[at]))
        for call, at in zip(blocking.tolist(), done.tolist(), strict=True)
        if at >= 0 and start[by_end[at]] < calls.end[call]
    } | _own_copies(calls, start, dur, launch_row, blocking)
    work: dict[Event, int] = {}
    loading: dict[Event, int] = {}
    waits: dict[int, tuple[int, int, int]] = {}
    now: int | None = None
    begins = 0
    events = tuple(zip(kind[order].tolist(), row[order].tolist(), strict=True))
    for event in events:
        what, at = event
        if what == RUNS:
            continue
        begin, end = int(calls.begin[at]), int(calls.end[at])
        if now is None:
            now = begins = begin
        work[event] = max(begin - now, 0)
        if len(loader.begin) and begin > now and (loaded := loader.until(begin) - loader.until(now)):
            loading[event] = loaded
        now = max(begin, now)
        if what == BLOCKS:
            other, ended = device.get(at, (-1, now))
            by_device = other >= 0 and ended > now
            after = end - ended if by_device else min(end - now, end - ended)
            waits[at] = (other, after, min(max(after, 0), end - now) if by_device else end - now)
            now = end
    return events, work, loading, waits, float(begins)
