"""A recorded timeline run again with other times, to see what a step gains.

An activity starts when the last of what it waited for is done and a delay has passed: the activity before it on its
stream, the call that launched it and, behind an event, other streams. A host call follows the call before it and, where
it blocks, the device. After what did come last the delay is the recorded one. So shorter activities shorten the step
where the device sets the pace, fewer launches where the host does: the later one wins, everywhere anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracemine.perfmodel import LOADING_PACE
from tracemine.rows.table import BoolArray, IntArray

Floats = npt.NDArray[np.float64]
_NEVER = int(np.iinfo(np.int64).max)  # no scenario
# Times of activities that are held at once: 16 MB an array. Scenarios are independent of each other, and run in parts.
_MOST_TIMES = 2_000_000


@dataclass(frozen=True, slots=True)
class Change:
    """A finding's effect on the timeline. Rows of `activities`, each in one change at most."""

    rows: IntArray  # those that get shorter
    saved_ns: IntArray  # by this much each, no more than it lasts
    unlaunched: IntArray  # those whose launch is not made any more
    whole: bool  # with one goes all that the host did since the launch before; else its operator, where that is alone
    called: IntArray  # those whose launch costs the host more than it did
    call_ns: int  # by this much, whatever the host's pace
    unblocked: IntArray  # those that the host does not wait for any more, neither in their launch nor right after it


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The timeline run again: scenarios are the first axis of each."""

    done: Floats  # how long all takes from the first start on
    starts: Floats  # of each activity, since the recorded first start
    ends: Floats
    host_step: Floats | None  # for how long the host is at the first step; None: its begin and end are not known


@dataclass(frozen=True, slots=True)
class Operators:
    """The outermost operator of each call that launches no more than the one that made it. A value a call."""

    row: IntArray  # of the operator; −1: none is known
    launches: IntArray  # that the operator makes
    lead_ns: IntArray  # how much of the host's own time before the call lies before that operator
    tail_ns: IntArray  # for how long the operator goes on behind the call's begin

    def kept(self, unmade: IntArray) -> BoolArray:
        """Return which of these calls have an operator that still makes others, or that is not known."""
        row = self.row[unmade]
        gone = np.bincount(row[row >= 0], minlength=int(row.max(initial=0)) + 1)
        kept: BoolArray = (row < 0) | (gone[row] < self.launches[unmade])
        return kept


@dataclass(frozen=True, slots=True)
class HostEvents:
    """What the host did, in order: launches where they begin, and blocking calls where they end. A value an event."""

    call: IntArray
    blocks: BoolArray  # the call returns; else it launches
    work_ns: IntArray  # the host's own time since the event before
    loading_ns: IntArray  # how much of that went into loading data, which recording stretches little
    own_ns: IntArray  # the host's own time in a blocking call
    waits_for: IntArray  # the activity that a blocking call waits for; −1: none
    after_ns: IntArray  # from that activity's end to the call's
    launch: IntArray  # of each call: its event as a launch; −1: it launches nothing


@dataclass(frozen=True, slots=True)
class Across:
    """Waits of activities for another stream."""

    row: IntArray
    source: IntArray  # the activity that it waits for, an earlier row
    delay_ns: IntArray  # after that one's end


@dataclass(frozen=True, slots=True)
class HostStep:
    """A step as the host goes through it: its first and last event in `HostEvents`, and the host's own time in it
    before the first and after the last.
    """

    first: int
    last: int
    around_ns: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Activities of one stream that wait for nothing but calls and each other: places in `Segments.rows`."""

    begin: int
    end: int
    follows: bool  # the one at `begin` follows another of its stream
    launched: int | None  # as in `Segments`, where it is the same for all of them
    across: tuple[tuple[int, int, int], ...]  # places in it, of what each waits for, and rows of `Across`


@dataclass(frozen=True, slots=True)
class Segments:
    """The order in which a timeline is run: segments of streams, and between them the host's waits for the device."""

    rows: IntArray  # activities by stream
    place: IntArray  # of each activity in `rows`
    launched: IntArray  # of each of `rows`: how many waits the host had behind it at its launch
    turns: tuple[Segment | int, ...]  # a segment, or the place of an activity that the host waits for
    waits: IntArray  # events of the host that wait for the device, in order
    waited: IntArray  # of each event of the host how many of them it has behind it, itself included


@dataclass(frozen=True, slots=True)
class Replay:
    """Everything that happened, in order, and what it waited for. Nanoseconds since the first activity's start."""

    begins: int  # the first host event
    host: HostEvents
    start: IntArray
    dur: IntArray
    launch: IntArray  # of each activity, −1 where the one before it in its graph is all that it waits for
    launch_delay: IntArray  # from that call's begin
    inside: BoolArray  # of each activity: it waits for no call, as the one before it is of the same launch
    follow_delay: IntArray  # from the end of the activity before on its stream
    across: Across
    segments: Segments
    sole_launch: BoolArray  # of each activity: nothing else was launched by its call
    operators: Operators
    last: tuple[tuple[int, int, int, int], ...]  # of each stream: last activity; its call, or −1; delay, time it took
    interval_ns: float  # from one launch call to the next, the host's own time: mean
    step: HostStep | None = None  # the first one, as the host goes through it

    def sole_calls(self, rows: IntArray) -> IntArray:
        """Return the calls that launched activities, of those that launched nothing else."""
        return self.launch[rows[self.sole_launch[rows]]]

    def run(self, pace: Floats, changes: Sequence[Change] = ()) -> ReplayResult:
        """Run the timeline with other times: [scenarios], and twice [scenarios, activities].

        In scenario k the host takes 1/pace[k] of its time. Where there is one scenario more than changes, the first k
        of them are made in it; else all of them in all.
        """
        parts = [one.result() for one in self._runs(pace, changes)]
        done, starts, ends = (
            np.concatenate([getattr(one, name) for one in parts]) for name in ("done", "starts", "ends")
        )
        steps = [one.host_step for one in parts if one.host_step is not None]
        return ReplayResult(done, starts, ends, np.concatenate(steps) if steps else None)

    def takes(self, changes: Sequence[Change], pace: float) -> Floats:
        """Return how long the whole takes without any of the changes, with the first, with the first two, and so on."""
        return np.concatenate([one.done() for one in self._runs(np.full(len(changes) + 1, pace), changes)])

    def gains(self, changes: Sequence[Change], pace: float) -> Floats:
        """Return by how much each change shortens the whole, made one after another: they add up to what all give."""
        return gained(self.takes(changes, pace)) if changes else np.zeros(0)

    def _runs(self, pace: Floats, changes: Sequence[Change]) -> Iterator[_Run]:
        """Yield runs of as many scenarios each as may be held at once."""
        edits = _Edits.of(self, changes, in_turn=len(pace) == len(changes) + 1)
        width = max(_MOST_TIMES // max(len(self.start), 1), 1)
        for first in range(0, len(pace), width):
            yield _Run(self, edits, pace[first : first + width], first)


def gained(takes: Floats) -> Floats:
    """Return by how much each change shortens the whole, from how long that takes with none, with the first, and so on.

    >>> gained(np.array([9.0, 7.0, 8.0])).tolist()
    [2.0, 0.0]
    """
    return np.maximum(-np.diff(takes), 0.0)


@dataclass(frozen=True, slots=True)
class _Edits:
    """Effects of changes: the first scenario that has each (`_NEVER`: none), of activities or of events of the host."""

    saved: tuple[tuple[int, IntArray, IntArray], ...]  # of each change its first scenario, activities, and savings
    unlaunched: IntArray  # of each event
    whole: BoolArray  # of each event: with its launch goes all before it
    longer: IntArray  # of each event
    longer_ns: IntArray
    unblocked: IntArray  # of each event

    @staticmethod
    def of(replay: Replay, changes: Sequence[Change], *, in_turn: bool) -> _Edits:
        count = len(replay.host.call)
        unlaunched, longer, unblocked = (np.full(count, _NEVER) for _ in range(3))
        whole, longer_ns, saved = np.zeros(count, np.bool_), np.zeros(count, np.int64), []
        for number, change in enumerate(changes, 1):
            since = number if in_turn else 0
            saved.append((since, change.rows, change.saved_ns))
            call = replay.sole_calls(change.unlaunched)
            event = replay.host.launch[call]
            unlaunched[event], whole[event] = since, change.whole | replay.operators.kept(call)
            event = replay.host.launch[replay.sole_calls(change.called)]
            longer[event], longer_ns[event] = since, change.call_ns
            unblocked[replay.host.launch[replay.sole_calls(change.unblocked)]] = since
        return _Edits(tuple(saved), unlaunched, whole, longer, longer_ns, unblocked)


class _Run:
    """A timeline run again in some scenarios, which are the first axis of each array.

    What comes one after another adds up, and what waits is as late as the latest: with S the sum of all durations and
    delays of a stream up to an activity, its end less S is the largest of (what it waited for, less S before it) up to
    here. So a stretch of a stream is a running maximum of sums, and only what crosses streams or holds the host up
    has to be done in turn.
    """

    def __init__(self, replay: Replay, edits: _Edits, pace: Floats, first: int) -> None:
        self.replay, self.edits = replay, edits
        self.number = np.arange(first, first + len(pace))[:, None]
        self.faster = (1.0 / pace)[:, None]
        self.host = replay.begins + np.cumsum(self._host_ns(), axis=1)  # of each event, but for what it waited
        self.took = self._took()
        rows = replay.segments.rows
        self.sums = np.cumsum(self.took + replay.follow_delay[rows], axis=1)
        self.late = self._late()  # of each activity: its end less its sum
        self.held = np.zeros((len(pace), len(replay.segments.waits) + 1))  # the host, after so many of its waits
        self._take_turns()

    def result(self) -> ReplayResult:
        place = self.replay.segments.place
        ends = (self.sums + self.late)[:, place]
        return ReplayResult(self.done(), ends - self.took[:, place], ends, self._host_step())

    def done(self) -> Floats:
        """Return when the last of each stream ends, and when the host, going on as it did, would launch what follows.

        So a host that sets the pace gains nothing by the last activity, and a device that does all of it.
        """
        replay, place = self.replay, self.replay.segments.place
        # On a faster host all may end before time begins.
        done = np.full(len(self.faster), -np.inf if replay.last else 0.0)
        for activity, call, delay, took in replay.last:
            at = place[activity]
            done = np.maximum(done, self.sums[:, at] + self.late[:, at])
            if call >= 0:
                next_launch = np.minimum(took, replay.interval_ns * self.faster[:, 0])
                done = np.maximum(done, self._reached(replay.host.launch[call]) + delay + next_launch)
        starts = self.sums + self.late - self.took
        began: Floats = starts.min(axis=1, initial=np.inf if starts.size else 0.0)
        return done - began

    def _host_step(self) -> Floats | None:
        step = self.replay.step
        if step is None:
            return None
        return self._reached(step.last) - self._reached(step.first) + step.around_ns * self.faster[:, 0]

    def _reached(self, event: int) -> Floats:
        """Return when the host was done with an event."""
        reached: Floats = self.host[:, event] + self.held[:, self.replay.segments.waited[event]]
        return reached

    def _host_ns(self) -> Floats:
        """Return the host's own time up to each event since the one before, with launches left out or dearer."""
        host, edits, number = self.replay.host, self.edits, self.number
        loading = np.maximum(self.faster, 1.0 / LOADING_PACE)
        spent: Floats = (host.work_ns - host.loading_ns) * self.faster + host.loading_ns * loading
        # Those from `gone` on do not make the launch before; what else goes with it is left out here.
        gone = np.append(_NEVER, edits.unlaunched)[:-1]
        at = np.flatnonzero((edits.unlaunched < _NEVER) | (gone < _NEVER))
        if len(at):
            operators, call = self.replay.operators, host.call
            left_ns = np.append(0, np.where(edits.whole, 0, operators.tail_ns[call]))[at] * (number >= gone[at])
            part = np.maximum(spent[:, at] - left_ns * self.faster, 0.0)
            since = edits.unlaunched[at]
            lead = (number < gone[at]) & ~edits.whole[at]
            spent[:, at] = np.where(number < since, part, lead * operators.lead_ns[call[at]] * self.faster)
        at = np.flatnonzero(edits.longer < _NEVER)
        spent[:, at] += (number >= edits.longer[at]) * edits.longer_ns[at]
        at = np.flatnonzero(host.blocks)
        spent[:, at] += (number < self._unblocked(at)) * host.own_ns[at]
        return spent

    def _unblocked(self, blocking: IntArray) -> IntArray:
        """Return since which scenario the host does not wait in blocking calls: those behind such a launch."""
        events = np.arange(len(self.replay.host.call))
        latest = np.maximum.accumulate(np.where(self.replay.host.blocks, -1, events))[blocking]
        since: IntArray = np.where(latest >= 0, self.edits.unblocked[latest], _NEVER)
        return since

    def _took(self) -> Floats:
        """Return how long each activity takes, in the order of segments."""
        segments = self.replay.segments
        took = np.repeat(self.replay.dur[segments.rows][None].astype(np.float64), len(self.faster), axis=0)
        for since, rows, saved_ns in self.edits.saved:
            first = int(np.searchsorted(self.number[:, 0], since))
            took[first:, segments.place[rows]] -= saved_ns
        return took

    def _late(self) -> Floats:
        """Return how late each activity's call lets it be, less its sum, were the host never held up."""
        replay, rows = self.replay, self.replay.segments.rows
        call = replay.launch[rows]
        made = call >= 0
        begin = np.where(replay.inside, -np.inf, replay.start)[rows][None].repeat(len(self.faster), axis=0)
        begin[:, made] = self.host[:, replay.host.launch[call[made]]] + replay.launch_delay[rows[made]]
        begin += self.took - self.sums
        return begin

    def _take_turns(self) -> None:
        """Run segments of streams, and in between hold the host up where it waits for the device."""
        replay, late, held, waits = self.replay, self.late, self.held, 0
        segments, after = replay.segments, self._after_waits()
        across = self._across()
        for turn in segments.turns:
            if isinstance(turn, int):
                np.maximum(held[:, waits], late[:, turn] + after[:, waits], out=held[:, waits + 1])
                waits += 1
                continue
            part = late[:, turn.begin : turn.end]
            launched = segments.launched[turn.begin : turn.end] if turn.launched is None else [turn.launched]
            part += held[:, launched]
            for at, source, row in turn.across:
                np.maximum(part[:, at], late[:, source] + across[:, row], out=part[:, at])
            if turn.follows:
                np.maximum(part[:, 0], late[:, turn.begin - 1], out=part[:, 0])
            np.maximum.accumulate(part, axis=1, out=part)

    def _after_waits(self) -> Floats:
        """Return what each wait of the host adds to its activity's lateness, to say for how long it is held up."""
        replay, segments = self.replay, self.replay.segments
        event = segments.waits
        at = segments.place[replay.host.waits_for[event]]
        after = self.sums[:, at] + replay.host.after_ns[event] - self.host[:, event]
        after[self.number >= self._unblocked(event)] = -np.inf
        return after

    def _across(self) -> Floats:
        """Return what each wait for another stream adds to that one's lateness."""
        across, place = self.replay.across, self.replay.segments.place
        source, at = place[across.source], place[across.row]
        return self.sums[:, source] + across.delay_ns + self.took[:, at] - self.sums[:, at]
