"""The critical path: what each activity and host call of a recorded timeline waited for.

`replay.py` runs it again with other times: with the host as fast as without a profiler, it is production's.

Limits. Threads that launch are assumed to alternate. Which event a stream waited for is not recorded: it is taken to be
the last that ended on each other stream, so that a wait holds up too much rather than too little. An activity whose
launch is not recorded follows the host as it did. Other ranks are taken to be as much faster as this one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracemine.columns import codes, sorted_unique
from tracemine.findings.happened import WAIT, Across, HostEvents, HostStep, Operators, Segments
from tracemine.findings.host_spans import loading, unstretched
from tracemine.findings.per_step import QUEUED_NS
from tracemine.findings.replay import Replay
from tracemine.rows.ancestors import taken
from tracemine.rows.arrow import categories, is_named, rows_of
from tracemine.rows.host import HostCalls, last_begun, threads
from tracemine.rows.spans import Spans
from tracemine.rows.table import Categories, IntArray
from tracemine.timeline import Timeline


class Lanes(Struct, frozen=True):
    """Where each activity runs, its call and by how much it follows the one before on its stream; by start."""

    stream: IntArray
    start: IntArray
    launch: IntArray
    follow_delay: IntArray


def segments_of(lanes: Lanes, host: HostEvents, call_end: IntArray, across: Across, last: Sequence[int]) -> Segments:
    """Return the segments of a timeline, and the host's waits between them.

    A segment ends where the host waits for the device, as what it launches then depends on that, before an activity
    that waits for another stream, and behind one that something else waits for. call_end: of each call. last:
    activities whose ends are asked for as well.
    """
    waits = np.flatnonzero(host.waits_for >= 0)
    waited: IntArray = np.cumsum(host.waits_for >= 0, dtype=np.int64)
    rows = np.argsort(lanes.stream, kind="stable")
    place = np.empty(len(rows), np.int64)
    place[rows] = np.arange(len(rows))
    launched = np.append(waited, 0)[np.append(host.launch, -1)[lanes.launch]][rows]
    ready = np.searchsorted(lanes.start, call_end[host.call[waits]], side="left")  # so many activities begin before
    part, stream = _parts(len(rows), ready, across)[rows], lanes.stream[rows]
    follows = np.append(False, stream[1:] == stream[:-1])[: len(rows)]
    # What follows another starts no earlier than that, unless it overlaps it.
    opens = np.flatnonzero(~follows | (lanes.follow_delay[rows] < 0))
    cut = np.append(~follows, True)
    cut[1:-1] |= (part[1:] != part[:-1]) | (launched[1:] != launched[:-1])
    cut[place[across.row]] = True
    for asked in (place[host.waits_for[waits]], place[across.source], place[np.array(last, np.int64)], opens):
        cut[asked + 1] = True
    begins = np.flatnonzero(cut[:-1])
    turns = np.append(np.arange(len(begins)), np.full(len(waits), WAIT))
    order = np.lexsort((turns != WAIT, np.append(rows[begins], ready)))
    of = np.cumsum(cut[:-1]) - 1  # the segment of each place
    return Segments(
        rows=rows,
        place=place,
        launched=launched,
        begins=begins,
        follows=follows[begins],
        across=_by_segment(of[place[across.row]], of[place[across.source]]),
        openers=of[opens],
        turns=tuple(turns[order].tolist()),
        waits=waits,
        waited=waited,
    )


def _by_segment(segment: IntArray, source: IntArray) -> dict[int, list[tuple[int, int]]]:
    """Return the waits for other streams of each segment that has some, as `Segments` has them."""
    found: dict[int, list[tuple[int, int]]] = {}
    for number, (waits, waits_for) in enumerate(zip(segment.tolist(), source.tolist(), strict=True)):
        found.setdefault(waits, []).append((waits_for, number))
    return found


def _parts(count: int, ready: IntArray, across: Across) -> IntArray:
    """Return a number for each activity, that grows: those of one wait for nothing of another stream in it."""
    cuts = sorted_unique(np.append(0, ready))
    order = np.argsort(across.row, kind="stable")
    row, source = across.row[order], across.source[order]
    least = cuts[np.searchsorted(cuts, row, side="right") - 1]
    more, latest = [], 0
    for at, waits_for, cut in zip(row.tolist(), source.tolist(), least.tolist(), strict=True):
        if waits_for >= max(cut, latest):
            latest = at
            more.append(at)
    cuts = sorted_unique(np.append(cuts, np.array(more, np.int64)))
    return np.searchsorted(cuts, np.arange(count), side="right")


# Delays where nothing recorded tells them, and the most that is believed: between two activities of a full queue, and
# from a launch call's begin to its activity's start on an idle device.
_CHANGE_OVER_NS, _MOST_CHANGE_OVER_NS = 1_000, 3_000
_LAUNCH_NS, _MOST_LAUNCH_NS = 6_000, 20_000
# Launches that the device has not done with from which on its queue may be full, of which some 1,024 find room. The
# recording may have begun behind half of them.
_QUEUED = 512
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
    of_calls, of_ops = threads(timeline)
    calls = HostCalls.of(timeline, launch_row, of_calls)
    calls = replace(calls, begin=calls.begin - origin, end=calls.end - origin)
    stream = codes(*(rows_of(activities[name]) for name in ("device", "stream")))
    launch = _launches(calls, launch_row, start)
    waits = _Waits(start, dur, stream, launch, calls, launch_row)
    loads = loading(timeline, origin)
    within = unstretched(timeline, origin, calls, of_ops, loads)
    host, begins = _host(calls, start, dur, launch_row, loads, within)
    across, follow, delays = waits.resolved()
    last = waits.last(delays)
    segments = segments_of(
        Lanes(stream, start, launch, follow), host, calls.end, across, [activity for activity, *_ in last]
    )
    return Replay(
        begins=begins,
        host=host,
        start=start,
        dur=dur,
        launch=np.where(waits.inner, -1, launch),
        launch_delay=delays,
        inside=waits.inner,
        follow_delay=follow,
        across=across,
        segments=segments,
        sole_launch=(waits.launch == launch_row)
        & (launch_row >= 0)
        & (np.bincount(launch_row[launch_row >= 0], minlength=len(calls.begin) + 1)[launch_row] == 1),
        operators=_operators(timeline, origin, calls, launch_row, host),
        last=last,
        interval_ns=int(host.work_ns.sum()) / max(int((~host.blocks).sum()) - 1, 1),
        step=_first_step(timeline, origin, host, calls),
        ready_ns=int(waits.latency if delays[:1].sum() >= QUEUED_NS else delays[:1].sum()),
    )


def _operators(timeline: Timeline, origin: int, calls: HostCalls, launch_row: IntArray, host: HostEvents) -> Operators:
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
        event = host.launch[call]
        own = np.where(event >= 0, np.append(host.work_ns, 0)[event], 0)
        lead[call] = np.clip(own - (calls.begin[call] - begin), 0, own)
        tail[call] = np.maximum(end - calls.begin[call], 0)
    return Operators(row, launches, lead, tail)


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


def _first_step(timeline: Timeline, origin: int, host: HostEvents, calls: HostCalls) -> HostStep | None:
    """Return where the first step begins and ends in the events; None without steps, or where it launches nothing."""
    if not timeline.steps.num_rows:
        return None
    starts = rows_of(timeline.steps["start_ns"]) - origin
    at = int(np.argmin(starts))
    begin, end = int(starts[at]), int(starts[at] + rows_of(timeline.steps["dur_ns"])[at])
    when = np.where(host.blocks, calls.end[host.call], calls.begin[host.call])
    inside = np.flatnonzero((when >= begin) & (when <= end))
    if len(inside) < 2:
        return None
    first, last = int(inside[0]), int(inside[-1])
    return HostStep(first, last, int(when[first]) - begin + end - int(when[last]))


def _launches(calls: HostCalls, launch_row: IntArray, start: IntArray) -> IntArray:
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
        self, start: IntArray, dur: IntArray, stream: IntArray, launch: IntArray, calls: HostCalls, launch_row: IntArray
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

    def resolved(self) -> tuple[Across, IntArray, IntArray]:
        """Return what held up each activity: other streams, by how much it follows the one before it on its own, and
        the delay of each activity after its call.

        What would have let it start last is what it waited for, and has the delay that was recorded. After the others
        it could have started as soon as activities usually do, or as soon as it did.
        """
        start, before = self.start, self.before
        row, source = self._others()
        none = np.iinfo(np.int64).min // 2
        end = np.append(self.end, none)
        latest = end[before]
        np.maximum.at(latest, row, self.end[source])
        by_call = (latest == none) | ~self.known  # what an unknown launch waited for is not asked
        by_call |= start - self.ahead + self.latency >= latest + self.change_over
        waited = (self.launch >= 0) & ~self.inner
        delays = np.where(self.known, np.minimum(self.ahead, self.latency), self.ahead)
        delays = np.where(waited & by_call, self.ahead, delays)
        free = np.where(before >= 0, start - end[before], 0)
        usual = waited & (by_call | (end[before] < latest))
        follow = np.where(usual, np.minimum(self.change_over, free), free)
        free = start[row] - self.end[source]
        first = np.zeros(len(row), np.bool_)  # of several that end last the first is what was waited for
        last = np.flatnonzero(~by_call[row] & (self.end[source] == latest[row]) & (end[before[row]] < latest[row]))
        first[last[np.unique(row[last], return_index=True)[1]]] = True
        earlier = source < row
        delay = np.where(first, free, np.minimum(self.change_over, free))
        return Across(row[earlier], source[earlier], delay[earlier]), follow, delays

    def _others(self) -> tuple[IntArray, IntArray]:
        """Return activities whose stream had to wait, and the last that had ended on each other stream."""
        calls, rows = self.calls, np.flatnonzero(self.known)
        none = np.zeros(0, np.int64)
        if not calls.stream_waits.any() or len(self.streams) < 2 or not len(rows):
            return none, none
        begin, thread = calls.begin[self.launch[rows]], calls.thread[self.launch[rows]]
        wait = last_begun(calls, calls.stream_waits, thread, begin)
        launched = last_begun(calls, calls.launches, thread, begin)
        rows = rows[(wait >= 0) & ((launched < 0) | (calls.begin[wait] >= calls.begin[launched]))]
        found, sources = [none], [none]
        for members in self.streams:
            latest = np.maximum.accumulate(self.end[members])
            index = np.searchsorted(latest, self.start[rows], side="right") - 1
            told = (index >= 0) & (self.stream[rows] != self.stream[members[0]])
            found.append(rows[told])
            sources.append(members[index[told]])
        return np.concatenate(found), np.concatenate(sources)

    def last(self, delays: IntArray) -> tuple[tuple[int, int, int, int], ...]:
        """Return each stream's last activity, its call, the delay of what that call launched, and its time."""
        found = []
        for each in sorted_unique(self.stream):
            members = np.flatnonzero(self.stream == each)
            at = int(members[np.argmax(self.end[members])])
            first = int(members[np.argmax(self.launch[members] == self.launch[at])])
            took, own = int(self.end[at] - self.start[first]), bool(self.known[at] or self.inner[at])
            delay = int(delays[first]) + (0 if own else took)  # what the host did meanwhile is not known
            found.append((at, int(self.launch[at]), delay, took if own else 0))
        return tuple(found)


def _usual(delays: IntArray, otherwise: int, most: int) -> int:
    return min(int(np.median(delays)), most) if len(delays) else otherwise


def _host(
    calls: HostCalls, start: IntArray, dur: IntArray, launch_row: IntArray, loads: Spans, within: Spans
) -> tuple[HostEvents, int]:
    """Return what the host did, in order, and when it begins."""
    blocks = calls.blocks & ((calls.thread >= 0) | ~(calls.blocks & (calls.thread >= 0)).any())
    launching, blocking = np.flatnonzero(calls.launches), np.flatnonzero(blocks)
    call = np.concatenate((launching, blocking))
    returns = np.arange(len(call)) >= len(launching)
    time = np.where(returns, calls.end[call], calls.begin[call])
    order = np.lexsort((call, ~returns, time))  # at one moment a call returns before another launches
    call, returns, time = call[order], returns[order], time[order]
    begin, end = calls.begin[call], calls.end[call]
    begins = int(begin[0]) if len(call) else 0
    ahead = np.append(begins, time)[:-1]  # the event before
    now = np.maximum(begin, ahead)
    waited = np.append(0, np.where(returns, 0, _for_room(calls, start + dur, launch_row)[call]))[:-1]  # in that event
    other, ended = _waited_for(calls, start, dur, launch_row, blocking)
    other, ended = (np.where(returns, each[call], none) for each, none in ((other, -1), (ended, 0)))
    by_device = (other >= 0) & (ended > now)
    after = np.where(by_device, end - ended, np.minimum(end - now, end - ended))
    launch = np.full(len(calls.begin), -1, np.int64)
    launch[call[~returns]] = np.flatnonzero(~returns)
    return HostEvents(
        call=call,
        blocks=returns,
        work_ns=np.maximum(now - ahead - waited, 0),
        loading_ns=loads.until(now) - loads.until(ahead),
        within_ns=within.until(now) - within.until(ahead),
        own_ns=np.where(returns, np.where(by_device, np.clip(after, 0, end - now), end - now), 0),
        waits_for=other,
        after_ns=after,
        launch=launch,
    ), begins


def _for_room(calls: HostCalls, end: IntArray, launch_row: IntArray) -> IntArray:
    """Return how long each launch call waited for room in a full queue: what it took beyond the usual, so far ahead."""
    took, waited = calls.end - calls.begin, np.zeros(len(calls.begin), np.int64)
    rows = np.flatnonzero(calls.launches)
    launched = np.sort(calls.begin[launch_row[launch_row >= 0]])
    pending = np.searchsorted(launched, calls.begin[rows]) - np.searchsorted(np.sort(end), calls.begin[rows])
    full = rows[pending >= _QUEUED]
    if len(full):
        waited[full] = np.maximum(took[full] - int(np.median(took[rows])), 0)
    return waited


def _waited_for(
    calls: HostCalls, start: IntArray, dur: IntArray, launch_row: IntArray, blocking: IntArray
) -> tuple[IntArray, IntArray]:
    """Return, for each call, the activity that it waits for, and that one's end: the last that ended before a blocking
    call did, or the copy that the call launched itself; −1: none.
    """
    waits_for, ended = np.full(len(calls.begin), -1, np.int64), np.zeros(len(calls.begin), np.int64)
    by_end = np.argsort(start + dur, kind="stable")
    ends = (start + dur)[by_end]
    at = np.searchsorted(ends, calls.end[blocking], side="right") - 1
    found = at >= 0
    found[found] = start[by_end[at[found]]] < calls.end[blocking[found]]
    waits_for[blocking[found]], ended[blocking[found]] = by_end[at[found]], ends[at[found]]
    # A copy from pageable memory goes through a buffer, piece by piece: the call returns with the last piece handed
    # over, some microseconds before the device has it.
    rows = np.flatnonzero(np.isin(launch_row, blocking))
    end = calls.end[launch_row[rows]]
    rows = rows[(end > start[rows]) & (end >= start[rows] + dur[rows] // 2)]
    waits_for[launch_row[rows]], ended[launch_row[rows]] = rows, (start + dur)[rows]
    return waits_for, ended
