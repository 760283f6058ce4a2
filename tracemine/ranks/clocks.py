"""The clocks of a job's ranks: no member of a collective ends before the last one has started, so each match of
collectives bounds how far they may lie apart, and bounds that contradict each other refute the matches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracemine.ranks.summary import RankSummary
from tracemine.rows.table import BoolArray, FloatArray, IntArray

_SLACK_NS = 5_000  # by which recorded times may contradict each other: whole microseconds, and ends that differ


class MatchBlock(Struct, frozen=True):
    """Collectives with the same members: a row each, a column for each member, the place among the member's own."""

    ranks: IntArray
    at: IntArray
    synchronises: BoolArray  # of each row


class Clocks(Struct, frozen=True):
    """What is added to each rank's times to have them on the first one's clock, and by how much that may be off."""

    offset_ns: IntArray
    bound_ns: IntArray  # -1: nothing bounds it


def clocks_of(ranks: Sequence[RankSummary], blocks: Sequence[MatchBlock]) -> Clocks:
    """Return the offsets of the ranks' clocks: the median of how far their ends lie apart, within what is possible."""
    count = len(ranks)
    offset = _estimates(ranks, blocks)
    origin = np.array([rank.window[0] for rank in ranks], np.int64)
    bounds = np.minimum(_bounds(ranks, blocks, np.arange(count), origin), _of_one_file(ranks, origin))
    high, low = _shortest(bounds, bounds[:, 0])[0], -_shortest(bounds.T, bounds.T[:, 0])[0]
    apart = origin[0] - origin
    bound = np.full(count, -1, np.int64)
    bound[0] = 0
    for rank in np.flatnonzero(np.isfinite(high) & np.isfinite(low)).tolist()[1:]:
        most, least = int(high[rank]) + int(apart[rank]), int(low[rank]) + int(apart[rank])
        offset[rank] = min(max(int(offset[rank]), least), most) if least <= most else offset[rank]
        bound[rank] = max(most - int(offset[rank]), int(offset[rank]) - least, 0)
    return Clocks(offset, bound)


def is_refuted(ranks: Sequence[RankSummary], blocks: Sequence[MatchBlock]) -> bool:
    """Return whether there are no clocks by which all of these may be matches: a circle of bounds below zero."""
    members = np.unique(np.concatenate([block.ranks for block in blocks]))
    firsts = {at: block for block in reversed(blocks) for at in block.ranks.tolist()}
    first = [(at, int(firsts[at].at[0, int(np.flatnonzero(firsts[at].ranks == at)[0])])) for at in members.tolist()]
    bounds = _bounds(ranks, blocks, members, np.array([ranks[at].start[i] for at, i in first], np.int64))
    off = bounds + _SLACK_NS / 2  # two of them are a circle
    np.fill_diagonal(off, 0)
    return not _shortest(off, np.zeros(len(members)))[1]


def _estimates(ranks: Sequence[RankSummary], blocks: Sequence[MatchBlock]) -> IntArray:
    """Return how far each rank's ends lie behind the first one's; by way of others where they share none."""
    ends = [rank.start + rank.dur for rank in ranks]
    of: dict[int, list[tuple[MatchBlock, int]]] = {}
    for block in blocks:
        for column, at in enumerate(block.ranks.tolist()):
            of.setdefault(at, []).append((block, column))
    offset, known, frontier = np.zeros(len(ranks), np.int64), {0}, [0]
    while frontier:
        base = frontier.pop(0)
        apart: dict[int, list[IntArray]] = {}
        for block, column in of.get(base, ()):
            rows = block.at[block.synchronises]
            for other, at in enumerate(block.ranks.tolist()):
                if at not in known and len(rows):
                    apart.setdefault(at, []).append(ends[base][rows[:, column]] - ends[at][rows[:, other]])
        shared = [at for at, rank in enumerate(ranks) if rank.clock is not None and rank.clock == ranks[base].clock]
        apart |= {at: [np.zeros(1, np.int64)] for at in shared if at not in known}
        for at, times in sorted(apart.items()):
            offset[at] = offset[base] + int(np.median(np.concatenate(times)))
            known.add(at)
            frontier.append(at)
    return offset


def _of_one_file(ranks: Sequence[RankSummary], origin: IntArray) -> FloatArray:
    """Return for ranks r and q the most that r's offset may exceed q's: nothing where one file holds both."""
    names = np.array([rank.clock or "" for rank in ranks])
    shared = (names[:, None] == names[None, :]) & (names != "")[:, None]
    return np.where(shared, (origin[:, None] - origin[None, :]).astype(float), np.inf)


def _bounds(
    ranks: Sequence[RankSummary], blocks: Sequence[MatchBlock], members: IntArray, origin: IntArray
) -> FloatArray:
    """Return for members r and q the most that r's offset may exceed q's, once their clocks begin at their origins."""
    bounds = np.full((len(members), len(members)), np.inf)
    for block in blocks:
        rows = block.at[block.synchronises]
        if not len(rows):
            continue
        place = np.searchsorted(members, block.ranks)
        columns = list(zip(block.ranks.tolist(), place.tolist(), strict=True))
        start = np.stack([ranks[at].start[rows[:, n]] - origin[p] for n, (at, p) in enumerate(columns)], axis=1)
        dur = np.stack([ranks[at].dur[rows[:, n]] for n, (at, _) in enumerate(columns)], axis=1)
        begin, end = start.astype(float), (start + dur).astype(float)
        tight = np.stack([(end - begin[:, [n]]).min(axis=0) for n in range(len(columns))])
        cells = np.ix_(place, place)
        bounds[cells] = np.minimum(bounds[cells], tight)
    np.fill_diagonal(bounds, 0)
    return bounds


def _shortest(bounds: FloatArray, distance: FloatArray) -> tuple[FloatArray, bool]:
    """Return the most that each offset may exceed a common origin, from the distances to it that are known: shortest
    paths; and whether there is no circle of bounds below zero.
    """
    for _ in range(len(bounds) + 1):
        shorter = np.minimum(distance, (bounds + distance[None, :]).min(axis=1))
        if (shorter == distance).all():
            return distance, True
        distance = shorter
    return distance, False
