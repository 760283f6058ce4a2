"""A job again, with other times between its collectives: all ranks together, any number of scenarios at once.

Each rank is one number line of own time, with events in order: a collective is issued, or is waited for. A collective
begins on each member when it is issued and the one before it on that member's stream has ended; it ends on all of them
at the latest of these beginnings and the transfer; a wait holds its rank until then.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracemine.errors import InputError
from tracemine.ranks.kinds import PAIRED
from tracemine.ranks.match import Clocks, Matches
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

    def __init__(self, ranks: Sequence[RankSummary], matches: Matches, clocks: Clocks) -> None:
        self.ranks = ranks
        rows = list(matches.at)
        kinds = list(matches.kind)
        inside = [rank.step >= 0 for rank in ranks]
        alone = [np.flatnonzero(each) for each in inside]
        kept, kept_kinds = [], []
        for row, kind in zip(rows, kinds, strict=True):
            if all(inside[at][row[at]] for at in np.flatnonzero(row >= 0)):
                kept.append(row)
                kept_kinds.append(kind)
        self.members = [tuple((int(at), int(row[at])) for at in np.flatnonzero(row >= 0)) for row in kept]
        self.matched = len(self.members)
        taken = {member for members in self.members for member in members}
        for at, own in enumerate(alone):
            for i in own.tolist():
                if (at, i) not in taken:
                    self.members.append(((at, i),))
                    kept_kinds.append(ranks[at].collectives.kind[i])
        self.kind = kept_kinds
        self.transfer = _transfers(ranks, self.members, kept_kinds)
        self.of = {member: k for k, members in enumerate(self.members) for member in members}
        self.events = [self._events(at) for at in range(len(ranks))]
        self.begin = np.array([rank.window[0] for rank in ranks]) + clocks.offset_ns
        self.end = np.array([rank.window[1] for rank in ranks]) + clocks.offset_ns
        self.before = self._before()

    def _events(self, at: int) -> list[_Event]:
        rank = self.ranks[at]
        inside = np.flatnonzero(rank.step >= 0)
        edges = np.append(0, np.cumsum(rank.stretches.own))
        found = []
        for place, i in enumerate(inside.tolist()):
            k = self.of[at, i]
            found.append((int(rank.issue[i]), 0, place, _Event(k, False, place, 1.0)))
            if rank.wait[i] >= 0:
                stretch = int(np.clip(np.searchsorted(edges, rank.wait[i], "left") - 1, place + 1, len(inside)))
                length = int(rank.stretches.own[stretch])
                share = (int(rank.wait[i]) - int(edges[stretch])) / length if length else 0.0
                found.append((int(rank.wait[i]), 1, stretch, _Event(k, True, stretch, min(max(share, 0.0), 1.0))))
        found.sort(key=lambda each: each[:3])
        return [each[3] for each in found]

    def _before(self) -> list[list[tuple[int, int]]]:
        """Return for each collective the members, and the collective before it on each member's stream (-1: none)."""
        last: dict[tuple[int, int], int] = {}
        found: list[list[tuple[int, int]]] = [[] for _ in self.members]
        for at, events in enumerate(self.events):
            for event in events:
                if not event.waits:
                    i = next(i for rank, i in self.members[event.collective] if rank == at)
                    key = (at, int(self.ranks[at].stream[i]))
                    found[event.collective].append((at, last.get(key, -1)))
                    last[key] = event.collective
        return found

    def ends(
        self, stretches: Sequence[FloatArray], transfer: FloatArray | None = None, *, together: bool
    ) -> FloatArray:
        """Return when each rank ends in each scenario: [scenarios, ranks].

        stretches: of each rank [scenarios, stretches]. transfer: [scenarios, collectives], as recorded by default.
        together: all ranks begin at once; else when they did. Raises InputError where ranks wait for each other.
        """
        scenarios, count = stretches[0].shape[0], len(self.ranks)
        transfer = np.tile(self.transfer.astype(float), (scenarios, 1)) if transfer is None else transfer
        edges = [np.concatenate((np.zeros((scenarios, 1)), np.cumsum(each, axis=1)), axis=1) for each in stretches]
        begin = np.zeros(count) if together else (self.begin - self.begin.min()).astype(float)
        stall = [np.full(scenarios, begin[at]) for at in range(count)]
        issued = [np.zeros(scenarios) for _ in self.members]
        lacking = [2 * len(members) for members in self.members]
        ended: list[FloatArray | None] = [None] * len(self.members)
        after: list[list[tuple[int, int]]] = [[] for _ in self.members]
        for k, members in enumerate(self.before):
            for at, earlier in members:
                if earlier >= 0:
                    after[earlier].append((k, at))
                else:
                    lacking[k] -= 1
        asleep: dict[int, list[int]] = {}
        place, ready = [0] * count, list(range(count))

        def resolve(k: int) -> None:
            stack = [k]
            while stack:
                one = stack.pop()
                end = issued[one] + transfer[:, one]
                ended[one] = end
                ready.extend(asleep.pop(one, ()))
                for later, _ in after[one]:
                    issued[later] = np.maximum(issued[later], end)
                    lacking[later] -= 1
                    if not lacking[later]:
                        stack.append(later)

        while ready:
            at = ready.pop()
            events = self.events[at]
            while place[at] < len(events):
                event = events[place[at]]
                k = event.collective
                now = edges[at][:, event.stretch] + event.share * stretches[at][:, event.stretch] + stall[at]
                if event.waits:
                    end = ended[k]
                    if end is None:
                        asleep.setdefault(k, []).append(at)
                        break
                    stall[at] = stall[at] + np.maximum(end - now, 0.0)
                else:
                    issued[k] = np.maximum(issued[k], now)
                    lacking[k] -= 1
                    if not lacking[k]:
                        resolve(k)
                place[at] += 1
        if any(end is None for end in ended) or any(place[at] < len(self.events[at]) for at in range(count)):
            raise InputError("its ranks wait for each other in a circle, as matched", hint="name the ranks of one run")
        return np.stack([edges[at][:, -1] + stall[at] for at in range(count)], axis=1)

    def recorded(self) -> list[FloatArray]:
        """Return each rank's stretches as recorded, one scenario."""
        return [rank.stretches.own.astype(float)[None, :] for rank in self.ranks]

    def error_percent(self) -> float:
        """Return by how much the unchanged replay misses the job's recorded time."""
        whole = float(self.end.max() - self.begin.min())
        return float(abs(self.ends(self.recorded(), together=False).max() - whole) / max(whole, 1.0) * 100)


def _transfers(ranks: Sequence[RankSummary], members: list[tuple[tuple[int, int], ...]], kinds: list[str]) -> IntArray:
    """Return how long each collective takes once all members are there: the shortest of their times.

    Of batched sends and receives even that may hold the wait of another pair: no more than the median alike.
    """
    found = np.array([min(int(ranks[at].dur[i]) for at, i in each) for each in members], np.int64)
    sizes = [int(ranks[each[0][0]].collectives.nbytes[each[0][1]]) for each in members]
    alike: dict[tuple[str, int], list[int]] = {}
    for k, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
        if kind in PAIRED:
            alike.setdefault((kind, size), []).append(k)
    for rows in alike.values():
        found[rows] = np.minimum(found[rows], int(np.median(found[rows])))
    return found
