"""The critical path: the recorded timeline run again with other times, to see what the step gains.

What each activity waited for is known: the one before it on its stream, the call that launched it, and where the host had
the stream wait for an event, the other streams. What each host call waited for as well: the call before it, and where it
blocks, the device. Run again, an activity starts when the last of these is done and the delay has passed that was recorded
after it, and a host call when the host's own time since the call before has passed. So shorter activities shorten the step
only where the device sets the pace, and fewer launches only where the host does: no case is told apart, the later wins.

Run again with the host as much faster as it is where nobody records, the timeline is the one that production has.

Limits: threads that launch are taken to take turns. Which event a stream waited for is not recorded: it is taken to be
whatever ended last on each other stream before, so that a wait can only hold up too much. Other ranks are taken to be on time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracemine.rows.arrow import rows_of
from tracemine.rows.host import Calls, threads
from tracemine.timeline import Timeline

Floats = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_CHANGE_OVER_NS, _MOST_CHANGE_OVER_NS = 1_000, 3_000  # between two queued activities: where none is recorded, and at most
_LAUNCH_NS, _MOST_LAUNCH_NS = 6_000, 20_000  # from a launch call's begin to the start on an idle device: the same
_MOST_STREAMS = 64  # of a made-up trace with more, a wait for an event is one for whatever ended last
_NEVER = -(1 << 62)


@dataclass(frozen=True, slots=True)
class Change:
    """What one finding changes: activities get shorter, launches are no more. Rows, and nanoseconds of each."""

    rows: IntArray  # rows of `activities`, each once
    saved_ns: IntArray  # at most what each lasts
    unlaunched: IntArray  # rows of `activities` whose launch is not made


@dataclass(frozen=True, slots=True)
class Replay:
    """What waited for what, in the order of the recorded times."""

    order: tuple[tuple[int, int], ...]  # (0, activity) or (1, call), in an order in which nothing precedes what it waits for
    start: IntArray  # of activities
    dur: IntArray
    launch: IntArray  # call of an activity, −1 where it does not hold it up
    held_by: tuple[tuple[tuple[int, int], ...], ...]  # of an activity: (other activity, delay after its end)
    launch_delay: IntArray  # of an activity: from the call's begin
    calls: tuple[tuple[int, int, int, int], ...]  # (host time since the call before, waits for activity or −1, delays)
    first_of_launch: IntArray  # of an activity: the first one of its launch
    origin: int

    def run(
        self, host_times: Floats, changes: Sequence[Change] = (), keep: bool = False
    ) -> tuple[Floats, Floats | None, Floats | None]:
        """When all is done, one number a scenario, nanoseconds since the first activity's start; kept, all starts and ends.

        In scenario k the host takes 1/host_times[k] of its recorded time, and the first k changes are made; where there
        are fewer scenarios than changes + 1, all changes are made in all of them.
        """
        count = len(host_times)
        first = {}
        shorter: dict[int, tuple[int, int]] = {}
        gone: dict[int, int] = {}
        for at, change in enumerate(changes):
            since = at + 1 if count == len(changes) + 1 else 0
            for row, saved in zip(change.rows.tolist(), change.saved_ns.tolist(), strict=True):
                shorter[row] = since, saved
            for row in change.unlaunched.tolist():
                gone[int(self.launch[row])] = since
        del first
        pace = 1.0 / host_times
        host = np.zeros(count)
        called: list[Floats | None] = [None] * len(self.calls)
        ends: list[Floats | None] = [None] * len(self.start)
        starts: list[Floats | None] = [None] * len(self.start) if keep else []
        launch, launch_delay, dur = self.launch.tolist(), self.launch_delay.tolist(), self.dur.tolist()
        zero = np.full(count, float(_NEVER))
        for is_call, at in self.order:
            if is_call:
                work, waits_for, host_delay, delay = self.calls[at]
                step = work * pace
                if at in gone:
                    step[gone[at] :] = 0.0
                host = host + step
                if waits_for >= 0:
                    end = ends[waits_for]
                    assert end is not None  # noqa: S101 - the order's invariant
                    host = np.maximum(host + host_delay, end + delay)
                called[at] = host
                continue
            begin = zero
            if launch[at] >= 0:
                moment = called[launch[at]]
                assert moment is not None  # noqa: S101 - the order's invariant
                begin = moment + launch_delay[at]
            for other, delay in self.held_by[at]:
                end = ends[other]
                assert end is not None  # noqa: S101 - the order's invariant
                begin = np.maximum(begin, end + delay)
            if keep:
                starts[at] = begin
            end = begin + dur[at]
            if at in shorter:
                since, saved = shorter[at]
                end[since:] -= saved
            ends[at] = end
        done = self._done(called, ends, count)
        if not keep:
            return done, None, None
        return done, np.array(starts).reshape(-1, count), np.array(ends).reshape(-1, count)
