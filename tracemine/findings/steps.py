"""Step model: gains of GPU time and launches saved, by the critical path; of idle time, what is left then.

The findings on the GPU are made one after another, in the order in which their rules claim, each for what it adds to
those before it. Then the gaps are closed that are still there. So nothing is gained twice: an idle nanosecond that went
with a launch is not closed again, and all of it together is what the replayed timeline is shorter by.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracemine.columns import sorted_unique, uncovered
from tracemine.findings.critical_path import replay_of
from tracemine.findings.happened import Floats
from tracemine.findings.light import in_light
from tracemine.findings.light_cost import fitted, host_takes, left, told, uninterrupted
from tracemine.findings.recorder import slowdown_of
from tracemine.findings.replay import Replay, ReplayResult, gained
from tracemine.findings.scenarios import Change
from tracemine.perfmodel import COMPILED_CALL_NS, NOTHING, Range, Slowdown, Unprofiled, fitted_slowdown
from tracemine.perfmodel.ranges import outwards
from tracemine.perfmodel.unprofiled import as_recorded, captured, estimated, timing_spread
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import BoolArray, IntArray, Rows, flags, number
from tracemine.timeline import Timeline
from tracemine.units import ratio_text

# Paces of the host between which the one is looked for at which a step takes as long as it does alone.
_PACES = np.geomspace(1.0, 16.0, 25)
# The same of a light window's host, which two timings may show as slower alone than recorded.
_LIGHT_PACES = np.geomspace(0.5, 4.0, 25)
# How much longer a device takes alone than it took in the recording, at most: of 124 steps of an H100 that took 0.9 to
# 1.1 times what the device needs of them as recorded, the 5th percentile is 0.99, the median 1.01, the 95th 1.05. What
# a step takes beyond that is the host's.
_LONGER_ALONE = 1.06
# What the host spends on one launch without a profiler, its operator and what leads to it: small operators take 5 to
# 20 µs, composed ones up to 30. Whatever more lies there is not dispatch, and stays where the launch goes.
_LAUNCH_NS = Range(0, 30_000, 60_000)
# The same where one call does all iterations of a loop: launches go at any rate, and so do views and the loop's own
# Python. What is longer is work that a loop does next to its launches, and stays.
_LOOP_NS = Range(_LAUNCH_NS.mid, 120_000, 1 << 40)
# The same where one launch replays a graph: all that the host did between two launches goes, the program's own as well.
_GRAPH_NS = Range(30_000, 1 << 40, 1 << 40)
# What a step does for so long before its first launch is the program's own, and no dispatch; what is shorter counts as
# the profiler's, whose work at a step's end lies in the same gap.
_LEAST_STALL_NS = 1_000_000
# A host that is done with a step in less than this share of what the step takes waits for the device: its own time says
# how fast it is, and the step's does not.
_AHEAD = 0.9


# Ends of an interval and its middle; where a large value speaks against a fix, the other end.
_LOW, _MID, _HIGH = "low", "mid", "high"
_OTHER = {_LOW: _HIGH, _MID: _MID, _HIGH: _LOW}


class Fix(Struct, frozen=True, eq=False):
    """A finding's fix: for each class of its matches the rows and the saving of GPU time, and what is called.

    `call`: one of CALLS (matching/rule.py), or `graph`: the first launches a match whole, and nothing of what the host
    did in between is done. `unblocks`: the host does not wait for the first activity any more, nor in the calls
    `unwaited`. `call_ns`: what each call costs the host besides.
    """

    matrices: Sequence[IntArray]
    savings: Sequence[Range]
    call: str = "operator"
    unblocks: bool = False
    unwaited: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    call_ns: Range = NOTHING


class Outside(Struct, frozen=True):
    """What of a timeline lies in no step, and so tells nothing of how long one takes."""

    busy_ns: int  # of a device, mean
    gaps: Floats  # of each gap the share that does

    def of(self, gaps_ns: Floats, devices: int) -> Floats:
        """Return how long this is, where gaps last so long; scenarios."""
        found: Floats = self.busy_ns + (gaps_ns @ self.gaps) / max(devices, 1)
        return found


class Steps(Struct, frozen=True, dict=True, eq=False):
    """The unprofiled timeline, and what changes gain in it."""

    replay: Replay
    slowdown: Slowdown | None
    device: IntArray  # of each activity
    next_row: IntArray  # of each gap: the activity that ends it
    recorded_ns: IntArray  # of each gap
    between: IntArray  # activities that end a gap between two steps, where the profiler may be at work
    profiler: Floats  # of each of these gaps the share in which it may
    step_of: IntArray  # of each activity the step that it is part of; −1: none
    outside: Outside | None = None  # what lies in no step; None: all counts
    longer: float = 1.0  # by how much longer the device takes alone than recorded, where that was measured
    light_steps: int = 0  # how many steps ran again as a light window has them; 0: there is none

    @property
    def paces(self) -> tuple[float, float, float]:
        """By how much the host is faster: least, usual, most."""
        return (
            (1.0, 1.0, 1.0) if self.slowdown is None else (self.slowdown.least, self.slowdown.usual, self.slowdown.most)
        )

    def unprofiled(self, timeline: Timeline, recorded_ns: int, busy_ns: int, *, of_step: bool) -> Unprofiled:
        """Return how long a step (of_step; else the whole span) that took `recorded_ns` takes unprofiled.

        It takes no less than the device works for it, `busy_ns`.
        """
        if of_step and timeline.meta.alone_step_ns:
            spread_ns = timeline.meta.alone_step_p10_ns, timeline.meta.alone_step_p90_ns
            return captured(timeline.meta.alone_step_ns, recorded_ns, spread_ns)
        if self.slowdown is None:
            return as_recorded(recorded_ns, of_step=of_step)
        recorded, *alone = np.maximum(self._of_steps(*self._unchanged), 1.0)
        if self.light_steps:  # which the whole window's steps are no measure of
            recorded = max(recorded_ns, 1) * (self.light_steps if of_step else 1)
        most, usual, least = (max(each / recorded, busy_ns / max(recorded_ns, 1)) for each in alone)
        note = (
            f"guessed: {self.slowdown.what} makes the host take {ratio_text(self.slowdown.usual)} times as long "
            f"({self.slowdown.least:g}–{self.slowdown.most:g}, {self.slowdown.measured})"
        )
        return estimated(recorded_ns, (least, usual, most), note, of_step=of_step)

    def replayed_ns(self, paces: Floats) -> Floats:
        """Return how long all steps take on hosts so many times as fast, without the profiler's work between them."""
        return self.without_profiler(self.replay.run(paces))

    def without_profiler(self, ran: ReplayResult) -> Floats:
        """Return how long all steps took where they ran again, without the profiler's work between them."""
        return self._of_steps(ran, idle_before(ran.starts, ran.ends, self.device))

    def _of_steps(self, ran: ReplayResult, idle: Floats) -> Floats:
        of_steps: Floats = ran.done - idle[:, self.between] @ self.profiler - self._outside(ran, idle)
        return of_steps

    def _outside(self, ran: ReplayResult, idle: Floats) -> Floats:
        """Return how long takes what lies in no step."""
        if self.outside is None:
            return np.zeros(len(ran.done))
        return self.outside.of(idle[:, self.next_row], len(sorted_unique(self.device)))

    @cached_property
    def _outside_ns(self) -> float:
        """The same on a host of the usual pace."""
        return float(self._outside(*self._unchanged)[2])

    def gaps_ns(self, changes: Sequence[Change] = ()) -> tuple[IntArray, IntArray, IntArray]:
        """Return how long each gap is, unprofiled and with these changes made: least, usual, most; never more."""
        if self.slowdown is None and not changes:
            return self.recorded_ns, self.recorded_ns, self.recorded_ns
        if changes:
            ran = self.replay.run(np.array(self.paces[::-1]), changes)
            idle = idle_before(ran.starts, ran.ends, self.device)
        else:
            idle = self._unchanged[1][:0:-1]
        least, usual, most = np.minimum(idle[:, self.next_row], self.recorded_ns)
        return least.astype(np.int64), usual.astype(np.int64), most.astype(np.int64)

    @property
    def usual_times(self) -> tuple[IntArray, IntArray]:
        """When each activity starts and ends on a host of the usual pace."""
        ran = self._unchanged[0]
        return ran.starts[2].astype(np.int64), ran.ends[2].astype(np.int64)

    @cached_property
    def _unchanged(self) -> tuple[ReplayResult, Floats]:
        """The timeline run again on a host as fast as recorded, and on all others; how long devices were idle then."""
        ran = self.replay.run(np.array((1.0, *self.paces)))
        return ran, idle_before(ran.starts, ran.ends, self.device)

    def gains(self, fixes: Sequence[Fix]) -> list[Range]:
        """Return what the step gains of each finding's fix, made after those before."""
        return self.gains_of([fixes])[0]

    def gains_of(self, cases: Sequence[Sequence[Fix]]) -> list[list[Range]]:
        """Return the same of several cases, in each of which no fix of another is made.

        On a slow host launches are expensive, on a fast one GPU time: the high end is the larger of what both give.
        """
        least, usual, most = self.paces
        ends = {_MID: [usual], _LOW: [least], _HIGH: sorted({most, least}, reverse=True)}
        asked = [([self.change(fix, end) for fix in fixes], pace) for fixes in cases for end, pace in ends.items()]
        takes = self.replay.takes(asked) if asked else []
        return [self._gained(takes[at : at + len(ends)]) for at in range(0, len(takes), len(ends))]

    def _gained(self, takes: Sequence[Floats]) -> list[Range]:
        """Return the intervals of a case, from how long its ends take: usual, low, high."""
        every = [self.longer * pace for end in takes for pace in end]
        gains = [gained(pace).astype(np.int64).tolist() for pace in every]
        spread = 0.0 if self.slowdown is None else timing_spread(sum(gains[0]), float(every[0][0]) - self._outside_ns)
        return [
            outwards(min(least, mid) * (1 - spread), mid, max(mid, *rest) * (1 + spread))
            for mid, least, *rest in zip(*gains, strict=True)
        ]

    def usual_gains(self, fixes: Sequence[Fix]) -> list[int]:
        """Return the mids of `gains` alone."""
        gained = self.replay.gains([self.change(fix) for fix in fixes], self.paces[1])
        return [int(each) for each in self.longer * gained]

    def change(self, fix: Fix, end: str = _MID) -> Change:
        """Return a fix as a change of the timeline: the last activities of each match get shorter, and only the first
        is launched; none of them where nothing is called in their place.
        """
        rows, saved, unlaunched, called = [], [], [], []
        for matrix, saving in zip(fix.matrices, fix.savings, strict=True):
            left = np.full(len(matrix), getattr(saving, end) // max(len(matrix), 1))
            for column in matrix.T[::-1]:
                part = np.minimum(left, self.replay.dur[column])
                rows.append(column)
                saved.append(part)
                left = left - part
            if fix.call not in ("each", "iteration"):
                unlaunched.append(matrix[:, 1:].reshape(-1))
            called.append(matrix[:, 0])
        first, gone = self._first(fix, _joined(called))
        unlaunched.append(gone)
        fewer = fix.call in ("graph", "loop") or end != _LOW
        compiled = fix.call in ("compiled", "iteration")
        call_ns = fix.call_ns + (COMPILED_CALL_NS if compiled else NOTHING)
        return Change(
            rows=_joined(rows),
            saved_ns=_joined(saved),
            unlaunched=_joined(unlaunched) if fewer else first[:0],
            whole=end == _HIGH or fix.call in ("graph", "loop", "nothing"),
            most_ns=getattr({"graph": _GRAPH_NS, "loop": _LOOP_NS}.get(fix.call, _LAUNCH_NS), end),
            called=first if call_ns.high else first[:0],
            call_ns=getattr(call_ns, _OTHER[end]),
            unblocked=first if fix.unblocks and fewer else first[:0],
            unwaited=fix.unwaited if fewer else first[:0],
        )

    def _first(self, fix: Fix, first: IntArray) -> tuple[IntArray, IntArray]:
        """Return which of the matches' first activities are launched still, and which are not."""
        if fix.call == "nothing":
            return first[:0], first
        if fix.call != "step":
            return first, first[:0]
        kept = self._first_of_steps(first)
        return first[kept], first[~kept]

    def _first_of_steps(self, rows: IntArray) -> BoolArray:
        """Return which activities are the first of their step; those in no step all are."""
        step = self.step_of[rows]
        earliest = {at: row for row, at in sorted(zip(rows.tolist(), step.tolist(), strict=True), reverse=True)}
        first: BoolArray = rows == np.array([earliest[at] for at in step.tolist()], np.int64)
        return first | (step < 0)


def _joined(parts: Sequence[IntArray]) -> IntArray:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def steps_of(
    timeline: Timeline, gaps: Rows, step_of: IntArray | None = None, in_steps_ns: IntArray | None = None
) -> Steps:
    """Return the unprofiled timeline: the host is faster by what recording costs it, as far as that is known.

    step_of: of each activity the step that it is part of, −1: none. in_steps_ns: of each gap how much lies in steps.
    """
    measured = timeline.light.num_rows > 0
    replay = _recorded(timeline)
    device = rows_of(timeline.activities["device"])
    next_row = number(gaps, "next_row")
    between = flags(gaps, "between_steps")
    slowdown = slowdown_of(timeline)
    of_step = np.full(len(device), -1) if step_of is None else step_of
    outside = _outside(replay, device, gaps, of_step, number(gaps, "dur_ns") if in_steps_ns is None else in_steps_ns)
    dur, into = number(gaps, "dur_ns")[between], number(gaps, "within_steps_ns")[between]
    profiler = np.where(into >= _LEAST_STALL_NS, 1 - into / np.maximum(dur, 1), 1.0)
    if measured:  # the profiler was at no work between the steps of a light window
        profiler = np.zeros(len(dur))
    count = timeline.steps.num_rows if step_of is None else len(sorted_unique(step_of[step_of >= 0]))
    steps = Steps(
        replay, slowdown, device, next_row, number(gaps, "dur_ns"), next_row[between], profiler, of_step, outside,
        light_steps=count if measured else 0,
    )  # fmt: skip
    alone_ns, host_ns = timeline.meta.alone_step_ns, timeline.meta.host_step_ns
    if slowdown is None or not alone_ns or not count or not gaps.count:
        return steps
    busy_ns = (_busy_ns(replay, device) - (0 if outside is None else outside.busy_ns)) / count
    least_ns = busy_ns if busy_ns <= alone_ns else 0.0  # alone it was at work for less than in the recording
    if not measured:
        return _at_pace(steps, slowdown, alone_ns, host_ns, least_ns, count)
    if least_ns < _AHEAD * alone_ns:  # the host sets the pace: the step itself says more than its part from idle on
        host_ns = None
    eased = _eased(steps, alone_ns, host_ns, least_ns, count)
    eased = _at_pace(eased, left(slowdown), alone_ns, host_ns, least_ns, count)
    return replace(eased, slowdown=told(eased.slowdown or slowdown, steps.replay, eased.replay))


def _recorded(timeline: Timeline) -> Replay:
    """Return a timeline as it was recorded, by its light window where it has one."""
    replay = replay_of(in_light(timeline))
    return uninterrupted(replay, replay_of(timeline)) if timeline.light.num_rows else replay


def _eased(steps: Steps, alone_ns: int, host_ns: int | None, least_ns: float, count: int) -> Steps:
    """Return the timeline of a light window without what recording it cost each call."""
    if host_ns and host_ns < _AHEAD * alone_ns and steps.replay.step is not None:
        return replace(steps, replay=fitted(steps.replay, host_takes, host_ns))

    def takes(ran: ReplayResult) -> float:
        return max(float(steps.without_profiler(ran)[0]) / count, least_ns)

    return replace(steps, replay=fitted(steps.replay, takes, alone_ns))


def _at_pace(
    steps: Steps, slowdown: Slowdown, alone_ns: int, host_ns: int | None, least_ns: float, count: int
) -> Steps:
    """Return the timeline with the host as fast as makes a step take what it takes alone."""
    paces = _LIGHT_PACES if steps.light_steps else _PACES
    ran = steps.replay.run(paces)
    step_ns = np.maximum(steps.without_profiler(ran) / count, least_ns)
    slowdown = fitted_slowdown(paces, step_ns, alone_ns, slowdown)
    if host_ns and ran.host_step is not None and host_ns < _AHEAD * alone_ns:
        ahead = fitted_slowdown(paces, ran.host_step, host_ns, slowdown)
        # Where the device does not keep so fast a host for as long as the step took, the host was slower in it.
        if np.interp(ahead.usual, paces, step_ns) >= _AHEAD * alone_ns:
            slowdown = ahead
    found = replace(steps, slowdown=slowdown)
    replayed = float(np.interp(found.paces[1], paces, step_ns))
    return replace(found, longer=min(max(alone_ns / replayed, 1.0), _LONGER_ALONE))


def _outside(replay: Replay, device: IntArray, gaps: Rows, step_of: IntArray, in_steps_ns: IntArray) -> Outside | None:
    """Return what lies in no step; None where no step is known."""
    dur, in_none = number(gaps, "dur_ns"), step_of < 0
    if in_none.all():
        return None
    share = np.where(
        flags(gaps, "between_steps"), 0.0, 1 - in_steps_ns / np.maximum(dur, 1)
    )  # those count for nothing already
    alone = 0
    for ordinal in sorted_unique(device):
        rows = np.flatnonzero(device == ordinal)
        alone += int(uncovered(replay.start[rows], replay.start[rows] + replay.dur[rows])[in_none[rows]].sum())
    return Outside(alone // max(len(sorted_unique(device)), 1), share)


def _busy_ns(replay: Replay, device: IntArray) -> int:
    """Return for how long the busiest device was at work: run again, streams may overlap more than it has room for."""
    longest = 0
    for ordinal in sorted_unique(device):
        rows = np.flatnonzero(device == ordinal)
        begin = replay.start[rows]
        longest = max(longest, int(uncovered(begin, begin + replay.dur[rows]).sum()))
    return longest


def idle_before(starts: Floats, ends: Floats, device: IntArray) -> Floats:
    """Return how long the device of each activity was idle before it, in each scenario; activities in order of start.

    >>> idle_before(np.array([[0.0, 9.0]]), np.array([[5.0, 12.0]]), np.array([0, 0])).tolist()
    [[0.0, 4.0]]
    """
    idle = np.zeros_like(starts)
    for ordinal in sorted_unique(device):
        rows = np.flatnonzero(device == ordinal)
        latest = np.maximum.accumulate(ends[:, rows], axis=1)
        idle[:, rows[1:]] = np.maximum(starts[:, rows[1:]] - latest[:, :-1], 0.0)
    return idle
