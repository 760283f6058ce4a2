"""A job again, with other times between its collectives: all ranks together, any number of scenarios at once.

Each rank is one number line of own time, with events in order: a collective is issued, or is waited for. A collective
begins on each member when it is issued and the one before it on that member's stream has ended; it ends on all of them
at the latest of these beginnings and the transfer; a wait holds its rank until then.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracemine.errors import InputError, Location
from tracemine.ops.collectives import PAIRED
from tracemine.ranks.match import Clocks, MatchedCollectives
from tracemine.ranks.summary import RankSummary
from tracemine.rows.table import FloatArray, IntArray


class _Event(Struct, frozen=True):
    collective: int  # of the job
    waits: bool
    stretch: int
    share: float  # of the stretch's own time that has passed


class JobReplay:
    """What holds for all scenarios of a job: events of each rank, members and transfers of each collective.

    A collective that was not matched is one of its rank alone, for as long as it was recorded.
    """

    def __init__(self, ranks: Sequence[RankSummary], matches: MatchedCollectives, clocks: Clocks) -> None:
        self.ranks = ranks
        self.members = _members(ranks, matches)
        self.matched = len(self.members)
        taken = {member for members in self.members for member in members}
        own = [(at, i) for at, rank in enumerate(ranks) for i in np.flatnonzero(rank.step >= 0).tolist()]
        self.members += [(member,) for member in own if member not in taken]
        self.kind = [ranks[at].collectives.kind[i] for (at, i), *_ in self.members]
        self.transfer = _transfers(ranks, self.members, self.kind)
        self.of = {member: k for k, members in enumerate(self.members) for member in members}
        self.events = [self._events(at) for at in range(len(ranks))]
        self.begin = np.array([rank.window[0] for rank in ranks]) + clocks.offset_ns
        self.end = np.array([rank.window[1] for rank in ranks]) + clocks.offset_ns
        self.before = self._before()

    def _events(self, at: int) -> list[_Event]:
        rank = self.ranks[at]
        inside = np.flatnonzero(rank.step >= 0)
        edges = np.append(0, np.cumsum(rank.stretches.own))
        events = []
        for place, i in enumerate(inside.tolist()):
            k = self.of[at, i]
            events.append((int(rank.issue[i]), 0, place, _Event(k, False, place, 1.0)))
            if rank.wait[i] >= 0:
                stretch = int(np.clip(np.searchsorted(edges, rank.wait[i], "left") - 1, place + 1, len(inside)))
                length = int(rank.stretches.own[stretch])
                share = (int(rank.wait[i]) - int(edges[stretch])) / length if length else 0.0
                events.append((int(rank.wait[i]), 1, stretch, _Event(k, True, stretch, min(max(share, 0.0), 1.0))))
        events.sort(key=lambda event: event[:3])
        return [event[3] for event in events]

    def _before(self) -> list[list[tuple[int, int]]]:
        """Return for each collective the members, and the collective before it on each member's stream (-1: none)."""
        last: dict[tuple[int, int], int] = {}
        previous: list[list[tuple[int, int]]] = [[] for _ in self.members]
        for at, events in enumerate(self.events):
            for event in events:
                if not event.waits:
                    i = next(i for rank, i in self.members[event.collective] if rank == at)
                    key = (at, int(self.ranks[at].stream[i]))
                    previous[event.collective].append((at, last.get(key, -1)))
                    last[key] = event.collective
        return previous

    def ends(
        self, stretches: Sequence[FloatArray], transfer: FloatArray | None = None, *, together: bool
    ) -> FloatArray:
        """Return when each rank ends in each scenario: [scenarios, ranks].

        stretches: of each rank [scenarios, stretches]. transfer: [scenarios, collectives], as recorded by default.
        together: all ranks begin at once; else when they did. Raises InputError where ranks wait for each other.
        """
        scenarios, count = stretches[0].shape[0], len(self.ranks)
        transfer = np.tile(self.transfer.astype(float), (scenarios, 1)) if transfer is None else transfer
        begin = np.zeros(count) if together else (self.begin - self.begin.min()).astype(float)
        run = _Run(self, stretches, transfer, begin)
        if not run.to_the_end():
            raise InputError(
                "is of ranks that wait for each other in a circle, as matched",
                where=Location(self.ranks[run.first_stuck()].file),
                hint="name the ranks of one run",
            )
        return np.stack([run.edges[at][:, -1] + run.stall[at] for at in range(count)], axis=1)

    def recorded(self) -> list[FloatArray]:
        """Return each rank's stretches as recorded, one scenario."""
        return [rank.stretches.own.astype(float)[None, :] for rank in self.ranks]

    def error_percent(self) -> float:
        """Return by how much the unchanged replay misses the job's recorded time."""
        whole = float(self.end.max() - self.begin.min())
        return float(abs(self.ends(self.recorded(), together=False).max() - whole) / max(whole, 1.0) * 100)


def _members(ranks: Sequence[RankSummary], matches: MatchedCollectives) -> list[tuple[tuple[int, int], ...]]:
    """Return who takes part in each match that lies in the windows of all its members: rank, place among its own."""
    members = [tuple((at, int(row[at])) for at in np.flatnonzero(row >= 0).tolist()) for row in matches.at]
    return [each for each in members if all(ranks[at].step[i] >= 0 for at, i in each)]


class _Run:
    """One pass over a job: how far each rank is, which collectives have ended, and who waits for them."""

    def __init__(
        self, job: JobReplay, stretches: Sequence[FloatArray], transfer: FloatArray, begin: FloatArray
    ) -> None:
        scenarios = stretches[0].shape[0]
        zeros = np.zeros((scenarios, 1))
        self.job, self.stretches, self.transfer = job, stretches, transfer
        self.edges = [np.concatenate((zeros, np.cumsum(own, axis=1)), axis=1) for own in stretches]
        self.stall = [np.full(scenarios, float(at)) for at in begin]
        self.issued = [np.zeros(scenarios) for _ in job.members]
        self.ended: list[FloatArray | None] = [None] * len(job.members)
        self.lacking = [2 * len(members) for members in job.members]  # issues, and collectives before them, to come
        self.after: list[list[int]] = [[] for _ in job.members]
        for k, members in enumerate(job.before):
            for _, earlier in members:
                if earlier >= 0:
                    self.after[earlier].append(k)
                else:
                    self.lacking[k] -= 1
        self.asleep: dict[int, list[int]] = {}
        self.place = [0] * len(stretches)
        self.ready = list(range(len(stretches)))

    def to_the_end(self) -> bool:
        """Run every rank as far as it gets. Return whether all got to their ends, and all collectives to theirs."""
        while self.ready:
            self._advance(self.ready.pop())
        done = all(place == len(events) for place, events in zip(self.place, self.job.events, strict=True))
        return done and all(end is not None for end in self.ended)

    def first_stuck(self) -> int:
        """Return the first rank that did not get to its end; the first of all where each did."""
        pairs = zip(self.place, self.job.events, strict=True)
        return next((at for at, (place, events) in enumerate(pairs) if place < len(events)), 0)

    def _advance(self, at: int) -> None:
        """Run one rank until it waits for a collective that has not ended."""
        edges, stretches, events = self.edges[at], self.stretches[at], self.job.events[at]
        while self.place[at] < len(events):
            event = events[self.place[at]]
            k = event.collective
            now = edges[:, event.stretch] + event.share * stretches[:, event.stretch] + self.stall[at]
            if event.waits:
                end = self.ended[k]
                if end is None:
                    self.asleep.setdefault(k, []).append(at)
                    return
                self.stall[at] = self.stall[at] + np.maximum(end - now, 0.0)
            else:
                self._arrive(k, now)
            self.place[at] += 1

    def _arrive(self, collective: int, time: FloatArray) -> None:
        """Note that a member, or the collective before it on a member's stream, is there; end what lacks none."""
        arrivals = [(collective, time)]
        while arrivals:
            k, when = arrivals.pop()
            self.issued[k] = np.maximum(self.issued[k], when)
            self.lacking[k] -= 1
            if not self.lacking[k]:
                end = self.issued[k] + self.transfer[:, k]
                self.ended[k] = end
                self.ready.extend(self.asleep.pop(k, ()))
                arrivals.extend((later, end) for later in self.after[k])


def _transfers(ranks: Sequence[RankSummary], members: list[tuple[tuple[int, int], ...]], kinds: list[str]) -> IntArray:
    """Return how long each collective takes once all members are there: the shortest of their times.

    Of batched sends and receives even that may hold the wait of another pair: no more than the median of equal ones.
    """
    times = np.array([min(int(ranks[at].dur[i]) for at, i in joined) for joined in members], np.int64)
    sizes = [int(ranks[joined[0][0]].collectives.nbytes[joined[0][1]]) for joined in members]
    alike: dict[tuple[str, int], list[int]] = {}
    for k, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
        if kind in PAIRED:
            alike.setdefault((kind, size), []).append(k)
    for rows in alike.values():
        times[rows] = np.minimum(times[rows], int(np.median(times[rows])))
    return times
