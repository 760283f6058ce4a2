"""A recorded timeline run again with other times, to see what a step gains.

An activity starts when the last of what it waited for is done and a delay has passed: the activity before it on its
stream, the call that launched it and, behind an event, other streams. A host call follows the call before it and, where
it blocks, the device. After what did come last the delay is the recorded one. So shorter activities shorten the step
where the device sets the pace, fewer launches where the host does: the later one wins, everywhere anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tracemine.perfmodel import LOADING_PACE
from tracemine.rows.table import BoolArray, IntArray

Floats = npt.NDArray[np.float64]
Event = tuple[int, int]  # one of these kinds, and a row
BLOCKS, LAUNCHES, RUNS = range(3)  # what happens at one moment, in the order in which it can


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
    """The timeline run again: scenarios are the last axis of each."""

    done: Floats  # how long all takes from the first start on
    starts: Floats  # of each activity, since the recorded first start
    ends: Floats
    host_step: Floats | None  # for how long the host is at the first step; None: its begin and end are not known


@dataclass(frozen=True, slots=True)
class Operators:
    """The outermost operator of each call that launches no more than the one that made it. Lists, a value a call."""

    row: list[int]  # of the operator; −1: none is known
    launches: list[int]  # that the operator makes
    lead_ns: list[int]  # how much of the host's own time before the call lies before that operator
    tail_ns: list[int]  # for how long the operator goes on behind the call's begin

    def kept(self, unmade: Sequence[int]) -> set[int]:
        """Return the calls whose operator still makes others, or is not known."""
        gone = Counter(self.row[call] for call in unmade)
        return {call for call in unmade if self.row[call] < 0 or gone[self.row[call]] < self.launches[call]}


@dataclass(frozen=True, slots=True)
class HostStep:
    """A step as the host goes through it: indices in `Replay.events` of its first and last host event, and the host's
    own time in it before the first and after the last.
    """

    first: int
    last: int
    around_ns: int


@dataclass(frozen=True, slots=True)
class Replay:
    """Everything that happened, in order, and what it waited for. Nanoseconds since the first activity's start."""

    events: tuple[Event, ...]  # (LAUNCHES, call), (RUNS, activity) or (BLOCKS, call)
    begins: float  # the first host event
    start: IntArray
    dur: IntArray
    launch: IntArray  # of each activity, −1 where the one before it in its graph is all that it waits for
    launch_delay: IntArray  # from that call's begin
    held_by: tuple[tuple[tuple[int, int], ...], ...]  # of each activity: others, and the delays after their ends
    sole_launch: BoolArray  # of each activity: nothing else was launched by its call
    work: dict[Event, int]  # of each host event: the host's own time since the one before
    loading: dict[Event, int]  # how much of that went into loading data, which recording stretches little
    operators: Operators
    waits: dict[int, tuple[int, int, int]]  # of each blocking call: the activity, the delays after it and its own begin
    last: tuple[tuple[int, int, int, int], ...]  # of each stream: last activity; its call, or −1; delay, time it took
    interval_ns: float  # from one launch call to the next, the host's own time: mean
    step: HostStep | None = None  # the first one, as the host goes through it

    def run(self, pace: Floats, changes: Sequence[Change] = ()) -> ReplayResult:
        """Run the timeline with other times: [scenarios], and twice [activities, scenarios].

        In scenario k the host takes 1/pace[k] of its time. Where there is one scenario more than changes, the first k
        of them are made in it; else all of them in all.
        """
        simulation = _Simulation(self, pace, self._edits(changes, in_turn=len(pace) == len(changes) + 1))
        happens = {RUNS: simulation.start, LAUNCHES: simulation.launch, BLOCKS: simulation.block}
        asked = () if self.step is None else (self.step.first, self.step.last)
        reached: dict[int, Floats] = {}  # by index in `events`, when the host was done with it
        for index, (kind, row) in enumerate(self.events):
            happens[kind](row)
            if index in asked:
                reached[index] = simulation.host.copy()
        step, starts = self.step, simulation.starts
        done = simulation.done() - starts.min(axis=0, initial=np.inf if len(starts) else 0.0)
        around = 0.0 if step is None else step.around_ns * simulation.faster
        host_step = None if step is None else reached[step.last] - reached[step.first] + around
        return ReplayResult(done, starts, simulation.ends, host_step)

    def _edits(self, changes: Sequence[Change], *, in_turn: bool) -> _Edits:
        """Spread changes over the activities and calls that they concern."""
        edits = _Edits()
        for number, change in enumerate(changes):
            since = number + 1 if in_turn else 0
            saved = zip(change.rows.tolist(), change.saved_ns.tolist(), strict=True)
            edits.saved.update((row, (since, ns)) for row, ns in saved)
            calls = self._calls(change.unlaunched)
            kept = self.operators.kept(calls)
            edits.unlaunched.update((call, (since, change.whole or call in kept)) for call in calls)
            edits.longer.update((call, (since, change.call_ns)) for call in self._calls(change.called))
            edits.unblocked.update((call, since) for call in self._calls(change.unblocked))
        return edits

    def _calls(self, rows: IntArray) -> list[int]:
        """Return the calls that launched activities, of those that launched nothing else."""
        calls: list[int] = self.launch[rows[self.sole_launch[rows]]].tolist()
        return calls

    def takes(self, changes: Sequence[Change], pace: float) -> Floats:
        """Return how long the whole takes without any of the changes, with the first, with the first two, and so on."""
        return self.run(np.full(len(changes) + 1, pace), changes).done

    def gains(self, changes: Sequence[Change], pace: float) -> Floats:
        """Return by how much each change shortens the whole, made one after another: they add up to what all give."""
        return gained(self.takes(changes, pace)) if changes else np.zeros(0)


def gained(takes: Floats) -> Floats:
    """Return by how much each change shortens the whole, from how long that takes with none, with the first, and so on.

    >>> gained(np.array([9.0, 7.0, 8.0])).tolist()
    [2.0, 0.0]
    """
    return np.maximum(-np.diff(takes), 0.0)


@dataclass(frozen=True, slots=True)
class _Edits:
    """Effects of changes, by activity or call: the first scenario that has it, and what it is."""

    saved: dict[int, tuple[int, int]] = field(default_factory=dict)  # of activities
    unlaunched: dict[int, tuple[int, bool]] = field(default_factory=dict)  # whether all before it goes too
    longer: dict[int, tuple[int, int]] = field(default_factory=dict)  # of calls that cost more
    unblocked: dict[int, int] = field(default_factory=dict)


class _Simulation:
    """A run under way. Scenarios are the last axis of each array."""

    def __init__(self, replay: Replay, pace: Floats, edits: _Edits) -> None:
        self.replay, self.edits, self.count = replay, edits, len(pace)
        self.faster = 1.0 / pace
        self.loading = np.maximum(self.faster, 1.0 / LOADING_PACE)
        self.host = np.full(self.count, replay.begins)
        self.starts, self.ends = (np.zeros((len(replay.start), self.count)) for _ in range(2))
        self.called: dict[int, Floats] = {}
        self.unheld = self.count  # scenarios from this one on do not wait for what was launched last
        self.gone, self.left = self.count, 0  # those from here on do not make the launch before; what else goes with it
        self.launches, self.delays, self.dur = (
            array.tolist() for array in (replay.launch, replay.launch_delay, replay.dur)
        )

    def start(self, activity: int) -> None:
        """Start an activity once its call is made and what holds it up is done."""
        call = self.launches[activity]
        begin = self.called[call] + self.delays[activity] if call >= 0 else None
        for other, delay in self.replay.held_by[activity]:
            free = self.ends[other] + delay
            begin = free if begin is None else np.maximum(begin, free)
        self.starts[activity] = self.replay.start[activity] if begin is None else begin
        self.ends[activity] = self.starts[activity] + self.dur[activity]
        if activity in self.edits.saved:
            since, saved_ns = self.edits.saved[activity]
            self.ends[activity, since:] -= saved_ns

    def launch(self, call: int) -> None:
        """Let the host make a launch call, in the scenarios in which it still is made."""
        since, whole = self.edits.unlaunched.get(call, (self.count, False))
        step = self._before((LAUNCHES, call), since, whole=whole)
        since, longer_ns = self.edits.longer.get(call, (self.count, 0))
        step[since:] += longer_ns
        self.unheld = self.edits.unblocked.get(call, self.count)
        self.host = self.called[call] = self.host + step

    def block(self, call: int) -> None:
        """Let the host wait for the device in a blocking call."""
        step = self._before((BLOCKS, call), self.count, whole=False)
        activity, after, own = self.replay.waits[call]
        unblocked = self.host[self.unheld :] + step[self.unheld :]
        self.host = self.host + (step + own)
        if activity >= 0:
            self.host = np.maximum(self.host, self.ends[activity] + after)
        self.host[self.unheld :] = unblocked

    def _before(self, event: Event, since: int, *, whole: bool) -> Floats:
        """Return the host's own time before an event, which scenarios from `since` on leave out."""
        work, loaded = self.replay.work[event], self.replay.loading.get(event, 0)
        step = (work - loaded) * self.faster + loaded * self.loading if loaded else work * self.faster
        operators, call, gone = self.replay.operators, event[1], self.gone
        if gone < self.count and self.left:
            step[gone:] = np.maximum(step[gone:] - self.left * self.faster[gone:], 0.0)
        step[since:] = 0.0
        if since < gone and not whole:
            step[since:gone] = operators.lead_ns[call] * self.faster[since:gone]
        self.gone, self.left = since, 0 if whole else operators.tail_ns[call]
        return step

    def done(self) -> Floats:
        """Return when the last of each stream ends, and when the host, going on as it did, would launch what follows.

        So a host that sets the pace gains nothing by the last activity, and a device that does all of it.
        """
        # On a faster host all may end before time begins.
        done = np.full(self.count, -np.inf if self.replay.last else 0.0)
        for activity, call, delay, took in self.replay.last:
            done = np.maximum(done, self.ends[activity])
            if call >= 0:
                next_launch = np.minimum(took, self.replay.interval_ns * self.faster)
                done = np.maximum(done, self.called[call] + delay + next_launch)
        return done
