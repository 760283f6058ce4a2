"""Loops with a state: which activities are part of a recurrence, and as what, and which are products of inputs alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from tracemine.causes.recurrence_unfused.cells import CELLS, KINDS, PRODUCTS, Turn, kind_of, one_weight
from tracemine.columns import sorted_unique
from tracemine.rows.arrow import coded
from tracemine.rows.graph import NodeGraph
from tracemine.rows.loops import ProductLoop, loops_with_state
from tracemine.rows.table import Column, ColumnDoc, Columns, IntArray, Numbers, Rows, Sources, category

PARTS: Final = ("product", "projection", "rest")
_ONE_WEIGHT: Final = frozenset({"mm", "addmm", "_addmm_activation"})  # a batched product has a weight an entry


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    number, kind, part, projection = np.full((4, activities.count), -1)
    turns, graph = np.zeros((2, activities.count), np.int64), activities.graph
    loops = [] if graph is None else list(loops_with_state(sources.timeline, activities))
    if graph is not None and loops:
        operation = category(activities, "operation")
        each = [Turn.of(graph, loop, operation) for loop in loops]
        summed = category(activities, "loop_dependence").among("accumulates")  # no product has to wait there
        for turn in each:
            for slot in np.flatnonzero(turn.loop.own).tolist():
                if turn.operations[slot] not in _ONE_WEIGHT or not one_weight(graph, turn.loop, slot):
                    continue
                rows = _activities(graph, np.arange(turn.loop.begin + slot, turn.loop.end, turn.loop.period))
                if summed[rows].any():
                    continue
                projection[rows] = turn.loop.begin + slot
                turns[1, rows] = (turn.loop.end - turn.loop.begin) // turn.loop.period
        for loop, name, parts in _recurrences(graph, each):
            node = np.arange(loop.begin, loop.end)
            node = node if name in CELLS else node[projection[graph.first_activity[node]] < 0]  # no scan's work
            every = _activities(graph, node)
            turns[0, every] = (loop.end - loop.begin) // loop.period
            number[every], kind[every] = loop.begin, KINDS.index(name)
            count = np.diff(graph.activity_begin)[node]
            part[every] = np.repeat(parts[(node - loop.begin) % loop.period], count)
    return {
        "recurrence": Numbers(np.maximum(number, 0), number >= 0),
        "recurrence_turns": Numbers(turns[0], number >= 0),
        "recurrence_kind": coded(KINDS, kind),
        "recurrence_part": coded(PARTS, part),
        "projection_of": Numbers(np.maximum(projection, 0), projection >= 0),
        "projection_turns": Numbers(turns[1], projection >= 0),
    }


def _activities(graph: NodeGraph, nodes: IntArray) -> IntArray:
    begin, end = graph.activity_begin[nodes], graph.activity_begin[nodes + 1]
    return np.concatenate([graph.activity[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)])


def _recurrences(graph: NodeGraph, turns: Sequence[Turn]) -> Iterator[tuple[ProductLoop, str, IntArray]]:
    """Yield the loops that are one, of which kind, and the part of each operator of an iteration."""
    kinds = [kind_of(graph, turn) for turn in turns]
    cells = [(turn.loop, kind) for turn, kind in zip(turns, kinds, strict=True) if kind in CELLS]
    for turn, kind in zip(turns, kinds, strict=True):
        if kind is None:  # the backward pass of a cell goes with it
            of = {name for loop, name in cells if _differentiates(graph, turn.loop, loop)}
            kind = of.pop() if len(of) == 1 else None
        if kind is not None:
            product = np.array([each in PRODUCTS for each in turn.operations])
            yield turn.loop, kind, np.where(product & turn.carried(), 0, np.where(product, 1, 2))


def _differentiates(graph: NodeGraph, loop: ProductLoop, forward: ProductLoop) -> bool:
    """Return whether a loop is a backward pass' and reads what most iterations of a forward loop computed."""
    if loop.begin not in graph.backward or loop.begin < forward.end:
        return False
    span = slice(*np.searchsorted(graph.consumer, [loop.begin, loop.end]).tolist())
    writer = graph.producer[span]
    writer = writer[(writer >= forward.begin) & (writer < forward.end)]
    return 2 * len(sorted_unique((writer - forward.begin) // forward.period)) > (loop.end - loop.begin) // loop.period


_NONE: Final = "in no such loop, shapes were not recorded, or dataflow is not known"
COLUMNS = Columns(
    docs=(
        ColumnDoc("recurrence", "numbers", "which recurrence it is part of: operators that repeat 16 times or more on one stream with the same shapes, each time on what the time before left, and compute the cell of an LSTM, GRU or RNN or scale, multiply and add to a state; or the backward pass of such a cell", _NONE),
        ColumnDoc("recurrence_turns", "numbers", "how many iterations that has", _NONE),
        ColumnDoc("recurrence_kind", "categories", "what it computes, one of " + ", ".join(f"`{kind}`" for kind in KINDS), _NONE),
        ColumnDoc("recurrence_part", "categories", "`product`: a product on the way from one state to the next; `projection`: another product; `rest`", _NONE),
        ColumnDoc("projection_of", "numbers", "which products it is one of, that a loop makes with one weight, each of an input of its own, in iterations that need each other: these products need none of them", "no such product, shapes were not recorded, or dataflow is not known"),
        ColumnDoc("projection_turns", "numbers", "how many iterations that loop has", "no such product"),
    ),
    derive=_columns,
)  # fmt: skip
