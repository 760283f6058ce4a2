"""A recorded timeline run again with other times, to see what a step gains.

An activity starts when the last of what it waited for is done and a delay has passed: the activity before it on its
stream, the call that launched it and, behind an event, other streams. A host call follows the call before it and, where
it blocks, the device. After what did come last the delay is the recorded one. So shorter activities shorten the step
where the device sets the pace, fewer launches where the host does: the later one wins, everywhere anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

import numpy as np
from msgspec import Struct

from tracemine.findings.happened import WAIT, Floats, Happened
from tracemine.findings.scenarios import Change, Edits, Scenarios
from tracemine.rows.table import IntArray

# Times of segments that are held at once: 16 MB an array. Scenarios are independent of each other, and run in parts.
_MOST_TIMES = 2_000_000


class ReplayResult(Struct, frozen=True):
    """The timeline run again: scenarios are the first axis of each."""

    done: Floats  # how long all takes from the first start on
    starts: Floats  # of each activity, since the recorded first start
    ends: Floats
    host_step: Floats | None  # for how long the host is at the first step; None: its begin and end are not known


class Replay(Happened, frozen=True, dict=True, eq=False):
    """The recorded events, to be run again."""

    def run(self, pace: Floats, changes: Sequence[Change] = ()) -> ReplayResult:
        """Run the timeline with other times: [scenarios], and twice [scenarios, activities].

        In scenario k the host takes 1/pace[k] of its time, and all changes are made in each.
        """
        scenarios = Scenarios(self, Edits.of(self, changes), pace).advance(len(changes))
        return _Run(self, [scenarios]).result(scenarios)

    def takes(self, cases: Sequence[tuple[Sequence[Change], Sequence[float]]]) -> list[Floats]:
        """Return of each case, changes and the host's paces, how long the whole takes without any of the changes, with
        the first, with the first two, and so on: [paces, 1 + changes].
        """
        in_turn = self._in_turn(cases)
        count = sum(len(changes) + 1 for changes, _ in cases)
        most = max(len(pace) for _, pace in cases) * max(len(self.segments.begins), 1)
        width = max(_MOST_TIMES // most, 1)
        takes = np.concatenate([_Run(self, islice(in_turn, width)).done() for _ in range(0, count, width)])
        ends = np.cumsum([(len(changes) + 1) * len(pace) for changes, pace in cases])
        return [
            each.reshape(-1, len(pace)).T for each, (_, pace) in zip(np.split(takes, ends[:-1]), cases, strict=True)
        ]

    def _in_turn(self, cases: Sequence[tuple[Sequence[Change], Sequence[float]]]) -> Iterator[Scenarios]:
        """Yield, until the next is asked for, scenarios with none of a case's changes, the first, the first two."""
        for changes, pace in cases:
            scenarios = Scenarios(self, Edits.of(self, changes), np.array(pace))
            for number in range(len(changes) + 1):
                yield scenarios.advance(number)

    def gains(self, changes: Sequence[Change], pace: float) -> Floats:
        """Return by how much each change shortens the whole, made one after another: they add up to what all give."""
        return gained(self.takes([(changes, [pace])])[0][0])


def gained(takes: Floats) -> Floats:
    """Return by how much each change shortens the whole, from how long that takes with none, with the first, and so on.

    >>> gained(np.array([9.0, 7.0, 8.0])).tolist()
    [2.0, 0.0]
    """
    return np.maximum(-np.diff(takes), 0.0)


def _asked(happened: Happened, run: Scenarios, events: IntArray) -> dict[str, Any]:
    """Return what something else depends on in scenarios that differ by pace alone, were the host never held up.

    Of each pace when the last activity of a segment is done (late), and when the host gets to each of its waits
    (waiting) and is done with those that are asked for (reached); of all of them sums and durations of each segment's
    last activity, the sum before each that waits for another stream (ahead, negative), and whether a wait of the host
    is none any more (unblocked).
    """
    segments = happened.segments
    ends, first = segments.ends, segments.place[happened.across.row]
    return {
        "faster": run.faster,
        "late": np.maximum.reduceat(run.late, segments.begins, axis=1) if len(ends) else run.late,
        "waiting": run.host[:, segments.waits],
        "reached": run.host[:, events],
        "sums": run.sums[ends],
        "took": run.took[ends],
        "ahead": run.took[first] - run.sums[first],
        "unblocked": run.edits.unblocked[segments.waits] <= run.number,
    }


class _Run:
    """A timeline run again in some scenarios, which are the last axis of its arrays.

    What comes one after another adds up, and what waits is as late as the latest: the lateness of an activity is the
    largest of (what it waited for, less S before it) up to here. So a segment is as late as the latest in it, and only
    what crosses streams or holds the host up has to be done in turn.
    """

    def __init__(self, happened: Happened, runs: Iterable[Scenarios]) -> None:
        self.happened = happened
        segments = happened.segments
        events = [happened.host.launch[call] for _, call, _, _ in happened.last if call >= 0]
        events += [happened.host.launch[happened.first]] if happened.first >= 0 else []
        events += [] if happened.step is None else [happened.step.first, happened.step.last]
        self.event = np.array(events, np.int64)  # those whose time is asked for
        self.last = segments.of(np.array([activity for activity, *_ in happened.last], np.int64))
        asked = [_asked(happened, one, self.event) for one in runs]
        paces = [len(each["faster"]) for each in asked]
        self.faster = np.concatenate([each["faster"] for each in asked])
        self.late, self.waiting, self.reached = (
            np.concatenate([each[name] for each in asked]).T.copy() for name in ("late", "waiting", "reached")
        )
        self.sums, self.took, self.ahead, self.unblocked = (
            np.repeat(np.stack([each[name] for each in asked], axis=1), paces, axis=1)
            for name in ("sums", "took", "ahead", "unblocked")
        )
        self.across = self._across()
        self.held = np.zeros((len(segments.waits) + 1, len(self.faster)))  # the host, after so many of its waits
        self._take_turns()
        self.reached += self.held[segments.waited[self.event]]

    def _take_turns(self) -> None:
        """Run segments of streams, and in between hold the host up where it waits for the device."""
        segments, waits = self.happened.segments, 0
        follows, launched = segments.follows.tolist(), segments.launched[segments.ends].tolist()
        waited_for = segments.of(self.happened.host.waits_for[segments.waits]).tolist()
        late, held, after, across = map(list, (self.late, self.held, self._after_waits(), self.across))
        spare = np.empty(len(self.faster))
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

        So a host that sets the pace gains nothing by the last activity, and a device that does all of it. Launches that
        were queued when the first activity began shorten nothing: step after step the host has to make as many.
        """
        happened, ends = self.happened, self.sums + self.late
        # On a faster host all may end before time begins.
        done = np.full(len(self.faster), -np.inf if happened.last else 0.0)
        launched = done.copy()
        reached = iter(self.reached)
        for segment, (_, call, delay, took) in zip(self.last.tolist(), happened.last, strict=True):
            done = np.maximum(done, ends[segment])
            if call >= 0:
                next_launch = np.minimum(took, happened.interval_ns * self.faster)
                launched = np.maximum(launched, next(reached) + delay + next_launch)
        openers = happened.segments.openers
        starts = ends[openers] - self.took[openers]
        began: Floats = starts.min(axis=0, initial=np.inf if len(starts) else 0.0)
        ready = began if happened.first < 0 else np.minimum(next(reached) + happened.ready_ns, began)
        takes: Floats = np.maximum(done - began, launched - ready)
        return takes

    def result(self, scenarios: Scenarios) -> ReplayResult:
        """Return how all activities of the only scenarios went."""
        place = self.happened.segments.place
        ends = np.stack([scenarios.sums + self._late(late, number) for number, late in enumerate(scenarios.late)])
        return ReplayResult(self.done(), (ends - scenarios.took)[:, place], ends[:, place], self._host_step())

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
