"""Which collectives of the ranks are one and the same: by their number where it is recorded, else by order, and proved.

A wrong match is worse than none: what differs in kind or size is dropped, and a group whose matches no clocks allow is
left out as a whole. No member of a collective ends before the last one has started, so each match bounds the offsets of
the clocks; bounds that contradict each other refute the matches.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from tracemine.ops.collectives import PAIRED, SYNCHRONISING
from tracemine.ranks.collectives import Collectives, ProcessGroup
from tracemine.ranks.summary import RankSummary
from tracemine.rows.table import IntArray

_SHIFTS = sorted(range(-8, 9), key=lambda shift: (abs(shift), shift))  # windows may begin apart
_SLACK_NS = 5_000  # by which recorded times may contradict each other: whole microseconds, and ends that differ
_Kernel: TypeAlias = tuple[int, int]  # place of its rank, and of it among the rank's own
_FAR = np.iinfo(np.int64).max // 4


class MatchedCollectives(Struct, frozen=True):
    """Collectives that were matched: a row each, a column for each rank, the place among the rank's own; -1: no member.

    unmatched: how many collectives are in no match, by reason. missing: groups of which members were not recorded.
    """

    at: IntArray
    kind: tuple[str, ...]
    group: tuple[ProcessGroup, ...]
    unmatched: dict[str, int]
    missing: int

    def __len__(self) -> int:
        return len(self.at)


class Clocks(Struct, frozen=True):
    """What is added to each rank's times to have them on the first one's clock, and by how much that may be off."""

    offset_ns: IntArray
    bound_ns: IntArray  # -1: nothing bounds it


def matched(ranks: Sequence[RankSummary]) -> MatchedCollectives:
    """Match the collectives of all ranks."""
    rows: list[IntArray] = []
    kinds: list[str] = []
    groups: list[ProcessGroup] = []
    unmatched: Counter[str] = Counter()
    missing = 0
    for group, members in _by_group(ranks).items():
        lacking = group.ranks is not None and len(group.ranks) > len(members)
        missing += lacking
        pairs, reason = _of_group(ranks, group, members)
        if len(pairs) and not _feasible(ranks, pairs):
            reason.update({"clocks refute the order": int((pairs >= 0).sum())})
            pairs = pairs[:0]
        unmatched.update(reason)
        rows.extend(pairs)
        groups.extend([group] * len(pairs))
        for row in pairs:
            first = int(np.flatnonzero(row >= 0)[0])
            kinds.append(ranks[first].collectives.kind[int(row[first])])
    at = np.array(rows, np.int64).reshape(len(rows), len(ranks))
    return MatchedCollectives(at, tuple(kinds), tuple(groups), dict(unmatched), missing)


def clocks_of(ranks: Sequence[RankSummary], matches: MatchedCollectives) -> Clocks:
    """Return the offsets of the ranks' clocks: the median of how far their ends lie apart, within what is possible."""
    hard = np.minimum(_hard_bounds(ranks, matches.at[_synchronising(matches)]), _of_one_file(ranks))
    count = len(ranks)
    offset, known = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    known[0] = True
    ends = [rank.start + rank.dur for rank in ranks]
    together = matches.at[_synchronising(matches)]
    frontier = [0]
    while frontier:
        base = frontier.pop(0)
        for rank in np.flatnonzero(~known).tolist():
            both = together[(together[:, base] >= 0) & (together[:, rank] >= 0)]
            apart = ends[base][both[:, base]] - ends[rank][both[:, rank]]
            if ranks[rank].clock is not None and ranks[rank].clock == ranks[base].clock:
                apart = np.zeros(1, np.int64)
            elif not len(both):
                continue
            offset[rank] = offset[base] + int(np.median(apart))
            known[rank] = True
            frontier.append(rank)
    bound = np.full(count, -1, np.int64)
    bound[0] = 0
    closed = _closed(hard)
    for rank in range(1, count):
        high, low = closed[rank, 0], -closed[0, rank]
        if high < _FAR and -low < _FAR:
            offset[rank] = np.clip(offset[rank], low, high) if low <= high else offset[rank]
            bound[rank] = max(high - offset[rank], offset[rank] - low, 0)
    return Clocks(offset, bound)


def _of_one_file(ranks: Sequence[RankSummary]) -> IntArray:
    """Return for ranks r and q the most that r's offset may exceed q's: nothing where one file holds both."""
    clock = [rank.clock for rank in ranks]
    same = [[here is not None and here == there for there in clock] for here in clock]
    return np.where(np.array(same, np.bool_).reshape(len(ranks), len(ranks)), 0, _FAR)


def _by_group(ranks: Sequence[RankSummary]) -> dict[ProcessGroup, list[int]]:
    """Return the groups of ranks that name the same members, or none, with the recorded ranks that name them."""
    place = {rank.rank: at for at, rank in enumerate(ranks)}
    groups: dict[ProcessGroup, list[int]] = defaultdict(list)
    for at, rank in enumerate(ranks):
        for group in rank.collectives.groups:
            key = ProcessGroup(group.ranks, group.size, group.description)
            if group.ranks is None or (place.get(rank.rank) is not None and rank.rank in group.ranks):
                groups[key].append(at)
    return dict(groups)


def _of_group(ranks: Sequence[RankSummary], group: ProcessGroup, members: list[int]) -> tuple[IntArray, Counter[str]]:
    """Return the matches of one group, and how many of its collectives have none, by reason."""
    mine = {at: _members_own(ranks[at].collectives, group, ranks[at]) for at in members}
    reason: Counter[str] = Counter()
    if len(members) < 2:
        reason["other members were not recorded"] += sum(len(rows) for rows in mine.values())
        return np.zeros((0, len(ranks)), np.int64), reason
    paired = {at: [i for i in rows if ranks[at].collectives.kind[i] in PAIRED] for at, rows in mine.items()}
    others = {at: [i for i in rows if ranks[at].collectives.kind[i] not in PAIRED] for at, rows in mine.items()}
    pairs = [*_by_sequence_or_order(ranks, others, reason), *_by_pairs(ranks, paired, reason)]
    return np.array(pairs, np.int64).reshape(len(pairs), len(ranks)), reason


def _members_own(collectives: Collectives, group: ProcessGroup, rank: RankSummary) -> list[int]:
    """Return a rank's collectives of a group, in order of start."""
    at = collectives.groups.index(group)
    rows = np.flatnonzero(collectives.group == at)
    return [int(row) for row in rows[np.argsort(rank.start[rows], kind="stable")]]


def _by_sequence_or_order(
    ranks: Sequence[RankSummary], mine: dict[int, list[int]], reason: Counter[str]
) -> list[IntArray]:
    members = [at for at, rows in mine.items() if rows]
    if len(members) < 2:
        reason["other members have none"] += sum(map(len, mine.values()))
        return []
    numbered = all((ranks[at].collectives.sequence[mine[at]] >= 0).all() for at in members)
    candidates = (_of_equal_number if numbered else _of_equal_place)(ranks, mine, members)
    equal = [
        candidate for candidate in candidates if len({_signature(ranks[at], i) for at, i in candidate.items()}) == 1
    ]
    reason["kind or size differs"] += len(members) * (len(candidates) - len(equal))
    reason["windows begin or end apart"] += sum(len(mine[at]) for at in members) - len(members) * len(candidates)
    return [_row(candidate.items(), len(ranks)) for candidate in equal]


def _of_equal_number(
    ranks: Sequence[RankSummary], mine: dict[int, list[int]], members: list[int]
) -> list[dict[int, int]]:
    """Return the collectives of one number in their group that all members have."""
    keyed = {at: {int(ranks[at].collectives.sequence[i]): i for i in mine[at]} for at in members}
    numbers = set.intersection(*(set(places) for places in keyed.values()))
    return [{at: keyed[at][number] for at in members} for number in sorted(numbers)]


def _of_equal_place(
    ranks: Sequence[RankSummary], mine: dict[int, list[int]], members: list[int]
) -> list[dict[int, int]]:
    """Return the collectives that stand at one place, once it is known by how much each rank is ahead."""
    base = max(members, key=lambda at: len(mine[at]))
    shift = {at: _shift(ranks, base, at, mine) for at in members}
    first = max(-min(shift.values()), 0)
    last = min(len(mine[at]) - shift[at] for at in members)
    return [{at: mine[at][place + shift[at]] for at in members} for place in range(first, last)]


def _row(members: Iterable[tuple[int, int]], count: int) -> IntArray:
    """Return a match as a row: of each rank the place among its own, -1 where it takes no part."""
    row = np.full(count, -1, np.int64)
    for at, i in members:
        row[at] = i
    return row


def _signature(rank: RankSummary, at: int) -> tuple[str, int]:
    """Return what all members of a collective have in common. An all-to-all's sizes differ by rank."""
    kind = rank.collectives.kind[at]
    return kind, -1 if kind == "all_to_all" else int(rank.collectives.nbytes[at])


def _shift(ranks: Sequence[RankSummary], base: int, other: int, mine: dict[int, list[int]]) -> int:
    """Return by how many places a rank's collectives are ahead of another's: where most agree, the least of equals.

    What agrees in kind and size alone may still be another: of shifts that agree as well, one that the clocks allow.
    """
    first, second = ([_signature(ranks[at], i) for i in mine[at]] for at in (base, other))
    agree = {
        shift: sum(a == b for a, b in zip(first[max(-shift, 0) :], second[max(shift, 0) :], strict=False))
        for shift in _SHIFTS
    }
    most = max(agree.values())
    least = min(len(first), len(second)) / 2  # fewer may agree by any clocks
    likely = [shift for shift in _SHIFTS if agree[shift] >= max(most - abs(shift), least, 1)]
    for shift in sorted(likely, key=lambda shift: (-agree[shift], abs(shift))):
        rows = np.full((len(first), len(ranks)), -1, np.int64)
        for place, i in enumerate(mine[base]):
            if 0 <= place + shift < len(second) and first[place] == second[place + shift]:
                rows[place, [base, other]] = i, mine[other][place + shift]
        if _feasible(ranks, rows[(rows >= 0).any(axis=1)]):
            return shift
    return max(_SHIFTS, key=lambda shift: (agree[shift], -abs(shift)))


def _by_pairs(ranks: Sequence[RankSummary], mine: dict[int, list[int]], reason: Counter[str]) -> list[IntArray]:
    """Match sends with receives: the n-th to another rank is its n-th from this one; kernels that pairs join."""
    sent, got = (_parts_by_pair(ranks, mine, kind) for kind in ("send", "recv"))
    joined: dict[_Kernel, _Kernel] = {}

    def root(kernel: _Kernel) -> _Kernel:
        while (above := joined.setdefault(kernel, kernel)) != kernel:
            kernel = above
        return kernel

    for (source, target), sends in sent.items():
        for (i, elements), (k, others) in zip(sends, got.get((source, target), ()), strict=False):
            if elements == others:
                joined[root((source, i))] = root((target, k))
    together: dict[_Kernel, list[_Kernel]] = defaultdict(list)
    for kernel in list(joined):
        together[root(kernel)].append(kernel)
    whole = [kernels for kernels in together.values() if len({at for at, _ in kernels}) == len(kernels) > 1]
    reason["sends and receives without their pair"] += sum(map(len, mine.values())) - sum(map(len, whole))
    return [_row(kernels, len(ranks)) for kernels in whole]


def _parts_by_pair(
    ranks: Sequence[RankSummary], mine: dict[int, list[int]], kind: str
) -> dict[tuple[int, int], list[tuple[int, int | None]]]:
    """Return the sends, or the receives, from each rank to each other, in order: their kernel, and their elements."""
    place = {rank.rank: at for at, rank in enumerate(ranks)}
    pairs: dict[tuple[int, int], list[tuple[int, int | None]]] = defaultdict(list)
    for at, rows in mine.items():
        parts = ((i, part) for i in rows for part in ranks[at].collectives.parts[i])
        for kernel, part in parts:
            peer = None if part.peer is None else place.get(part.peer)
            if peer is not None and part.kind == kind:
                pairs[(at, peer) if kind == "send" else (peer, at)].append((kernel, part.elements))
    return pairs


def _synchronising(matches: MatchedCollectives) -> IntArray:
    return np.flatnonzero([kind in SYNCHRONISING for kind in matches.kind])


def _hard_bounds(ranks: Sequence[RankSummary], at: IntArray) -> IntArray:
    """Return for ranks r and q the most that r's offset may exceed q's: no member ends before the last has started."""
    count = len(ranks)
    bounds = np.full((count, count), _FAR, np.int64)
    for row in at:
        members = np.flatnonzero(row >= 0)
        start = np.array([ranks[m].start[row[m]] for m in members.tolist()])
        end = start + np.array([ranks[m].dur[row[m]] for m in members.tolist()])
        cells = np.ix_(members, members)
        bounds[cells] = np.minimum(bounds[cells], end[None, :] - start[:, None])
    np.fill_diagonal(bounds, 0)
    return bounds


def _closed(bounds: IntArray) -> IntArray:
    """Return the tightest bounds that follow from these: shortest paths (Floyd and Warshall)."""
    tight = bounds.copy()
    for middle in range(len(tight)):
        np.minimum(tight, tight[:, middle, None] + tight[None, middle, :], out=tight)
    return tight


def _feasible(ranks: Sequence[RankSummary], at: IntArray) -> bool:
    """Return whether there are clocks by which all of these may be matches."""
    firsts = [int(np.flatnonzero(row >= 0)[0]) for row in at]
    chosen = [
        row
        for row, first in zip(at, firsts, strict=True)
        if ranks[first].collectives.kind[int(row[first])] in SYNCHRONISING
    ]
    if not chosen:
        return True
    members = np.flatnonzero((np.array(chosen) >= 0).any(axis=0))
    closed = _closed(_hard_bounds(ranks, np.array(chosen))[np.ix_(members, members)])
    return bool((np.diag(closed) >= -_SLACK_NS).all())
