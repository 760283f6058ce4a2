"""A job again, with other times between its collectives: all ranks together, any number of scenarios at once.

Each rank is a device, one number line of own time, with events in order: a collective is issued, or is waited for, or
its host meets it. A collective begins on each member when it is issued and the one before it on that member's stream
has ended; it ends on all of them at the latest of these beginnings and the transfer, an all-to-all on each by as much
later or earlier as recorded; a wait holds the device until then. The host is a line of its own: it works ahead, the
device is never ahead of it, and where it meets the device it waits for it. Ranks whose events have the same order are
run as one, with lines each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracemine.columns import ranges
from tracemine.errors import InputError, Location
from tracemine.ops.collectives import PAIRED
from tracemine.ranks.clocks import Clocks
from tracemine.ranks.match import MatchedCollectives
from tracemine.ranks.summary import RankSummary
from tracemine.rows.table import FloatArray, IntArray

ISSUED, AWAITED, MET = range(3)  # kinds of events


class _Events(Struct, frozen=True):
    """What happens on a rank, or on ranks that do the same, in order: [events], and [events, ranks]."""

    ranks: IntArray
    what: IntArray
    stretch: IntArray
    collective: IntArray  # of the job, of each rank; -1: of none
    apart: FloatArray  # of its transfer: by so much later it ends on each rank
    device: FloatArray  # share of the stretch's own time that passes since the event before, of each rank
    host: FloatArray  # of the host's time


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
        apart = self._apart(clocks.offset_ns)
        self.events = [self._events(at, apart) for at in range(len(ranks))]
        self.begin = np.array([rank.window[0] for rank in ranks]) + clocks.offset_ns
        self.end = np.array([rank.window[1] for rank in ranks]) + clocks.offset_ns
        self.before = self._before()
        self._together = True  # ranks of equal events are run as one

    def _apart(self, offset: IntArray) -> dict[tuple[int, int], float]:
        """Return by how much later than a transfer after its last begin an all-to-all ends on members: each ends when
        it has sent and received its own part.
        """
        found: dict[tuple[int, int], float] = {}
        for k, members in enumerate(self.members[: self.matched]):
            if self.kind[k] == "all_to_all":
                begin = {(at, i): int(self.ranks[at].start[i] + offset[at]) for at, i in members}
                last, whole = max(begin.values()), max(int(self.transfer[k]), 1)
                found |= {
                    one: (time + int(self.ranks[one[0]].dur[one[1]]) - last) / whole - 1 for one, time in begin.items()
                }
        return found

    def _events(self, at: int, apart: dict[tuple[int, int], float]) -> _Events:
        rank = self.ranks[at]
        inside = np.flatnonzero(rank.step >= 0)
        edges = np.append(0, np.cumsum(rank.stretches.own))
        k = np.array([self.of[at, i] for i in inside.tolist()], np.int64)
        later = np.array([apart.get((at, i), 0.0) for i in inside.tolist()])
        issue, wait, place = rank.issue[inside], rank.wait[inside], np.arange(len(inside))
        held, met = np.flatnonzero(wait >= 0), np.flatnonzero(rank.meetings.own >= 0)
        waited = np.clip(np.searchsorted(edges, wait[held], "left") - 1, place[held] + 1, len(inside))
        meeting = np.clip(rank.meetings.own[met], edges[met], edges[met + 1])
        time = np.concatenate((issue, wait[held], meeting))
        what = np.repeat((ISSUED, AWAITED, MET), (len(issue), len(held), len(met)))
        stretch = np.concatenate((place, waited, met))
        length = rank.stretches.own[stretch]
        share = np.clip((time - edges[stretch]) / np.maximum(length, 1), 0.0, 1.0) * (length > 0)
        share[: len(issue)] = 1.0
        works = np.concatenate((place + 1.0, np.zeros(len(held)), met + rank.meetings.share[met]))
        order = np.lexsort((stretch, what, time))
        joined, shares = (np.concatenate((of, of[held], np.full(len(met), -1)))[order][:, None] for of in (k, later))
        return _Events(
            np.array([at]),
            what[order],
            stretch[order],
            joined,
            shares,
            _passing((stretch + share)[order]),
            _passing(works[order]),
        )

    def _before(self) -> tuple[IntArray, IntArray]:
        """Return which collective comes right before which on a stream of a member: pairs in order, each once."""
        pairs: set[tuple[int, int]] = set()
        for at, events in enumerate(self.events):
            issued = events.collective[events.what == ISSUED, 0].tolist()
            last: dict[int, int] = {}
            place = {self.of[at, i]: i for i in np.flatnonzero(self.ranks[at].step >= 0).tolist()}
            for k in issued:
                stream = int(self.ranks[at].stream[place[k]])
                if stream in last:
                    pairs.add((last[stream], k))
                last[stream] = k
        earlier, later = np.array(sorted(pairs), np.int64).reshape(-1, 2).T
        return earlier, later

    def ends(
        self,
        stretches: Sequence[FloatArray],
        transfer: FloatArray | None = None,
        *,
        together: bool,
        hosts: Sequence[FloatArray] | None = None,
    ) -> FloatArray:
        """Return when each rank ends in each scenario: [scenarios, ranks].

        stretches: of each rank [scenarios, stretches]. transfer: [scenarios, collectives], as recorded by default.
        together: all ranks begin at once; else when they did. hosts: of each rank, as stretches; by default no host is
        a limit. Raises InputError where ranks wait for each other.
        """
        scenarios, count = stretches[0].shape[0], len(self.ranks)
        times = self.transfer.astype(float)[None, :] if transfer is None else transfer
        whole: FloatArray = np.broadcast_to(times, (scenarios, len(self.members))).T.copy()
        begin = np.zeros(count) if together else (self.begin - self.begin.min()).astype(float)
        lines = stretches, [np.zeros_like(each) for each in stretches] if hosts is None else hosts
        for as_one in (True, False) if self._together else (False,):
            run = _Run(self, _as_one(self.events) if as_one else self.events, lines, whole, begin)
            if run.to_the_end():
                self._together = as_one
                return run.ends()
        raise InputError(
            "is of ranks that wait for each other in a circle, as matched",
            where=Location(self.ranks[run.first_stuck()].file),
            hint="name the ranks of one run",
        )

    def recorded(self) -> list[FloatArray]:
        """Return each rank's stretches as recorded, one scenario."""
        return [rank.stretches.own.astype(float)[None, :] for rank in self.ranks]

    def error_percent(self) -> float:
        """Return by how much the unchanged replay misses the job's recorded time."""
        whole = float(self.end.max() - self.begin.min())
        return float(abs(self.ends(self.recorded(), together=False).max() - whole) / max(whole, 1.0) * 100)


def _members(ranks: Sequence[RankSummary], matches: MatchedCollectives) -> list[tuple[tuple[int, int], ...]]:
    """Return who takes part in each match that lies in the windows of all its members: rank, place among its own."""
    joined = []
    for block in matches.blocks:
        columns = enumerate(block.ranks.tolist())
        inside = np.all([ranks[at].step[block.at[:, column]] >= 0 for column, at in columns], axis=0)
        who = block.ranks.tolist()
        joined += [tuple(zip(who, row, strict=True)) for row in block.at[inside].tolist()]
    return joined


def _passing(place: FloatArray) -> FloatArray:
    """Return how far each event lies behind those before it, [events, 1]; places count in stretches.

    >>> _passing(np.array([0.5, 1.0, 0.0, 2.0])).T.tolist()
    [[0.5, 0.5, 0.0, 1.0]]
    """
    return np.diff(np.maximum.accumulate(place), prepend=0.0)[:, None]


def _as_one(events: Sequence[_Events]) -> list[_Events]:
    """Return the events of ranks that have the same order as one, each rank a column."""
    equal: dict[tuple[bytes, bytes], list[_Events]] = {}
    for each in events:
        equal.setdefault((each.what.tobytes(), each.stretch.tobytes()), []).append(each)
    return [
        _Events(
            np.concatenate([each.ranks for each in same]),
            same[0].what,
            same[0].stretch,
            *(
                np.concatenate([getattr(each, name) for each in same], axis=1)
                for name in ("collective", "apart", "device", "host")
            ),
        )
        for same in equal.values()
    ]


class _Run:
    """One pass over a job: how far the ranks are, which collectives have ended, and who waits for them."""

    def __init__(
        self,
        job: JobReplay,
        classes: Sequence[_Events],
        lines: tuple[Sequence[FloatArray], Sequence[FloatArray]],
        transfer: FloatArray,
        begin: FloatArray,
    ) -> None:
        count, scenarios = transfer.shape
        self.classes, self.transfer = classes, transfer
        # Of each class [stretches, ranks, scenarios].
        self.own, self.works = (
            [np.stack([line[at] for at in order.ranks.tolist()]).transpose(2, 0, 1) for order in classes]
            for line in lines
        )
        # Of each event the collective that it is of on all ranks of the class, -1 where they differ.
        self.shared = [
            np.where((order.collective == order.collective[:, :1]).all(axis=1), order.collective[:, 0], -1).tolist()
            for order in classes
        ]
        self.device = [np.repeat(begin[order.ranks][:, None], scenarios, axis=1) for order in classes]  # where each is
        self.host = [times.copy() for times in self.device]
        self.issued = np.zeros((count, scenarios))
        self.ended = np.zeros((count, scenarios))
        self.is_over = np.zeros(count, np.bool_)
        self.lacking = np.array([len(members) for members in job.members], np.int64)  # and those before it, to come
        self.earlier, self.later = job.before
        np.add.at(self.lacking, self.later, 1)
        self.asleep: dict[int, list[int]] = {}
        self.place = [0] * len(classes)
        self.ready = list(range(len(classes)))

    def to_the_end(self) -> bool:
        """Run all ranks as far as they get. Return whether all got to their ends, and all collectives to theirs."""
        while self.ready:
            self._advance(self.ready.pop())
        done = all(place == len(order.stretch) for place, order in zip(self.place, self.classes, strict=True))
        return done and bool(self.is_over.all())

    def first_stuck(self) -> int:
        """Return the first rank that did not get to its end; the first of all where each did."""
        pairs = zip(self.place, self.classes, strict=True)
        return next((int(order.ranks[0]) for place, order in pairs if place < len(order.stretch)), 0)

    def ends(self) -> FloatArray:
        """Return when each rank ends in each scenario: [scenarios, ranks]."""
        ends = np.zeros((self.transfer.shape[1], sum(len(order.ranks) for order in self.classes)))
        for number, order in enumerate(self.classes):
            rest = (len(self.own[number]) - part.sum(axis=0)[:, None] for part in (order.device, order.host))
            self._pass(number, -1, *rest)
            ends[:, order.ranks] = self.device[number].T
        return ends

    def _pass(self, number: int, stretch: int, device: FloatArray, host: FloatArray) -> None:
        """Let shares of a stretch pass: the device works on, and is never ahead of its host."""
        self.host[number] += host * self.works[number][stretch]
        self.device[number] += device * self.own[number][stretch]
        np.maximum(self.device[number], self.host[number], out=self.device[number])

    def _advance(self, number: int) -> None:
        """Run ranks of one class until one waits for a collective that has not ended."""
        events = self.classes[number]
        while self.place[number] < len(events.stretch):
            at = self.place[number]
            what, ks, shared = events.what[at], events.collective[at], self.shared[number][at]
            if what == AWAITED:
                asked = ks if shared < 0 else np.array([shared])
                lacking = asked[~self.is_over[asked]].tolist()
                if lacking:
                    self.asleep.setdefault(lacking[0], []).append(number)
                    return
            self._pass(number, int(events.stretch[at]), events.device[at][:, None], events.host[at][:, None])
            now = self.device[number]
            if what == AWAITED:
                of = ks if shared < 0 else shared
                np.maximum(now, self.ended[of] + events.apart[at][:, None] * self.transfer[of], out=now)
            elif what == ISSUED and shared >= 0:
                self.lacking[shared] -= len(ks)
                np.maximum(self.issued[shared], now.max(axis=0), out=self.issued[shared])
                if not self.lacking[shared]:
                    self._end(np.array([shared]))
            elif what == ISSUED:
                self._arrive(ks, now)
            else:
                self.host[number] = now.copy()
            self.place[number] += 1

    def _arrive(self, ks: IntArray, time: FloatArray) -> None:
        """Note that members of collectives are there; end those that lack none."""
        order = np.argsort(ks, kind="stable")
        joined, first, members = np.unique(ks[order], return_index=True, return_counts=True)
        self.lacking[joined] -= members
        self.issued[joined] = np.maximum(self.issued[joined], np.maximum.reduceat(time[order], first, axis=0))
        self._end(joined[self.lacking[joined] == 0])

    def _end(self, over: IntArray) -> None:
        """End collectives that lack no member and none before them, and those that lacked only these."""
        while len(over):
            self.ended[over] = self.issued[over] + self.transfer[over]
            self.is_over[over] = True
            for k in over.tolist() if self.asleep else ():
                self.ready.extend(self.asleep.pop(k, ()))
            begin, stop = (np.searchsorted(self.earlier, over, side) for side in ("left", "right"))
            count = stop - begin
            pairs = ranges(begin, count)
            later = self.later[pairs]
            np.maximum.at(self.issued, later, self.ended[self.earlier[pairs]])
            np.subtract.at(self.lacking, later, 1)
            over = np.unique(later[self.lacking[later] == 0])


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
