"""Loops whose products are independent: the same operators on the same shapes, a product among them.

A loop is a stretch of a stream in which up to 16 operators repeat, eight times or more. It counts where no product of
an iteration reads, by any path within the loop, what another one wrote: then one call on all of it gives the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from tracemine.calls import DTYPES, NAME, SHAPES, Call, calls_of
from tracemine.columns import codes, unique_pairs
from tracemine.patterns import deferred
from tracemine.rows.ancestors import nearest
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import BoolArray, IntArray, Rows, category, number
from tracemine.timeline import Timeline

_LONGEST_PERIOD, _LEAST_TURNS = 16, 8
_LONGEST_PERIOD_WITH_STATE, _LEAST_TURNS_WITH_STATE = 32, 16
_MOST_TRIED: Final = 4_096  # stretches, a millisecond each at most where they are none
_MOST_TRIED_WITH_STATE: Final = 256
_CHECKPOINTS: Final = deferred(r"(^|[/\\])torch[/\\]utils[/\\]checkpoint\.py$")


def repeating(code: IntArray, place: IntArray, period: int, least_turns: int) -> list[tuple[int, int]]:
    """Return stretches in which each entry is as the one a period before it, of so many iterations or more.

    >>> repeating(np.array([5, 1, 2, 1, 2, 1, 2, 7]), np.zeros(8), 2, 3)
    [(1, 7)]
    """
    if len(code) <= period:
        return []
    same = (code[period:] == code[:-period]) & (place[period:] == place[:-period])
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False])).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2] + period
    long = ends - begins >= least_turns * period
    return list(zip(begins[long].tolist(), ends[long].tolist(), strict=True))


def left_of(taken: IntArray, begin: int, end: int) -> tuple[int, int]:
    """Return what is left of a stretch whose ends other loops have, which begin or end with the same operators.

    >>> left_of(np.array([0, 0, -1, -1, 1]), 1, 5), left_of(np.array([-1, 0, -1]), 0, 3)
    ((2, 4), (0, 0))
    """
    free = np.flatnonzero(taken[begin:end] < 0) + begin
    if not len(free) or free[-1] - free[0] >= len(free):
        return begin, begin
    return int(free[0]), int(free[-1]) + 1


def checkpointed(timeline: Timeline) -> BoolArray:
    """Return, for each row of `ops` and for −1, whether a backward pass computes it again, which saves memory: loops of
    that are split to need no more at once.
    """
    stacks = timeline.stacks
    within = nearest(rows_of(stacks["parent_row"]), categories(stacks["file"]).that(_CHECKPOINTS.search)) >= 0
    return np.append(np.append(within, False)[rows_of(timeline.ops["stack_row"])], False)


class ProductLoop(Struct, frozen=True):
    """Nodes begin to end, `period` of them an iteration; `own[i]`: the i-th of one needs nothing of another."""

    begin: int
    end: int
    period: int
    own: BoolArray


def loops_of_products(timeline: Timeline, activities: Rows) -> Iterator[tuple[ProductLoop, IntArray]]:
    """Yield loops with a product in each iteration, and which activities are of those that need no other iteration."""
    graph = activities.graph
    for loop in () if graph is None or not len(graph.activity) else _Nodes(timeline, activities, graph).loops():
        assert graph is not None  # noqa: S101 - else there is no loop
        node = np.arange(loop.begin, loop.end)
        node = node[loop.own[(node - loop.begin) % loop.period]]
        begin, end = graph.activity_begin[node], graph.activity_begin[node + 1]
        rows = [graph.activity[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)]
        yield loop, np.concatenate(rows)


def loops_with_state(timeline: Timeline, activities: Rows) -> Iterator[ProductLoop]:
    """Yield loops of which each iteration needs what the one before computed; `own` tells the operators that do not."""
    graph = activities.graph
    if graph is not None and len(graph.activity):
        yield from _Nodes(timeline, activities, graph).with_state()


class _Nodes:
    """Nodes of a graph: what each calls, and where it runs."""

    def __init__(self, timeline: Timeline, activities: Rows, graph: NodeGraph) -> None:
        first = graph.first_activity
        op_row = rows_of(timeline.activities["op_row"])[first]
        calls = calls_of(timeline)
        self.place = codes(*(number(activities, name, -1)[first] for name in ("device", "stream", "segment")))
        # What is not known repeats nothing.
        blank = ~graph.told | (graph.activity_begin[1:] == graph.activity_begin[:-1])
        # Nor does a copy that the host may have waited for.
        self.code = calls.alike(op_row, NAME, SHAPES, DTYPES)
        kind = category(activities, "copy_kind")
        between = np.array([*(value in ("HtoD", "DtoH") for value in kind.values), False], np.bool_)
        blank |= between[kind.codes[first]]
        blank |= ~calls.spread(op_row, lambda call: call.shapes is not None, False, np.bool_)
        # Of these no iteration may need what another computed.
        self.apart: BoolArray = calls.spread(op_row, _is_product, False, np.bool_) & ~checkpointed(timeline)[op_row]
        self.code[blank] = -1 - np.flatnonzero(blank)
        self.in_step: BoolArray = number(activities, "segment", -1)[first] > 0
        self._graph = graph

    def loops(self) -> Iterator[ProductLoop]:
        """Yield the loops, those of few operators an iteration first."""
        if not self.apart.any():
            return
        taken, tried = np.zeros(len(self._graph), np.bool_), 0
        for period in range(1, _LONGEST_PERIOD + 1):
            for begin, end in repeating(self.code, self.place, period, _LEAST_TURNS):
                if taken[begin:end].any() or not self.apart[begin:end].any():
                    continue
                tried += 1
                loop = self.loop(begin, end, period) if tried <= _MOST_TRIED else None
                if loop is not None:
                    taken[loop.begin : loop.end] = True
                    yield loop

    def loop(self, begin: int, end: int, period: int) -> ProductLoop | None:
        """Return the loop of a stretch, wherever its first iteration begins; None where it is none."""
        for first in range(begin, begin + period):
            turns = (end - first) // period
            last = first + turns * period
            # A recurrence shows in its first iterations.
            if turns < _LEAST_TURNS or self._alone(first, first + _LEAST_TURNS * period, period) is None:
                continue
            own = self._alone(first, last, period)
            if own is not None and (self.in_step[first] or self._together(first, last, period, own)):
                return ProductLoop(first, last, period, own)
        return None

    def with_state(self) -> Iterator[ProductLoop]:
        """Yield the loops whose iterations need each other, those of few operators an iteration first."""
        taken, tried = np.zeros(len(self._graph), np.bool_), 0
        for period in range(1, _LONGEST_PERIOD_WITH_STATE + 1):
            for begin, end in repeating(self.code, self.place, period, _LEAST_TURNS_WITH_STATE):
                if taken[begin:end].any() or tried >= _MOST_TRIED_WITH_STATE:
                    continue
                tried += 1
                # Wherever an iteration is cut, that leaves most of it needing none before.
                cuts = [(at, at + (end - at) // period * period) for at in range(begin, begin + period)]
                loops = [ProductLoop(at, last, period, self._own(at, last, period)) for at, last in cuts if last > at]
                loop = max(loops, key=lambda one: int(one.own.sum()))
                if not loop.own.all():
                    taken[begin:end] = True
                    yield loop

    def _alone(self, begin: int, end: int, period: int) -> BoolArray | None:
        """Return which operators of an iteration need nothing of others; None where one does that may not."""
        own = self._own(begin, end, period)
        apart = self.apart[begin : begin + period]
        return own if own[apart].all() else None

    def _own(self, begin: int, end: int, period: int) -> BoolArray:
        """Return which operators of an iteration need nothing of others."""
        edges = self._graph
        span = slice(*np.searchsorted(edges.consumer, [begin, end]).tolist())
        reader, writer = edges.consumer[span], edges.producer[span]
        inside = writer >= begin
        reader, writer = reader[inside] - begin, writer[inside] - begin
        other = reader // period != writer // period
        tainted = np.zeros(end - begin, np.bool_)
        tainted[reader[other]] = True
        for _ in range(period):
            tainted[reader[~other & tainted[writer]]] = True
        own: BoolArray = tainted.reshape(-1, period).sum(axis=0) == 0
        return own

    def _together(self, begin: int, end: int, period: int, own: BoolArray) -> bool:
        """Return whether something reads what two iterations or more wrote.

        Outside of steps a program may run the same again and again: nothing else tells such runs from a loop.
        """
        reader, writer = self._graph.consumer, self._graph.producer
        chosen = (writer >= begin) & (writer < end)
        reader, writer = reader[chosen], writer[chosen] - begin
        within = reader < end
        outside = ~within | ~own[(reader - begin) % period]
        pairs = unique_pairs(reader[outside], writer[outside] // period)
        return bool(len(pairs[0])) and int(np.unique(pairs[0], return_counts=True)[1].max()) > 1


def _is_product(call: Call) -> bool:
    return call.operator is not None and call.operator.op_class == "gemm"
