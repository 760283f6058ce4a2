"""Changes of a recorded timeline, and how it goes with some of them made, were the host never held up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, field

from tracemine.findings.happened import Floats, Happened, HostEvents
from tracemine.perfmodel import LOADING_PACE
from tracemine.rows.table import IntArray

_NEVER = int(np.iinfo(np.int64).max)  # no change


class Change(Struct, frozen=True):
    """A finding's effect on the timeline. Rows of `activities`, each in one change at most."""

    rows: IntArray  # those that get shorter
    saved_ns: IntArray  # by this much each, no more than it lasts
    unlaunched: IntArray  # those whose launch is not made any more
    whole: bool  # with one goes all that the host did since the launch before; else its operator, where that is alone
    most_ns: int | IntArray  # that goes with each, whatever the host's pace: between launches a program may do anything
    called: IntArray  # those whose launch costs the host more than it did
    call_ns: int  # by this much, whatever the host's pace
    unblocked: IntArray  # those that the host does not wait for any more, neither in their launch nor right after it
    unwaited: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))  # calls: the host does not wait in them


class Edits(Struct, frozen=True):
    """Effects of changes that are made in turn, the first one's number is 1. Arrays have a value an event of the host:
    the number of the change that has this effect on it (`_NEVER`: none).
    """

    # Of each change: places of activities, what they take less, and events of the host whose time since those before
    # differs.
    each: tuple[tuple[IntArray, IntArray, IntArray], ...]
    unlaunched: IntArray
    gone: IntArray  # the event before is a launch that is not made
    lead_ns: IntArray  # how much of its time is left without its launch
    left_ns: IntArray  # how much of it goes with the launch before
    most_ns: IntArray  # that goes with its launch, before and behind it
    longer: IntArray
    longer_ns: IntArray
    unblocked: IntArray  # a blocking call that the host does not wait in

    @staticmethod
    def of(happened: Happened, changes: Sequence[Change]) -> Edits:
        """Return the effects of these changes."""
        host, operators, count = happened.host, happened.operators, len(happened.host.call)
        unlaunched, longer, unblocked = (np.full(count, _NEVER) for _ in range(3))
        whole, longer_ns, most_ns, events = np.zeros(count, np.bool_), *np.zeros((2, count), np.int64), []
        for number, change in enumerate(changes, 1):
            call = happened.sole_calls(change.unlaunched)
            fewer = host.launch[call]
            unlaunched[fewer], whole[fewer] = number, change.whole | operators.kept(call)
            most_ns[fewer] = np.broadcast_to(change.most_ns, change.unlaunched.shape)[
                happened.sole_launch[change.unlaunched]
            ]
            dearer = host.launch[happened.sole_calls(change.called)]
            longer[dearer], longer_ns[dearer] = number, change.call_ns
            freed = _blocking_behind(host, host.launch[happened.sole_calls(change.unblocked)])
            if len(change.unwaited):
                freed = np.append(freed, np.flatnonzero(host.blocks & np.isin(host.call, change.unwaited)))
            unblocked[freed] = number
            behind = fewer[fewer < count - 1] + 1
            events.append(np.concatenate((fewer, behind[unlaunched[behind] != number], dearer, freed)))
        return Edits(
            each=tuple(
                (happened.segments.place[change.rows], change.saved_ns, at)
                for change, at in zip(changes, events, strict=True)
            ),
            unlaunched=unlaunched,
            gone=np.append(_NEVER, unlaunched)[:-1],
            lead_ns=np.where(whole, 0, operators.lead_ns[host.call]),
            left_ns=np.append(0, np.where(whole, 0, operators.tail_ns[host.call]))[:-1],
            most_ns=most_ns,
            longer=longer,
            longer_ns=longer_ns,
            unblocked=unblocked,
        )


def _blocking_behind(host: HostEvents, launches: IntArray) -> IntArray:
    """Return the blocking calls behind these launches, before another launch."""
    if not len(launches):
        return launches
    chosen = np.zeros(len(host.call), np.bool_)
    chosen[launches] = True
    latest = np.maximum.accumulate(np.where(host.blocks, -1, np.arange(len(host.call))))
    return np.flatnonzero(host.blocks & (latest >= 0) & chosen[latest])


class Scenarios:
    """Scenarios as they go were the host never held up: with the first so many of some changes, on hosts that take
    1/pace of their time. With a change more, only what differs is made anew.

    With S the sum of all durations and delays of a stream up to an activity, its end less S is its lateness: here that
    which its call alone leads to.
    """

    took: IntArray | Floats  # of each place
    sums: IntArray | Floats  # S; it goes on over streams
    late: Floats  # [paces, places]

    def __init__(self, happened: Happened, edits: Edits, pace: Floats) -> None:
        self.happened, self.edits, self.faster, self.number = happened, edits, 1.0 / pace, 0
        host, faster = happened.host, self.faster[:, None]
        loading = np.maximum(faster, 1.0 / LOADING_PACE)
        stretched = host.work_ns - host.loading_ns - host.within_ns
        self.work = stretched * faster + host.loading_ns * loading + host.within_ns  # [paces, events]
        self.spent = self.work + host.own_ns
        self.took = happened.places.dur.copy()
        self._follow_host()

    def advance(self, number: int) -> Scenarios:
        """Make all changes up to the one of this number, which is no lower than before; return the scenarios."""
        made, self.number = self.edits.each[self.number : number], number
        for places, saved_ns, events in made:
            self.took[places] -= saved_ns
            self._spend(events)
        if any(len(events) for _, _, events in made):
            self._follow_host()
        self.sums = np.cumsum(self.took + self.happened.places.follow)
        self.late = np.add(self.called, self.took - self.sums)
        return self

    def _spend(self, at: IntArray) -> None:
        """Set the host's own time up to these events since those before, with launches left out or dearer."""
        host, edits, number = self.happened.host, self.edits, self.number
        # Behind a launch that is not made, what else goes with it is left out here.
        made, left_ns = number < edits.unlaunched[at], (number >= edits.gone[at]) * edits.left_ns[at]
        more_ns = (number >= edits.longer[at]) * edits.longer_ns[at]
        own_ns = (number < edits.unblocked[at]) * host.own_ns[at]
        for work, spent, faster in zip(self.work, self.spent, self.faster.tolist(), strict=True):
            behind = np.minimum(left_ns * faster, edits.most_ns[at - 1] - self._goes(work, at - 1, faster))
            gone = np.where(made, behind, self._goes(work, at, faster))
            spent[at] = np.maximum(work[at] - gone, 0.0) + more_ns + own_ns

    def _goes(self, work: Floats, at: IntArray, faster: float) -> Floats:
        """Return how much of the host's own time before these launches goes with them."""
        lead_ns = (self.number < self.edits.gone[at]) * self.edits.lead_ns[at]
        goes: Floats = np.minimum(np.maximum(work[at] - lead_ns * faster, 0.0), self.edits.most_ns[at])
        return goes

    def _follow_host(self) -> None:
        """Set when the host is done with each event, and when its launches let activities begin."""
        places = self.happened.places
        self.host = self.happened.begins + np.cumsum(self.spent, axis=1)
        uncalled = np.zeros((len(self.host), len(places.event)))
        self.called = np.take(self.host, places.event, axis=1) if self.host.size else uncalled
        self.called += places.delay
        self.called[:, places.uncalled] = places.begin
