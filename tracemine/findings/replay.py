"""A recorded timeline run again with other times, to see what a step gains.

An activity starts when the last of what it waited for is done and a delay has passed: the activity before it on its
stream, the call that launched it and, behind an event, other streams. A host call follows the call before it and, where
it blocks, the device. After what did come last the delay is the recorded one. So shorter activities shorten the step
where the device sets the pace, fewer launches where the host does: the later one wins, everywhere anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tracemine.findings.happened import WAIT, Floats, Happened
from tracemine.findings.scenario import Change, Edits, Scenario, timelines

# Times of segments that are held at once: 16 MB an array. Scenarios are independent of each other, and run in parts.
_MOST_TIMES = 2_000_000


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The timeline run again: scenarios are the first axis of each."""

    done: Floats  # how long all takes from the first start on
    starts: Floats  # of each activity, since the recorded first start
    ends: Floats
    host_step: Floats | None  # for how long the host is at the first step; None: its begin and end are not known


@dataclass(frozen=True)
class Replay(Happened):
    """What happened, to be run again."""

    def run(self, pace: Floats, changes: Sequence[Change] = ()) -> ReplayResult:
        """Run the timeline with other times: [scenarios], and twice [scenarios, activities].

        In scenario k the host takes 1/pace[k] of its time. Where there is one scenario more than changes, the first k
        of them are made in it; else all of them in all.
        """
        edits, in_turn = Edits.of(self, changes), len(pace) == len(changes) + 1
        numbers = range(len(pace)) if in_turn else [len(changes)] * len(pace)
        made = [Scenario(edits, number, each) for number, each in zip(numbers, pace.tolist(), strict=True)]
        return _Run(self, made).result()

    def takes(self, cases: Sequence[tuple[Sequence[Change], float]]) -> list[Floats]:
        """Return of each case, changes and the host's pace, how long the whole takes without any of the changes, with
        the first, with the first two, and so on.
        """
        scenarios = []
        for changes, pace in cases:
            edits = Edits.of(self, changes)
            scenarios += [Scenario(edits, number, pace) for number in range(len(changes) + 1)]
        width = max(_MOST_TIMES // max(len(self.segments.begins), 1), 1)
        parts = [_Run(self, scenarios[at : at + width]).done() for at in range(0, len(scenarios), width)]
        return np.split(np.concatenate(parts), np.cumsum([len(changes) + 1 for changes, _ in cases])[:-1])

    def gains(self, changes: Sequence[Change], pace: float) -> Floats:
        """Return by how much each change shortens the whole, made one after another: they add up to what all give."""
        return gained(self.takes([(changes, pace)])[0])


def gained(takes: Floats) -> Floats:
    """Return by how much each change shortens the whole, from how long that takes with none, with the first, and so on.

    >>> gained(np.array([9.0, 7.0, 8.0])).tolist()
    [2.0, 0.0]
    """
    return np.maximum(-np.diff(takes), 0.0)


class _Run:
    """A timeline run again in some scenarios, which are the last axis of arrays here.

    What comes one after another adds up, and what waits is as late as the latest: the lateness of an activity is the
    largest of (what it waited for, less S before it) up to here. So a segment is as late as the latest in it, and only
    what crosses streams or holds the host up has to be done in turn.
    """

    def __init__(self, happened: Happened, scenarios: Sequence[Scenario]) -> None:
        self.happened, self.scenarios = happened, scenarios
        segments, host = happened.segments, happened.host
        self.faster = 1.0 / np.array([each.pace for each in scenarios])
        events = [host.launch[call] for _, call, _, _ in happened.last if call >= 0]
        events += [] if happened.step is None else [happened.step.first, happened.step.last]
        self.event = np.array(events, np.int64)  # those whose time is asked for
        self.last = segments.of(np.array([activity for activity, *_ in happened.last], np.int64))
        ends, first = segments.ends, segments.place[happened.across.row]
        found = [
            (
                np.maximum.reduceat(one.late, segments.begins) if len(ends) else one.late,
                one.sums[ends],
                one.took[ends],
                one.took[first] - one.sums[first],
                one.host[segments.waits],
                one.host[self.event],
                scenario.edits.unblocked[segments.waits] <= scenario.number,
            )
            for scenario, one in timelines(self.happened, self.scenarios)
        ]
        columns = [np.stack(column, axis=1) for column in zip(*found, strict=True)]
        self.late, self.sums, self.took, self.ahead, self.waiting, self.reached, self.unblocked = columns
        self.across = self._across()
        self.held = np.zeros((len(segments.waits) + 1, len(scenarios)))  # the host, after so many of its waits
        self._take_turns()
        self.reached += self.held[segments.waited[self.event]]

    def _take_turns(self) -> None:
        """Run segments of streams, and in between hold the host up where it waits for the device."""
        segments, waits = self.happened.segments, 0
        follows, launched = segments.follows.tolist(), segments.launched[segments.ends].tolist()
        waited_for = segments.of(self.happened.host.waits_for[segments.waits]).tolist()
        late, held, after, across = map(list, (self.late, self.held, self._after_waits(), self.across))
        spare = np.empty(len(self.scenarios))
        for turn in segments.turns:
            if turn == WAIT:
                np.add(late[waited_for[waits]], after[waits], out=spare)
                np.maximum(held[waits], spare, out=held[waits + 1])
                waits += 1
                continue
            own = late[turn]
            np.add(own, held[launched[turn]], out=own)
            for source, row in segments.across.get(turn, ()):
                np.maximum(own, late[source] + across[row], out=own)
            if follows[turn]:
                np.maximum(own, late[turn - 1], out=own)

    def _after_waits(self) -> Floats:
        """Return what each wait of the host adds to its activity's lateness, to say for how long it is held up."""
        segments, host = self.happened.segments, self.happened.host
        sums = self.sums[segments.of(host.waits_for[segments.waits])]
        after: Floats = sums + host.after_ns[segments.waits][:, None] - self.waiting
        after[self.unblocked] = -np.inf
        return after

    def _across(self) -> Floats:
        """Return what each wait for another stream adds to that one's lateness."""
        across, segments = self.happened.across, self.happened.segments
        found: Floats = self.sums[segments.of(across.source)] + across.delay_ns[:, None] + self.ahead
        return found

    def done(self) -> Floats:
        """Return when the last of each stream ends, and when the host, going on as it did, would launch what follows.

        So a host that sets the pace gains nothing by the last activity, and a device that does all of it.
        """
        happened, ends = self.happened, self.sums + self.late
        # On a faster host all may end before time begins.
        done = np.full(len(self.scenarios), -np.inf if happened.last else 0.0)
        reached = iter(self.reached)
        for segment, (_, call, delay, took) in zip(self.last.tolist(), happened.last, strict=True):
            done = np.maximum(done, ends[segment])
            if call >= 0:
                next_launch = np.minimum(took, happened.interval_ns * self.faster)
                done = np.maximum(done, next(reached) + delay + next_launch)
        openers = happened.segments.openers
        starts = ends[openers] - self.took[openers]
        began: Floats = starts.min(axis=0, initial=np.inf if len(starts) else 0.0)
        return done - began

    def result(self) -> ReplayResult:
        """Return how all activities went."""
        place = self.happened.segments.place
        starts, ends = (np.empty((len(self.scenarios), len(place))) for _ in range(2))
        for number, (_, timeline) in enumerate(timelines(self.happened, self.scenarios)):
            end = timeline.sums + self._late(timeline.late, number)
            ends[number], starts[number] = end[place], (end - timeline.took)[place]
        return ReplayResult(self.done(), starts, ends, self._host_step())

    def _late(self, late: Floats, scenario: int) -> Floats:
        """Return how late each place is, from what its call alone leads to."""
        segments = self.happened.segments
        late = late + self.held[segments.launched, scenario]
        for segment, waits in segments.across.items():
            held_up = [self.late[source, scenario] + self.across[row, scenario] for source, row in waits]
            late[segments.begins[segment]] = max(late[segments.begins[segment]], *held_up)
        begins = segments.begins[~segments.follows]
        for begin, end in pairwise((*begins.tolist(), len(late))):
            np.maximum.accumulate(late[begin:end], out=late[begin:end])
        return late

    def _host_step(self) -> Floats | None:
        step = self.happened.step
        return None if step is None else self.reached[-1] - self.reached[-2] + step.around_ns * self.faster
