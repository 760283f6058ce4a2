"""Which collectives of the ranks are one and the same: by their number where it is recorded, else by order, and proved.

A wrong match is worse than none: what differs in kind or size is dropped, and a group whose matches no clocks allow is
left out as a whole. No member of a collective ends before the last one has started, so each match bounds the offsets of
the clocks; bounds that contradict each other refute the matches.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from tracemine.ops.collectives import PAIRED, SYNCHRONISING
from tracemine.ranks.clocks import MatchBlock, is_refuted
from tracemine.ranks.collectives import Collectives, ProcessGroup
from tracemine.ranks.summary import RankSummary
from tracemine.rows.table import IntArray

_MOST_APART = 8  # collectives by which windows may begin apart, besides what one has more
_Kernel: TypeAlias = tuple[int, int]  # place of its rank, and of it among the rank's own


class MatchedCollectives(Struct, frozen=True):
    """Collectives that were matched.

    unmatched: how many collectives are in no match, by reason. missing: groups of which members were not recorded.
    """

    blocks: tuple[MatchBlock, ...]
    unmatched: dict[str, int]
    missing: int

    def __len__(self) -> int:
        return sum(len(block.at) for block in self.blocks)


def matched(ranks: Sequence[RankSummary]) -> MatchedCollectives:
    """Match the collectives of all ranks."""
    blocks: list[MatchBlock] = []
    unmatched: Counter[str] = Counter()
    missing = 0
    signs = _signatures(ranks)
    for group, members in _by_group(ranks).items():
        missing += group.ranks is not None and len(group.ranks) > len(members)
        found, reason = _of_group(ranks, group, members, signs)
        if found and is_refuted(ranks, found):
            reason.update({"clocks refute the order": sum(block.at.size for block in found)})
            found = []
        unmatched.update(reason)
        blocks.extend(found)
    return MatchedCollectives(tuple(blocks), dict(unmatched), missing)


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


def _signatures(ranks: Sequence[RankSummary]) -> list[IntArray]:
    """Return a number for what all members of a collective have in common: kind and size; of an all-to-all the kind
    alone.
    """
    known: dict[tuple[str, int], int] = {}
    found = []
    for rank in ranks:
        keys = zip(rank.collectives.kind, rank.collectives.nbytes.tolist(), strict=True)
        equal = ((kind, -1 if kind == "all_to_all" else nbytes) for kind, nbytes in keys)
        found.append(np.array([known.setdefault(key, len(known)) for key in equal], np.int64))
    return found


def _of_group(
    ranks: Sequence[RankSummary], group: ProcessGroup, members: list[int], signs: list[IntArray]
) -> tuple[list[MatchBlock], Counter[str]]:
    """Return the matches of one group, and how many of its collectives have none, by reason."""
    mine = {at: _members_own(ranks[at].collectives, group, ranks[at]) for at in members}
    reason: Counter[str] = Counter()
    if len(members) < 2:
        reason["other members were not recorded"] += sum(len(rows) for rows in mine.values())
        return [], reason
    paired = {at: np.isin(np.array(ranks[at].collectives.kind)[rows], list(PAIRED)) for at, rows in mine.items()}
    others = {at: rows[~paired[at]] for at, rows in mine.items()}
    sends = {at: rows[paired[at]].tolist() for at, rows in mine.items()}
    return [*_by_sequence_or_order(ranks, others, signs, reason), *_by_pairs(ranks, sends, reason)], reason


def _members_own(collectives: Collectives, group: ProcessGroup, rank: RankSummary) -> IntArray:
    """Return a rank's collectives of a group, in order of start."""
    rows = np.flatnonzero(collectives.group == collectives.groups.index(group))
    return rows[np.argsort(rank.start[rows], kind="stable")]


def _by_sequence_or_order(
    ranks: Sequence[RankSummary], mine: dict[int, IntArray], signs: list[IntArray], reason: Counter[str]
) -> Iterator[MatchBlock]:
    members = [at for at, rows in mine.items() if len(rows)]
    if len(members) < 2:
        reason["other members have none"] += sum(map(len, mine.values()))
        return
    numbered = all((ranks[at].collectives.sequence[mine[at]] >= 0).all() for at in members)
    rows = _of_equal_number(ranks, mine, members) if numbered else _of_equal_place(ranks, mine, members, signs)
    sign = np.stack([signs[at][rows[:, column]] for column, at in enumerate(members)], axis=1)
    equal = rows[(sign == sign[:, :1]).all(axis=1)]
    reason["kind or size differs"] += rows.size - equal.size
    reason["windows begin or end apart"] += sum(len(mine[at]) for at in members) - rows.size
    if len(equal):
        kinds = [ranks[members[0]].collectives.kind[i] for i in equal[:, 0].tolist()]
        yield MatchBlock(np.array(members), equal, np.array([kind in SYNCHRONISING for kind in kinds]))


def _of_equal_number(ranks: Sequence[RankSummary], mine: dict[int, IntArray], members: list[int]) -> IntArray:
    """Return the collectives of one number in their group that all members have."""
    keyed = [
        dict(zip(ranks[at].collectives.sequence[mine[at]].tolist(), mine[at].tolist(), strict=True)) for at in members
    ]
    numbers = sorted(set.intersection(*map(set, keyed)))
    return np.array([[own[number] for own in keyed] for number in numbers], np.int64).reshape(-1, len(members))


def _of_equal_place(
    ranks: Sequence[RankSummary], mine: dict[int, IntArray], members: list[int], signs: list[IntArray]
) -> IntArray:
    """Return the collectives that stand at one place, once it is known by how much each rank is ahead."""
    base = max(members, key=lambda at: len(mine[at]))
    shift = {at: _shift(ranks, base, at, mine, signs) for at in members}
    first = max(-min(shift.values()), 0)
    last = max(min(len(mine[at]) - shift[at] for at in members), first)
    return np.stack([mine[at][first + shift[at] : last + shift[at]] for at in members], axis=1)


def _shift(
    ranks: Sequence[RankSummary], base: int, other: int, mine: dict[int, IntArray], signs: list[IntArray]
) -> int:
    """Return by how many places a rank's collectives are ahead of another's: where most agree, the least of equals.

    What agrees in kind and size alone may still be another: of shifts that agree as well, one by which most are of
    steps of one number, and that the clocks allow.
    """
    first, second = (signs[at][mine[at]] for at in (base, other))
    steps = [np.append(ranks[at].numbers, -1)[ranks[at].step[mine[at]]] for at in (base, other)]

    def overlap(shift: int) -> tuple[IntArray, IntArray]:
        """Return the places of both that a shift puts together and that agree."""
        ours = np.arange(max(-shift, 0), min(len(first), len(second) - shift))
        ours = ours[first[ours] == second[ours + shift]]
        return ours, ours + shift

    def same_step(shift: int) -> int:
        ours, theirs = (of[at] for of, at in zip(steps, overlap(shift), strict=True))
        return int(((ours == theirs) & (ours >= 0)).sum())

    def is_allowed(shift: int) -> bool:
        ours, theirs = overlap(shift)
        rows = np.stack((mine[base][ours], mine[other][theirs]), axis=1)
        kinds = [ranks[base].collectives.kind[i] for i in rows[:, 0].tolist()]
        block = MatchBlock(np.array([base, other]), rows, np.array([kind in SYNCHRONISING for kind in kinds], np.bool_))
        return not is_refuted(ranks, [block])

    usual = len(first) == len(second) and (first == second).all() and 2 * same_step(0) >= (steps[0] >= 0).sum()
    if usual and is_allowed(0):
        return 0
    apart = max(min(len(first), len(second)) // 2, abs(len(first) - len(second)) + _MOST_APART)
    agree = {shift: len(overlap(shift)[0]) for shift in range(-apart, apart + 1)}
    most = max(agree.values())
    least = min(len(first), len(second)) / 2  # fewer may agree by any clocks
    likely = [shift for shift in agree if agree[shift] >= max(most - abs(shift), least, 1)]
    ordered = sorted(likely, key=lambda shift: (-agree[shift], -same_step(shift), abs(shift), shift))
    allowed = next((shift for shift in ordered if is_allowed(shift)), None)
    return max(agree, key=lambda shift: (agree[shift], -abs(shift))) if allowed is None else allowed


def _by_pairs(ranks: Sequence[RankSummary], mine: dict[int, list[int]], reason: Counter[str]) -> list[MatchBlock]:
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
    by_members: dict[tuple[int, ...], list[list[int]]] = defaultdict(list)
    for kernels in whole:
        members, rows = zip(*sorted(kernels), strict=True)
        by_members[members].append(list(rows))
    return [
        MatchBlock(np.array(members), np.array(rows, np.int64), np.zeros(len(rows), np.bool_))
        for members, rows in by_members.items()
    ]


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
