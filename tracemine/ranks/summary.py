"""One rank, read once: its collectives, its own time between them, and the reasons why that may be long.

Own time is a rank's time less the spans in which a collective held its computing. It is cut into stretches, each of
which ends where the next collective is issued; a wait for a collective lies within a stretch. The host works ahead of
its device: its stretches end where it launches the next collective. This is all that the job keeps of a rank, and times
are integer nanoseconds on the rank's own clock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracemine.columns import numbers
from tracemine.findings.host_spans import loading
from tracemine.ranks.collectives import Collectives, collectives_of
from tracemine.ranks.kernels import KernelTimes, kernel_times
from tracemine.ranks.operators import Silence, after_backward, calling_ns, collecting_ns, longest, operators_of, pace_ns
from tracemine.ranks.parts import CollectiveParts, collective_parts
from tracemine.rows.host import HostCalls, threads
from tracemine.rows.spans import Spans, close_as_one, common, exposed
from tracemine.rows.table import BoolArray, FloatArray, IntArray
from tracemine.timeline import Timeline

_QUEUED_NS = 100_000  # a collective that begins so soon after the one before it on its stream was queued behind it
_GATED_NS = 60_000  # work that was launched before a collective ended and begins so soon after had waited for it
_SILENT_NS = 300_000  # the host records neither begin nor end of anything: Python, a loader, a lock
_IDLE_NS = 20_000  # shorter gaps are change-overs
_COMPUTING = 0.2  # of all computing is on a stream that computes
# What recording an operator and a call costs the host, by the pace at which it records: the time from an operator's
# begin to that of the first one that it calls. Of 35 recordings of torch 2.11 on H100 and H200; held by 46 others.
_OPERATOR, _CALL = 2.0, 0.5
_DRAWN = 200  # of a step: shorter gaps are not drawn
_DROP_FIRST_OF = 3  # recorded steps, from which on the first is left out: it warms up


class Stretches(Struct, frozen=True):
    """What a rank did in stretches of time, collectives that held it up left out; nanoseconds, and events."""

    own: IntArray
    busy: IntArray  # computing
    queued_idle: IntArray  # the device idled though work had been launched before and no collective held it
    host: IntArray  # the host works, what recording adds left out; as the following, in stretches of the host
    silent: IntArray  # it recorded nothing
    operators: IntArray


class Meetings(Struct, frozen=True):
    """Of each stretch where its host last waited for all that it had launched; in arrays of as many."""

    own: IntArray  # own time of the device; -1: nowhere
    share: FloatArray  # of what the host does in the stretch, that is done by then


class RankSummary(Struct, frozen=True, kw_only=True):
    """One rank as the job knows it. Arrays of collectives stand in order of issue."""

    rank: int
    file: str
    device: str | None
    world_size: int | None
    steps: int
    window: tuple[int, int]
    collectives: Collectives
    start: IntArray
    dur: IntArray
    exposed: IntArray
    stream: IntArray
    computes: BoolArray  # its stream is one that computes, but for copies around communication
    step: IntArray  # -1: outside the window
    issue: IntArray  # own time at which it is issued
    wait: IntArray  # own time at which its wait begins; -1: nothing waits for it
    stretches: Stretches  # one more than collectives in the window
    by_step: Stretches
    wait_ns_by_step: IntArray
    kernels: KernelTimes
    silence: Silence | None  # the longest in the window
    loading_ns: int  # a step, in a loop at its data
    hosting_ns: int  # a step, that the host works, what recording adds left out
    call_ns: IntArray  # of the host since the launch before, but for other operators, as if not recorded; -1: unknown
    queued_ns: IntArray  # since each could have begun, behind another one on its stream
    after_backward: BoolArray  # issued after the step's last backward kernel
    meetings: Meetings
    part: IntArray  # what each collective is there for, a place in `parts.NAMES`; -1: nothing of these
    # Begin and end of computing in the last step; what lies close together as one.
    computing: IntArray = msgspec.field(default_factory=lambda: np.zeros((0, 2), np.int64))
    # Of each step, silence of its host beyond what counts as one at all.
    silent_over_ns: IntArray = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))
    numbers: tuple[int, ...] = (-1,)  # of the steps, as marked; -1: not numbered
    collecting_ns: int = 0  # a step, Python's garbage where it recorded nothing else
    operators: dict[str, int] = {}  # those that ran most often, and how often
    calls_ns: dict[str, IntArray] = {}  # of each stretch what the host works for a part's collectives, if not recorded
    clock: str | None = None  # the file that holds other ranks as well, by one clock


def summarise(timeline: Timeline, path: str, rank: int, only: range | None = None) -> RankSummary:
    """Return what the job keeps of a rank. only: the numbers of the steps that count; by default all but the first."""
    return _Rank(timeline, path, rank, only).summary()


class _Rank:
    """The columns of one rank that its summary is made of."""

    def __init__(self, timeline: Timeline, path: str, rank: int, only: range | None) -> None:
        self.timeline, self.path, self.rank = timeline, path, rank
        activities = timeline.activities
        self.start = numbers(activities.column("start_ns"))
        self.end = self.start + numbers(activities.column("dur_ns"))
        launch = numbers(activities.column("launch_row"), null=-1)
        thread, _ = threads(timeline)
        self.calls = HostCalls.of(timeline, launch, thread)
        self.launched = np.where(launch >= 0, np.append(self.calls.begin, 0)[launch], self.start)
        self.steps, self.ends, self.numbers = _steps(timeline, self.start, self.end, only)
        sent = collectives_of(timeline)
        self.communicates = np.zeros(len(self.start), np.bool_)
        self.communicates[sent.activity] = True
        self.computing_rows = computing = np.flatnonzero(~self.communicates)
        self.computing = Spans.of(self.start[computing], self.end[computing])
        self.found = sent
        self.pace_ns, self.loads = pace_ns(timeline), loading(timeline, 0)
        self.devices = set(numbers(activities.column("device"), null=-1).tolist())
        begin, end = self.start[sent.activity], self.end[sent.activity]
        self.communicating, self.bare = Spans.of(begin, end), exposed(begin, end, self.computing)

    def summary(self) -> RankSummary:
        begin, end = int(self.steps[0]), int(self.ends[-1])
        rows = self.found.activity
        stream = numbers(self.timeline.activities.column("stream"), null=-1)
        issued = self._issued(rows, stream[rows])
        gates = self._gates(rows, issued)
        order = np.argsort(issued, kind="stable")
        rows, issued, gates = rows[order], issued[order], gates[order]
        step = np.searchsorted(self.steps, self.launched[rows], "right") - 1
        step = np.where((self.launched[rows] >= begin) & (issued < end), step, -1)
        inside = step >= 0
        held = inside & (gates >= 0)  # what holds the first step, and was launched before it, is the rank's own
        blocked = Spans.of(np.clip(gates[held], begin, end), np.clip(self.end[rows[held]], begin, end))

        def own(time: IntArray) -> IntArray:
            time = np.clip(time, begin, end)
            return time - begin - blocked.until(time)

        computes = np.isin(stream[rows], self._computing_streams(stream))
        edges = np.concatenate(([begin], np.clip(issued[inside], begin, end), [end]))
        launched = np.maximum.accumulate(np.clip(self.launched[rows[inside]], begin, end))
        host_edges = np.concatenate(([begin], launched, [max(self._last_of_host(end), *launched[-1:], begin)]))
        place = np.argsort(order)  # of each collective, in order of start, in that of issue
        parts = collective_parts(self.timeline, self.found, step[place], computes[place])
        step_edges = np.append(self.steps, end)
        stretches = self._stretches(edges, host_edges, blocked)
        return RankSummary(
            rank=self.rank,
            file=Path(self.path).name,
            device=next((d.name for d in self.timeline.meta.devices if d.ordinal in self.devices), None),
            world_size=self.timeline.meta.world_size,
            steps=len(self.steps), numbers=self.numbers, window=(begin, end),
            collectives=self.found.reordered(order),
            start=self.start[rows],
            dur=self.end[rows] - self.start[rows],
            exposed=self.bare[order],
            stream=stream[rows],
            computes=computes,
            step=step,
            issue=own(issued),
            wait=np.where(held, own(gates), -1),
            stretches=stretches,
            by_step=self._by_step(step_edges, blocked),
            wait_ns_by_step=blocked.within(step_edges[:-1], step_edges[1:]),
            kernels=self._kernels(begin, end),
            silence=longest(self.timeline, self.silence),
            silent_over_ns=self._of_host(Spans.of(self.silence.begin + _SILENT_NS, self.silence.end), step_edges),
            loading_ns=int(self.loads.within(step_edges[:1], step_edges[-1:])[0]) // len(self.steps),
            collecting_ns=collecting_ns(self.timeline, self.silence) // len(self.steps),
            operators=operators_of(self.timeline, begin, end),
            hosting_ns=self._hosting_ns(begin, end),
            call_ns=calling_ns(self.timeline, parts.sends, self.launched[rows], self.calls.begin, self._added_ns),
            queued_ns=self.start[rows] - issued,
            after_backward=after_backward(self.timeline, step_edges, self.launched[rows], step),
            meetings=self._meetings(host_edges, own),
            part=parts.code[order],
            calls_ns=self._of_calls(parts, host_edges, stretches),
            computing=self._computing(step_edges),
        )  # fmt: skip

    def _computing_streams(self, stream: IntArray) -> IntArray:
        """Return the streams on which a good part of the work is computed."""
        streams, of = np.unique(stream, return_inverse=True)
        spent = np.bincount(of.reshape(-1), weights=np.where(self.communicates, 0, self.end - self.start))
        shared: IntArray = streams[spent >= _COMPUTING * spent.sum()]
        return shared

    def _of_calls(self, parts: CollectiveParts, edges: IntArray, stretches: Stretches) -> dict[str, IntArray]:
        """Return what the host's calls of each part take between collectives: as they were recorded, of what is left of
        all that the host did, less what stays of each call.
        """
        recorded = np.diff(edges) - self.waits.within(edges[:-1], edges[1:]) - stretches.silent
        left = float(stretches.host.sum()) / max(int(recorded.sum()), 1)
        found = {}
        for name, spans in parts.calls.items():
            stays = parts.left_ns.get(name, 0) * np.diff(np.searchsorted(spans.begin, edges))
            found[name] = np.maximum((self._of_host(spans, edges) * left).astype(np.int64) - stays, 0)
        return found

    def _computing(self, edges: IntArray) -> IntArray:
        begin, end = (np.clip(each, edges[-2], edges[-1]) for each in (self.computing.begin, self.computing.end))
        there = end > begin
        return close_as_one(begin[there], end[there], int(edges[-1] - edges[-2]) // _DRAWN)

    def _issued(self, rows: IntArray, stream: IntArray) -> IntArray:
        """Return when each collective could have begun but for the others of its job: never after it did begin."""
        launched, issued = self.launched[rows], self.start[rows].copy()
        order = np.argsort(self.launched[self.computing_rows], kind="stable")
        ends = np.maximum.accumulate(self.end[self.computing_rows][order]) if len(order) else order
        ahead = np.searchsorted(self.launched[self.computing_rows][order], launched, "left") - 1
        before = np.where(ahead >= 0, np.append(ends, 0)[ahead], 0)
        for number in np.unique(stream).tolist():
            at = np.flatnonzero(stream == number)
            gap = self.start[rows[at[1:]]] - self.end[rows[at[:-1]]]
            queued = np.append(False, gap < _QUEUED_NS)
            earliest = np.minimum(np.maximum(launched[at], before[at]), issued[at])
            issued[at] = np.maximum.accumulate(np.where(queued, earliest, issued[at]))
        return issued

    def _gates(self, rows: IntArray, issued: IntArray) -> IntArray:
        """Return since when each collective held the rank's computing, -1 where it held nothing.

        It did where work that was launched before it ended begins right behind it, or the host itself waited across
        its end. A gap that a late launch ends is the rank's own.
        """
        since, ends = np.full(len(rows), -1, np.int64), self.end[rows]
        busy_begin, busy_end = self.computing.begin, self.computing.end
        if not len(busy_begin):
            return since
        at = np.searchsorted(busy_begin, ends, "left")  # the work behind the gap
        idle_since = np.where(at > 0, np.append(busy_end, 0)[at - 1], np.iinfo(np.int64).min)
        in_gap = idle_since <= ends
        order = self.computing_rows[np.argsort(self.start[self.computing_rows], kind="stable")]
        next_one = order[np.minimum(np.searchsorted(self.start[order], ends, "left"), len(order) - 1)]
        gated = (
            in_gap
            & (at < len(busy_begin))
            & (self.launched[next_one] < ends)
            & (self.start[next_one] - ends < _GATED_NS)
        )
        since = np.where(gated, np.maximum(self.launched[next_one], idle_since), since)
        waits = np.flatnonzero(self.calls.blocks)
        if len(waits):
            waits = waits[np.argsort(self.calls.begin[waits], kind="stable")]
            last = np.searchsorted(self.calls.begin[waits], ends, "right") - 1
            waited = (last >= 0) & (self.calls.end[waits][np.maximum(last, 0)] > ends) & in_gap & ~gated
            since = np.where(waited, np.maximum(self.calls.begin[waits][np.maximum(last, 0)], idle_since), since)
        return np.where(since >= 0, np.minimum(np.maximum(since, issued), ends), -1)

    def _stretches(self, edges: IntArray, host_edges: IntArray, blocked: Spans) -> Stretches:
        begin, end = edges[:-1], edges[1:]
        own = partial(_unblocked, edges=edges, blocked=blocked)
        operators, _ = self._counts(host_edges)
        silent = self._of_host(self.silence, host_edges)
        works = np.diff(host_edges) - silent - self.waits.within(host_edges[:-1], host_edges[1:])
        return Stretches(
            own=end - begin - blocked.within(begin, end),
            busy=own(self._of_window),
            queued_idle=own(self._queued_idle()),
            host=np.maximum(works - self._added_ns(*self._counts(host_edges)), 0),
            silent=silent,
            operators=operators,
        )

    @cached_property
    def _of_window(self) -> Spans:
        """Return computing that the window launched: a device that lags is not done with what came before it."""
        rows = self.computing_rows[self.launched[self.computing_rows] >= self.steps[0]]
        return Spans.of(self.start[rows], self.end[rows])

    @cached_property
    def waits(self) -> Spans:
        """Return spans in which the host waits for the device."""
        return Spans.of(self.calls.begin[self.calls.blocks], self.calls.end[self.calls.blocks])

    @cached_property
    def _events(self) -> tuple[IntArray, IntArray]:
        """Return when operators and calls begin, in order."""
        return np.sort(numbers(self.timeline.ops.column("start_ns"))), np.sort(self.calls.begin)

    def _counts(self, edges: IntArray) -> tuple[IntArray, IntArray]:
        """Return how many operators and calls begin between each two edges."""
        operators, calls = (np.diff(np.searchsorted(each, edges)) for each in self._events)
        return operators, calls

    def _added_ns(self, operators: IntArray, calls: IntArray) -> IntArray:
        """Return what recording so many operators and calls adds to the host."""
        added: IntArray = (self.pace_ns * (operators * _OPERATOR + calls * _CALL)).astype(np.int64)
        return added

    def _of_host(self, spans: Spans, edges: IntArray) -> IntArray:
        """Return how much of some spans lies between each two edges and is no wait for the device."""
        return _unblocked(spans, edges, self.waits)

    def _last_of_host(self, end: int) -> int:
        """Return when the host last began an operator or ended a call."""
        return max(int(each[each < end].max(initial=0)) for each in (self._events[0], self.calls.end))

    def _meetings(self, edges: IntArray, own: Callable[[IntArray], IntArray]) -> Meetings:
        """Return where the host last met its device in each stretch. edges: of the host's stretches."""
        met = np.sort(self.calls.end[self.calls.blocks])
        at = np.searchsorted(met, edges[1:], "right") - 1
        there = (at >= 0) & (np.append(met, 0)[at] > edges[:-1])
        time = np.where(there, np.append(met, 0)[at], edges[:-1])
        before, whole = (until - edges[:-1] - self.waits.within(edges[:-1], until) for until in (time, edges[1:]))
        return Meetings(np.where(there, own(time), -1), before / np.maximum(whole, 1))

    def _by_step(self, edges: IntArray, blocked: Spans) -> Stretches:
        """Return the steps as stretches. What the device does counts to the step that launched it: it may lag."""
        launched = self.launched[self.computing_rows]
        of_step = np.where(launched < self.ends[-1], np.searchsorted(self.steps, launched, "right") - 1, -1)
        busy = [
            int(Spans.of(self.start[rows], self.end[rows]).dur.sum())
            for step in range(len(self.steps))
            for rows in (self.computing_rows[of_step == step],)
        ]
        return replace(self._stretches(edges, edges, blocked), busy=np.array(busy, np.int64))

    @cached_property
    def silence(self) -> Spans:
        """Return spans without any event of the host, but for those within a call: there it waits for the driver."""
        begin, end, begun = int(self.steps[0]), int(self.ends[-1]), numbers(self.timeline.ops.column("start_ns"))
        ended = begun + numbers(self.timeline.ops.column("dur_ns"))  # marks of steps and annotations are among them
        moments = np.sort(np.concatenate((begun, ended, self.calls.begin, self.calls.end)))
        edges = np.concatenate(([begin], moments[(moments >= begin) & (moments <= end)], [end]))
        long = np.flatnonzero(np.diff(edges) > _SILENT_NS)
        starts, ends = edges[long], edges[long + 1]
        in_call = Spans.of(self.calls.begin, self.calls.end).within(starts, ends) > (ends - starts) // 2
        return Spans.of(starts[~in_call], ends[~in_call])

    def _queued_idle(self) -> Spans:
        """Return gaps of the device behind which work stands that was launched before they began."""
        begin, end = self.computing.end[:-1], self.computing.begin[1:]
        order = self.computing_rows[np.argsort(self.start[self.computing_rows], kind="stable")]
        after = np.searchsorted(self.start[order], end, "left")
        first = order[np.minimum(after, len(order) - 1)] if len(end) else order[:0]
        queued = (end - begin > _IDLE_NS) & (self.launched[first] < begin)
        queued &= (self.communicating.within(begin, end) == 0) & (self.waits.within(begin, end) == 0)
        return Spans.of(begin[queued], end[queued])

    def _kernels(self, begin: int, end: int) -> KernelTimes:
        chosen = np.flatnonzero(~self.communicates & (self.launched >= begin) & (self.launched < end))
        beside = self.communicating.within(self.start[chosen], self.end[chosen]) > 0
        return kernel_times(self.timeline, chosen, self.end[chosen] - self.start[chosen], beside)

    def _hosting_ns(self, begin: int, end: int) -> int:
        """Return how long the host works a step: it waits for nothing, and the profiler adds nothing."""
        edges = np.array([begin, max(self._last_of_host(end), begin)])
        works = int(
            np.diff(edges)[0] - self.waits.within(edges[:1], edges[1:])[0] - self._added_ns(*self._counts(edges))[0]
        )
        return max(works, 0) // len(self.steps)


def _steps(
    timeline: Timeline, start: IntArray, end: IntArray, only: range | None
) -> tuple[IntArray, IntArray, tuple[int, ...]]:
    """Return begin and end of the steps on the host, and their numbers; without marks one window.

    Of three or more the first is out, or all but the numbers that are given.
    """
    last, marks = int(end.max(initial=0)), timeline.steps
    if not marks.num_rows:
        calls = numbers(timeline.api.column("start_ns"))
        first = min(int(start.min(initial=last)), int(calls.min(initial=last)))
        return np.array([first]), np.array([max(last, first + 1)]), (-1,)
    begin = numbers(marks.column("start_ns"))
    order = np.argsort(begin, kind="stable")
    begin, number = begin[order], numbers(marks.column("number"), null=-1)[order]
    ends = np.append(begin[1:], max(int(begin[-1]) + int(numbers(marks.column("dur_ns"))[order[-1]]), last))
    kept = np.arange(len(begin)) >= (1 if len(begin) >= _DROP_FIRST_OF else 0)
    kept = kept if only is None else np.isin(number, only)
    return begin[kept], ends[kept], tuple(number[kept].tolist())


def _unblocked(spans: Spans, edges: IntArray, blocked: Spans) -> IntArray:
    """Return how much of some spans lies between each two edges and is not blocked."""
    begin, end = edges[:-1], edges[1:]
    free: IntArray = spans.within(begin, end) - common(spans, blocked).within(begin, end)
    return free
