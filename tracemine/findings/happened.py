"""The events of a recorded timeline, and what waited for what: `replay.py` runs it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tracemine.rows.table import BoolArray, IntArray

Floats = npt.NDArray[np.float64]
WAIT = -1  # in the place of a segment: the host waits for the device
_MOST_NS = 1 << 62  # sums within it fit an int64


class Operators(Struct, frozen=True):
    """The outermost operator of each call that launches no more than the one that made it. A value a call."""

    row: IntArray  # of the operator; −1: none is known
    launches: IntArray  # that the operator makes
    lead_ns: IntArray  # how much of the host's own time before the call lies before that operator
    tail_ns: IntArray  # for how long the operator goes on behind the call's begin

    def kept(self, unmade: IntArray) -> BoolArray:
        """Return which of these calls have an operator that still makes others, or that is not known."""
        row = self.row[unmade]
        kept: BoolArray = row < 0
        several = np.flatnonzero(~kept & (self.launches[unmade] > 1))
        gone = np.bincount(row[several])
        kept[several] = gone[row[several]] < self.launches[unmade[several]]
        return kept


class HostEvents(Struct, frozen=True):
    """What the host did, in order: launches where they begin, and blocking calls where they end. A value an event."""

    call: IntArray
    blocks: BoolArray  # the call returns; else it launches
    work_ns: IntArray  # the host's own time since the event before
    loading_ns: IntArray  # how much of that went into loading data, which recording stretches little
    within_ns: IntArray  # and how much into an operator in which nothing was recorded: that it does not stretch
    own_ns: IntArray  # the host's own time in a blocking call; 0 of launches
    waits_for: IntArray  # the activity that a blocking call waits for; −1: none
    after_ns: IntArray  # from that activity's end to the call's
    launch: IntArray  # of each call: its event as a launch; −1: it launches nothing


class Across(Struct, frozen=True):
    """Waits of activities for another stream."""

    row: IntArray
    source: IntArray  # the activity that it waits for, an earlier row
    delay_ns: IntArray  # after that one's end


class HostStep(Struct, frozen=True):
    """A step as the host goes through it: its first and last event in `HostEvents`, and the host's own time in it
    before the first and after the last.
    """

    first: int
    last: int
    around_ns: int


class Segments(Struct, frozen=True):
    """The order in which a timeline is run: segments of streams, and between them the host's waits for the device.

    Activities of one segment wait for nothing but calls and each other, those calls are behind equally many waits of
    the host, and only how its last activity ends does anything else depend on.
    """

    rows: IntArray  # activities by stream
    place: IntArray  # of each activity in `rows`
    launched: IntArray  # of each of `rows`: how many waits the host had behind it at its launch
    begins: IntArray  # of each segment: its first place in `rows`
    follows: BoolArray  # of each segment: it follows another of its stream, the segment before it
    # Of segments whose first activity waits for another stream: the segments that end with what it waits for, and rows
    # of `Across`.
    across: Mapping[int, Sequence[tuple[int, int]]]
    openers: IntArray  # segments whose last activities hold the first start of all, whatever is changed
    turns: tuple[int, ...]  # segments, and WAIT where the host waits for the device
    waits: IntArray  # events of the host that wait for the device, in order
    waited: IntArray  # of each event of the host how many of them it has behind it, itself included

    @property
    def ends(self) -> IntArray:
        """Return the last place of each segment."""
        return np.append(self.begins, len(self.rows))[1:] - 1

    def of(self, activity: IntArray) -> IntArray:
        """Return the segment of each of these activities."""
        return np.searchsorted(self.begins, self.place[activity], side="right") - 1


class Places(Struct, frozen=True):
    """What activities wait for. A value a place in `Segments.rows`."""

    dur: IntArray | Floats  # integers add up much faster; floats where an int64 could not hold their sum
    follow: IntArray | Floats  # from the end of the one before on its stream
    event: IntArray  # of the host: the launch; any one where it waits for none
    delay: IntArray  # from then on
    uncalled: IntArray  # places of those that wait for no launch
    begin: Floats  # of those: when they started; −∞: the one before tells that


class Happened(Struct, frozen=True, dict=True, eq=False):
    """All events, in order, and what each waited for. Nanoseconds since the first activity's start."""

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
    ready_ns: int = 0  # from the first activity's call to when it could begin, were no work before it

    def sole_calls(self, rows: IntArray) -> IntArray:
        """Return the calls that launched activities, of those that launched nothing else."""
        return self.launch[rows[self.sole_launch[rows]]]

    @property
    def first(self) -> int:
        """The call that launched the first activity; −1: none is known."""
        return int(self.launch[0]) if len(self.launch) else -1

    @cached_property
    def places(self) -> Places:
        """What activities wait for, by place."""
        rows = self.segments.rows
        dur, follow, call = self.dur[rows], self.follow_delay[rows], self.launch[rows]
        uncalled = np.flatnonzero(call < 0)
        event = np.append(self.host.launch, 0)[call]
        event[uncalled] = 0
        begin = np.where(self.inside, -np.inf, self.start)[rows[uncalled]]
        delay = self.launch_delay[rows]
        if dur.sum(dtype=np.float64) + np.abs(follow).sum(dtype=np.float64) < _MOST_NS:
            return Places(dur, follow, event, delay, uncalled, begin)
        return Places(dur.astype(np.float64), follow.astype(np.float64), event, delay, uncalled, begin)
