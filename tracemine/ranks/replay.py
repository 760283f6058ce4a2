"""A job again, with other times between its collectives: all ranks together, any number of scenarios at once.

Each rank is a device, one number line of own time, with events in order: a collective is issued, or is waited for, or
its host meets it. A collective begins on each member when it is issued and the one before it on that member's stream
has ended; it ends on all of them at the latest of these beginnings and the transfer, an all-to-all on each by as much
later or earlier as recorded; a wait holds the device until then. The host is a line of its own: it works ahead, the
device is never ahead of it, and where it meets the device it waits for it. What waits for what is the same in all
scenarios: what waits for nothing else any more happens at once, on all ranks, wave by wave.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from tracemine.columns import ranges
from tracemine.errors import InputError, Location
from tracemine.ops.collectives import PAIRED
from tracemine.ranks.clocks import Clocks
from tracemine.ranks.collectives import ProcessGroup
from tracemine.ranks.match import MatchedCollectives
from tracemine.ranks.summary import RankSummary
from tracemine.rows.table import BoolArray, FloatArray, IntArray

ISSUED, AWAITED, MET, ENDED = range(4)  # kinds of events


class _Events(Struct, frozen=True):
    """What happens on a rank, in order; of a wave, on all ranks at once."""

    rank: IntArray
    what: IntArray
    stretch: IntArray
    collective: IntArray  # of the job; -1: of none
    apart: FloatArray  # of its transfer: by so much later it ends here
    device: FloatArray  # share of the stretch's own time that passes since the event before
    host: FloatArray  # of the host's time

    @classmethod
    def joined(cls, each: Sequence[_Events]) -> _Events:
        """Return the events of ranks, one after the other."""
        return cls(*(np.concatenate([getattr(one, name) for one in each]) for name in cls.__struct_fields__))

    def of(self, rows: IntArray) -> _Events:
        """Return some of them."""
        return _Events(*(getattr(self, name)[rows] for name in self.__struct_fields__))


class _Wave(Struct, frozen=True):
    """What happens at once: at most one event of each rank, and collectives that end."""

    events: _Events
    issues: IntArray  # places in `events`, by collective
    issued: IntArray  # the collectives of these
    firsts: IntArray  # where each of them begins in `issues`
    awaits: IntArray  # places in `events`
    meets: IntArray
    ends: IntArray  # collectives
    earlier: IntArray  # of these those that others come right behind
    later: IntArray  # the others

    @classmethod
    def of(cls, events: _Events, ends: IntArray, earlier: IntArray, later: IntArray) -> _Wave:
        """Return a wave with its events by what they are."""
        issues, awaits, meets = (np.flatnonzero(events.what == what) for what in (ISSUED, AWAITED, MET))
        issues = issues[np.argsort(events.collective[issues], kind="stable")]
        issued, firsts = np.unique(events.collective[issues], return_index=True)
        return cls(events, issues, issued, firsts, awaits, meets, ends, earlier, later)


class JobReplay:
    """What holds for all scenarios of a job: events, members and transfers. Raises InputError where ranks wait for each
    other.

    A collective that was not matched is one of its rank alone, for as long as it was recorded.
    """

    def __init__(self, ranks: Sequence[RankSummary], matches: MatchedCollectives, clocks: Clocks) -> None:
        self.ranks = ranks
        self.members = _members(ranks, matches)
        self.matched = len(self.members)
        taken = {member for members in self.members for member in members}
        own = [(at, i) for at, rank in enumerate(ranks) for i in np.flatnonzero(rank.step >= 0).tolist()]
        self.members += [(member,) for member in own if member not in taken]
        self.is_whole = _are_whole(ranks, self.members)
        self.kind = [ranks[at].collectives.kind[i] for (at, i), *_ in self.members]
        self.transfer = _transfers(ranks, self.members, self.kind)
        self.of = {member: k for k, members in enumerate(self.members) for member in members}
        apart = self._apart(clocks.offset_ns)
        self.begin = np.array([rank.window[0] for rank in ranks]) + clocks.offset_ns
        self.end = np.array([rank.window[1] for rank in ranks]) + clocks.offset_ns
        self._waves = list(self._in_waves(_Events.joined([self._events(at, apart) for at in range(len(ranks))])))

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
        joined, shares = (np.concatenate((of, of[held], np.full(len(met), -1)))[order] for of in (k, later))
        first = sum(len(before.stretches.own) for before in self.ranks[:at])
        return _Events(
            np.full(len(order) + 1, at),
            np.append(what[order], ENDED),
            first + np.append(stretch[order], len(inside)),
            np.append(joined, -1),
            np.append(shares, 0.0),
            _passing((stretch + share)[order], len(inside) + 1),
            _passing(works[order], len(inside) + 1),
        )

    def _in_waves(self, events: _Events) -> Iterator[_Wave]:
        """Yield what happens at once: an event once those before it on its rank are over, and what it awaits has
        ended; the end of a collective once all have issued it, and what is before it on their streams has ended.
        """
        count, issues = len(events.rank), np.flatnonzero(events.what == ISSUED)
        awaits, after = np.flatnonzero(events.what == AWAITED), np.flatnonzero(np.diff(events.rank) == 0)
        earlier, later = self._in_order(events, issues)
        source = np.concatenate((after, issues, count + events.collective[awaits], count + earlier))
        target = np.concatenate((after + 1, count + events.collective[issues], awaits, count + later))
        order = np.argsort(source, kind="stable")
        source, target = source[order], target[order]
        lacking = np.bincount(target, minlength=count + len(self.members))
        left, ready = np.ones(count, np.bool_), np.flatnonzero(lacking == 0)
        while len(ready):
            own, ends = ready[ready < count], ready[ready >= count] - count
            left[own] = False
            pairs = _from(earlier, ends)
            yield _Wave.of(events.of(own), ends, earlier[pairs], later[pairs])
            following = target[_from(source, ready)]
            np.subtract.at(lacking, following, 1)
            ready = np.unique(following[lacking[following] == 0])
        if lacking.any():
            raise InputError(
                "is of ranks that wait for each other in a circle, as matched",
                where=Location(self.ranks[next(iter(events.rank[left].tolist()), 0)].file),
                hint="name the ranks of one run",
            )

    def _in_order(self, events: _Events, issues: IntArray) -> IntArray:
        """Return which collective comes right before which on a stream of a member: pairs in order, each once."""
        of_stretch = np.concatenate([np.append(rank.stream[rank.step >= 0], -1) for rank in self.ranks])
        on = np.stack((of_stretch[events.stretch[issues]], events.rank[issues]))
        order = np.lexsort(on)
        k, same = events.collective[issues][order], (on[:, order[1:]] == on[:, order[:-1]]).all(axis=0)
        pairs: IntArray = np.unique(np.stack((k[:-1], k[1:]))[:, same], axis=1)
        return pairs

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
        a limit.
        """
        own = np.concatenate([each.T for each in stretches])
        works = np.zeros_like(own) if hosts is None else np.concatenate([each.T for each in hosts])
        times = self.transfer.astype(float)[None, :] if transfer is None else transfer
        whole: FloatArray = np.broadcast_to(times, (own.shape[1], len(self.members))).T
        begin = np.zeros(len(self.ranks)) if together else (self.begin - self.begin.min()).astype(float)
        device = np.repeat(begin[:, None], own.shape[1], axis=1)
        host, issued, ended = device.copy(), np.zeros(whole.shape), np.zeros(whole.shape)
        for wave in self._waves:
            events = wave.events
            at, place, k = events.rank, events.stretch, events.collective[wave.awaits]
            host[at] += events.host[:, None] * works[place]
            now = np.maximum(device[at] + events.device[:, None] * own[place], host[at])
            if len(k):
                over = ended[k] + events.apart[wave.awaits][:, None] * whole[k]
                now[wave.awaits] = np.maximum(now[wave.awaits], over)
            device[at] = now
            host[at[wave.meets]] = now[wave.meets]
            if len(wave.issued):
                last = np.maximum.reduceat(now[wave.issues], wave.firsts, axis=0)
                issued[wave.issued] = np.maximum(issued[wave.issued], last)
            ended[wave.ends] = issued[wave.ends] + whole[wave.ends]
            np.maximum.at(issued, wave.later, ended[wave.earlier])
        return device.T

    def by_kind(self, most: int | None = None) -> dict[tuple[str, ProcessGroup], list[int]]:
        """Return the collectives of each kind and group, or so many of all, those that were matched first."""
        kinds: dict[tuple[str, ProcessGroup], list[int]] = defaultdict(list)
        for k, ((at, i), *_) in enumerate(self.members[:most]):
            kinds[self.kind[k], self.ranks[at].collectives.group_of(i)].append(k)
        return kinds

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


def _are_whole(ranks: Sequence[RankSummary], members: list[tuple[tuple[int, int], ...]]) -> BoolArray:
    """Return of which collectives all members were recorded: else the shortest time may hold a wait for the others."""
    groups = [ranks[at].collectives.group_of(i) for (at, i), *_ in members]
    size = [len(group.ranks) if group.ranks is not None else group.size or 0 for group in groups]
    return np.array([len(joined) for joined in members], np.int64) >= np.array(size, np.int64)


def _passing(place: FloatArray, count: int) -> FloatArray:
    """Return how far each event lies behind those before it, and the end behind all; places count in stretches.

    >>> _passing(np.array([0.5, 1.0, 0.0, 2.0]), 3).tolist()
    [0.5, 0.5, 0.0, 1.0, 1.0]
    """
    passed = np.diff(np.maximum.accumulate(place), prepend=0.0)
    return np.append(passed, count - passed.sum())


def _from(sources: IntArray, chosen: IntArray) -> IntArray:
    """Return where pairs, sorted by their sources, begin at those chosen.

    >>> _from(np.array([0, 0, 2, 3]), np.array([0, 1, 3])).tolist()
    [0, 1, 3]
    """
    begin, stop = (np.searchsorted(sources, chosen, side) for side in ("left", "right"))
    return ranges(begin, stop - begin)


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
