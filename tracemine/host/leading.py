"""Which thread's events count at each moment of a step.

The thread that carries the step counts. Where it is in no call, another thread that launches counts for as long as it
is in one: a backward pass runs on a thread of autograd's own, which the step's thread waits for. Between two nodes of
a backward pass autograd's engine is at work, and what it does counts for the node that follows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracemine.columns import sorted_unique
from tracemine.rows.table import BoolArray, IntArray

_MOST_ROUNDS = 10_000  # real traces take some twenty


class Segments(Struct, frozen=True):
    """Stretches of threads in which one event is the innermost: in order of thread and time, without holes between a
    thread's first event and its last. Rows of events; −1: none.
    """

    thread: IntArray
    begin: IntArray
    end: IntArray
    event: IntArray
    before: IntArray  # the event that begins or ends where the segment begins
    after: IntArray  # the event that begins or ends where it ends

    def of(self, chosen: BoolArray | IntArray) -> Segments:
        """Return some of them."""
        return Segments(*(getattr(self, name)[chosen] for name in self.__struct_fields__))


def innermost(begin: IntArray, end: IntArray, thread: IntArray) -> Segments:
    """Return which event is the innermost at each moment: the last to begin of those that have not ended.

    `thread`: a small number from 0 on.

    >>> found = innermost(np.array([0, 2, 20]), np.array([10, 5, 30]), np.array([0, 0, 0]))
    >>> found.begin.tolist(), found.end.tolist(), found.event.tolist()
    ([0, 2, 5, 10, 20], [2, 5, 10, 20, 30], [0, 1, 0, -1, 2])
    """
    rows = np.lexsort((begin - end, begin, thread))  # thread by thread, each in order of time, the longer first
    begin, end, thread = begin[rows], end[rows], thread[rows]
    parent = _around(end, thread)
    count = len(rows)
    time, of = np.concatenate((end, begin)), np.concatenate((np.arange(count), np.arange(count)))
    order = np.lexsort((time, thread[of]))
    time, of, begins = time[order], of[order], order >= count
    begun = np.cumsum(begins) - 1  # events stand in this order, so that is the last one to have begun
    last = np.append((time[1:] != time[:-1]) | (thread[of[1:]] != thread[of[:-1]]), True)[: len(time)]
    moment, event, at = time[last], begun[last], of[last]
    ended = np.flatnonzero(end[event] <= moment)
    while len(ended):
        event[ended] = parent[event[ended]]
        ended = ended[event[ended] >= 0]
        ended = ended[end[event[ended]] <= moment[ended]]
    same = np.flatnonzero(thread[at[1:]] == thread[at[:-1]])
    owner = np.where(event >= 0, np.append(rows, -1)[event], -1)
    return Segments(thread[at[same]], moment[same], moment[same + 1], owner[same], rows[at[same]], rows[at[same + 1]])


def _around(end: IntArray, thread: IntArray) -> IntArray:
    """Return for each event the last one before it on its thread that ends no earlier, −1: none.

    All jump left at once, and each jump passes only over what ends earlier: runs of siblings take log(n) rounds.
    """
    around = np.arange(-1, len(end) - 1)
    around[np.append(True, thread[1:] != thread[:-1])[: len(end)]] = -1
    ends = np.append(end, np.iinfo(np.int64).max)
    left = np.flatnonzero(ends[around] < end)
    for _ in range(_MOST_ROUNDS):
        if not len(left):
            return around
        around[left] = around[around[left]]
        left = left[ends[around[left]] < end[left]]
    around[left] = -1
    return around


_MOST_HELPERS = 8  # threads other than the step's own; those that launch most


class Pieces(Struct, frozen=True):
    """Stretches of steps, in order of time, without holes within a step. Rows of events; −1: none."""

    begin: IntArray
    end: IntArray
    step: IntArray
    thread: IntArray
    event: IntArray
    before: IntArray  # the event of the step's thread that begins or ends where this begins, or earlier
    after: IntArray
    engine: BoolArray  # between two nodes of a backward pass

    def of(self, chosen: BoolArray | IntArray) -> Pieces:
        """Return some of them."""
        return Pieces(*(getattr(self, name)[chosen] for name in self.__struct_fields__))


# A thread that launches other than the step's own: what it does in calls, and whether it runs a backward pass.
Helper = tuple[Segments, bool]


def joined(parts: Sequence[Pieces]) -> Pieces:
    """Return all pieces as one record."""
    return Pieces(*(np.concatenate([getattr(part, name) for part in parts]) for name in Pieces.__struct_fields__))


def own_pieces(begin: IntArray, end: IntArray, step: IntArray, thread: int, segments: Segments) -> Pieces:
    """Return the pieces of steps, disjoint and in order, on the thread that carries them, whose segments are given."""
    bounds = sorted_unique(np.concatenate((begin, end, segments.begin, segments.end)))
    since, until = bounds[:-1], bounds[1:]
    at = np.searchsorted(begin, since, side="right") - 1
    inside = (at >= 0) & (since < end[at])
    since, until, at = since[inside], until[inside], at[inside]
    of = _holding(segments, since)
    event, before, after = (np.append(each, -1)[of] for each in (segments.event, segments.before, segments.after))
    count = len(since)
    if len(segments.begin):
        before[(of < 0) & (since >= segments.end[-1])] = segments.after[-1]
        after[(of < 0) & (since < segments.begin[0])] = segments.before[0]
    return Pieces(since, until, step[at], np.full(count, thread), event, before, after, np.zeros(count, np.bool_))


def _holding(segments: Segments, moment: IntArray) -> IntArray:
    """Return the segment of one thread that holds each moment, −1: none."""
    if not len(segments.begin):
        return np.full(len(moment), -1)
    at = np.searchsorted(segments.begin, moment, side="right") - 1
    return np.where((at >= 0) & (moment < segments.end[at]), at, -1)


def helped(pieces: Pieces, helpers: Sequence[Helper], in_call: BoolArray) -> Pieces:
    """Return pieces of which helpers' calls fill what lies in no call. in_call: of each event whether it is one."""
    for helper in helpers[:_MOST_HELPERS]:
        pieces = _helped(pieces, helper, np.append(in_call, False))
    return pieces


def _helped(pieces: Pieces, helper: Helper, in_call: BoolArray) -> Pieces:
    segments, differentiates = helper
    open_ = ~in_call[pieces.event] & ~pieces.engine
    if not len(segments.begin) or not open_.any():
        return pieces
    inner = np.concatenate((segments.begin, segments.end))
    place = np.searchsorted(pieces.begin, inner, side="right") - 1
    within = (place >= 0) & open_[place] & (inner < pieces.end[place]) & (inner > pieces.begin[place])
    begin = sorted_unique(np.concatenate((pieces.begin, inner[within])))
    of = np.searchsorted(pieces.begin, begin, side="right") - 1
    finer = pieces.of(of)
    follows = np.append(of[1:] == of[:-1], False)
    finer = replace(finer, begin=begin, end=np.where(follows, np.append(begin[1:], 0), finer.end))
    holding = _holding(segments, begin)
    fills = open_[of] & (holding >= 0)
    event = np.where(fills, segments.event[holding], finer.event)
    engine = finer.engine
    if differentiates:
        following, between = _between(fills, of)
        between &= open_[of]
        event = np.where(between, event[following], event)
        engine = engine | between
        fills = fills | between
    thread = np.where(fills, segments.thread[0], finer.thread)
    return replace(finer, event=event, engine=engine, thread=thread)


def _between(filled: BoolArray, group: IntArray) -> tuple[IntArray, BoolArray]:
    """Return the next filled row of each row, and whether it lies between two of its group and is none itself."""
    rows = np.arange(len(filled))
    previous = np.maximum.accumulate(np.where(filled, rows, -1))
    following = np.minimum.accumulate(np.where(filled, rows, len(filled))[::-1])[::-1]
    inside = ~filled & (previous >= 0) & (following < len(filled))
    following = np.minimum(following, len(filled) - 1)
    inside &= (group[previous] == group) & (group[following] == group)
    return following, inside
