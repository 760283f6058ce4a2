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
from tracemine.host.nested import Segments
from tracemine.rows.table import BoolArray, IntArray

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
