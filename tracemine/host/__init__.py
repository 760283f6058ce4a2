"""What the host does in each step: every nanosecond once, in the innermost call that was recorded around it.

kinds.py     what kind of work an event is: an operator, a launch, a wait …
leading.py   which thread's events count at each moment of a step
paths.py     the Python function that leads to what is in no call
waits.py     places where the host waits for the device: what it does there, and what that costs
uses.py      what the value that a wait fetches is used for
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from tracemine.columns import codes, examples
from tracemine.host.kinds import KINDS, SOMETIMES, CallEvents, Kind, code, events_of, unseen
from tracemine.host.leading import Pieces, Segments, helped, innermost, joined, own_pieces
from tracemine.host.uses import lasting_path, shared_path
from tracemine.rows.ancestors import taken
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.captures import covered_ns
from tracemine.rows.host import HostCalls, threads
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline


class HostTime(Struct, frozen=True, kw_only=True):
    """What the host did in steps, a segment an entry, in order of time within a step. Nanoseconds; −1: not known.

    The segments of a step follow each other without holes, so they add up to it exactly.
    """

    begin_ns: IntArray
    end_ns: IntArray
    step: IntArray  # which of the steps that were asked for
    thread: IntArray
    kind: IntArray  # position in KINDS
    op_row: IntArray  # the innermost operator or annotation
    api_row: IntArray  # the call
    stack_row: IntArray  # the call path that leads to it; in no call, of the function that holds what is around it
    lead: IntArray  # of each step the thread that carries it
    critical_ns: IntArray  # of it, while no device was at work and the next launch was to come

    @property
    def dur_ns(self) -> IntArray:
        """How long each segment takes."""
        return self.end_ns - self.begin_ns

    def by_kind(self, values: IntArray) -> dict[str, int]:
        """Return the sum over each kind that occurs."""
        sums = np.zeros(len(KINDS), np.int64)
        np.add.at(sums, self.kind, values)
        return {name: int(sums[at]) for at, name in enumerate(KINDS) if (self.kind == at).any()}


def host_time(timeline: Timeline, begin_ns: IntArray, end_ns: IntArray) -> HostTime | None:
    """Return what the host did in each of these steps; None where no thread of a host was recorded."""
    launch_row = rows_of(timeline.activities["launch_row"])
    of_calls, of_ops = threads(timeline)
    calls = HostCalls.of(timeline, launch_row, of_calls)
    events = events_of(timeline, calls, of_ops)
    if not len(begin_ns) or not (events.thread >= 0).any():
        return None
    lead = _leads(timeline, events, calls, begin_ns, end_ns)
    in_call = events.kind >= 0
    pieces = joined([*_pieces(timeline, events, in_call, lead, begin_ns, end_ns)])
    order = np.lexsort((pieces.begin, pieces.step))
    return _record(timeline, events, of_calls, pieces.of(order), lead)


def whole_span(timeline: Timeline) -> tuple[IntArray, IntArray]:
    """Return begin and end of all that was recorded of the host, as of one step; none where nothing was."""
    begin = np.concatenate([rows_of(table["start_ns"]).astype(np.int64) for table in (timeline.ops, timeline.api)])
    end = begin + np.concatenate([rows_of(table["dur_ns"]) for table in (timeline.ops, timeline.api)])
    return (begin.min(keepdims=True), end.max(keepdims=True)) if len(begin) else (begin, end)


def _leads(timeline: Timeline, events: CallEvents, calls: HostCalls, begin: IntArray, end: IntArray) -> IntArray:
    """Return the thread that carries each step: the one that it is marked on, else the one that launches most in it."""
    steps = timeline.steps
    count = int(events.thread.max()) + 1
    leads = np.full(len(begin), -1, np.int64)
    if steps.num_rows:
        place = {
            (pid, tid): thread
            for table, of in ((timeline.ops, events.thread[: timeline.ops.num_rows]), (timeline.api, calls.thread))
            for pid, tid, thread in _threads(table, of)
        }
        starts, pids, tids = (rows_of(steps[name]).tolist() for name in ("start_ns", "pid", "tid"))
        known = {start: place.get((pid, tid), -1) for start, pid, tid in zip(starts, pids, tids, strict=True)}
        leads = np.array([known.get(each, -1) for each in begin.tolist()], np.int64)
    rows = timeline.ops.num_rows + np.flatnonzero(calls.launches & (calls.thread >= 0))
    rows = rows if len(rows) else np.flatnonzero(events.thread >= 0)
    rows = rows[np.argsort(events.begin[rows], kind="stable")]
    moment, thread = events.begin[rows], events.thread[rows]
    usual = int(np.bincount(thread, minlength=count).argmax())
    for at in np.flatnonzero(leads < 0).tolist():
        low, high = np.searchsorted(moment, (begin[at], end[at]))
        leads[at] = np.bincount(thread[low:high], minlength=count).argmax() if high > low else usual
    return leads


def _threads(table: object, thread: IntArray) -> Iterator[tuple[int, int, int]]:
    """Yield process, number and code of each thread of a table."""
    rows = examples(codes(thread + 1))
    pid, tid = (rows_of(table[name])[rows].tolist() for name in ("pid", "tid"))  # type: ignore[index]
    yield from zip(pid, tid, thread[rows].tolist(), strict=True)


def _pieces(
    timeline: Timeline, events: CallEvents, in_call: BoolArray, lead: IntArray, begin: IntArray, end: IntArray
) -> Iterator[Pieces]:
    """Yield the pieces of steps, of disjoint ones at a time."""
    process, launching, differentiating = _of_threads(timeline, events)
    wanted = np.zeros(len(process) + 1, np.bool_)
    wanted[lead] = True
    wanted[:-1] |= launching > 0
    wanted[-1] = False
    rows = np.flatnonzero(wanted[events.thread])
    swept = innermost(events.begin[rows], events.end[rows], events.thread[rows])
    segments = Segments(
        swept.thread,
        swept.begin,
        swept.end,
        *(np.append(rows, -1)[each] for each in (swept.event, swept.before, swept.after)),
    )
    first = np.searchsorted(segments.thread, np.arange(len(process) + 1))
    busy = in_call[segments.event] & (segments.event >= 0)

    def of(thread: int, chosen: BoolArray | None = None) -> Segments:
        own = np.arange(first[thread], first[thread + 1])
        return segments.of(own if chosen is None else own[chosen[own]])

    for thread in sorted(set(lead.tolist())):
        others = [
            other
            for other in np.argsort(-launching, kind="stable").tolist()
            if other != thread and launching[other] and process[other] == process[thread]
        ]
        helpers = [(of(other, busy), bool(differentiating[other])) for other in others]
        for steps in _disjoint(begin, end, np.flatnonzero(lead == thread)):
            own = own_pieces(begin[steps], end[steps], steps, thread, of(thread))
            yield helped(own, helpers, in_call)


def _of_threads(timeline: Timeline, events: CallEvents) -> tuple[IntArray, IntArray, BoolArray]:
    """Return of each thread its process, how much it launches, and whether it runs a backward pass."""
    count = int(events.thread.max()) + 1
    process = np.full(count, -1, np.int64)
    for table, thread in (
        (timeline.ops, events.thread[: timeline.ops.num_rows]),
        (timeline.api, events.thread[timeline.ops.num_rows :][: timeline.api.num_rows]),
    ):
        pid = rows_of(table["pid"])
        process[thread[thread >= 0]] = pid[thread >= 0]
    own = events.thread >= 0
    launches = own & (events.kind == code("launch"))
    names = categories(timeline.ops["name"])
    engine = names.that(lambda name: name.startswith("autograd::engine::"))
    nodes = events.thread[: timeline.ops.num_rows][engine]
    differentiates = np.bincount(nodes[nodes >= 0], minlength=count) > 0
    return process, np.bincount(events.thread[launches], minlength=count), differentiates


def _disjoint(begin: IntArray, end: IntArray, steps: IntArray) -> Iterator[IntArray]:
    """Yield steps in order, of which no two overlap, until all have been."""
    left = steps[np.argsort(begin[steps], kind="stable")]
    while len(left):
        taken_, until = np.zeros(len(left), np.bool_), np.iinfo(np.int64).min
        for at, (since, upto) in enumerate(zip(begin[left].tolist(), end[left].tolist(), strict=True)):
            if since >= until:
                taken_[at], until = True, upto
        yield left[taken_]
        left = left[~taken_]


def _record(timeline: Timeline, events: CallEvents, of_calls: IntArray, pieces: Pieces, lead: IntArray) -> HostTime:
    event = pieces.event
    kind = taken(events.kind, event)
    kind = np.where(pieces.engine, code("operator"), kind)
    outside = kind < 0
    names = categories(timeline.ops["kind"])
    kind[outside] = code("python" if names.among("op").any() else "not_recorded")
    stack = taken(events.stack_row, event)
    if timeline.stacks.num_rows and outside.any():
        parent = rows_of(timeline.stacks["parent_row"])
        around = (taken(events.stack_row, each[outside]) for each in (pieces.before, pieces.after))
        shared = shared_path(parent, *around)
        own = (each[outside] for each in (pieces.thread, pieces.begin, pieces.end))
        lasting = lasting_path(timeline, of_calls, *own)
        stack[outside] = np.where(lasting >= 0, lasting, shared)
    return HostTime(
        begin_ns=pieces.begin,
        end_ns=pieces.end,
        step=pieces.step,
        thread=pieces.thread,
        kind=kind,
        op_row=taken(events.op_row, event),
        api_row=np.where(pieces.engine, -1, taken(events.api_row, event)),
        stack_row=stack,
        lead=lead,
        critical_ns=covered_ns(*starved(timeline), pieces.begin, pieces.end),
    )


def starved(timeline: Timeline) -> tuple[IntArray, IntArray]:
    """Return when no device was at work and the call that launched the next activity had not returned: disjoint, in
    order. What that call launched may wait for something else than the host from then on.
    """
    activities = timeline.activities
    start, launch = (rows_of(activities[name]).astype(np.int64) for name in ("start_ns", "launch_row"))
    end = start + rows_of(activities["dur_ns"])
    api = timeline.api
    returned = rows_of(api["start_ns"]).astype(np.int64) + rows_of(api["dur_ns"])
    latest = np.maximum.accumulate(end)[:-1] if len(end) else end
    until = np.where(launch >= 0, np.minimum(start, taken(returned, launch)), 0)[1:]
    idle = until > latest
    return latest[idle], until[idle]


__all__ = ["KINDS", "SOMETIMES", "HostTime", "Kind", "host_time", "unseen", "whole_span"]
