"""Recurrences whose operators are called anew in each iteration: which activities are part of one, and as what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from tracemine.causes.recurrence_unfused.cells import CELLS, KINDS, PRODUCTS, Turn, kind_of
from tracemine.rows.arrow import coded
from tracemine.rows.graph import NodeGraph
from tracemine.rows.loops import Loop, loops_with_state
from tracemine.rows.table import BoolArray, Column, ColumnDoc, Columns, IntArray, Numbers, Rows, Sources, category

PARTS: Final = ("product", "projection", "rest")


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    number, kind, part = np.full((3, activities.count), -1)
    turns, graph = np.zeros(activities.count, np.int64), activities.graph
    for loop, name, parts in () if graph is None else _recurrences(sources, activities, graph):
        assert graph is not None  # noqa: S101 - else there is none
        node = np.arange(loop.begin, loop.end)
        rows = [graph.activity[graph.activity_begin[at] : graph.activity_begin[at + 1]] for at in node.tolist()]
        every = np.concatenate(rows)
        number[every], kind[every], turns[every] = loop.begin, KINDS.index(name), len(node) // loop.period
        part[every] = np.repeat(parts[(node - loop.begin) % loop.period], [len(each) for each in rows])
    return {
        "recurrence": Numbers(np.maximum(number, 0), number >= 0),
        "recurrence_turns": Numbers(turns, number >= 0),
        "recurrence_kind": coded(KINDS, kind),
        "recurrence_part": coded(PARTS, part),
    }


def _recurrences(sources: Sources, activities: Rows, graph: NodeGraph) -> Iterator[tuple[Loop, str, IntArray]]:
    """Yield the loops that are one, of which kind, and the part of each operator of an iteration."""
    found: list[tuple[Loop, str]] = []
    left: list[Turn] = []
    operation = category(activities, "operation")
    for loop in loops_with_state(sources.timeline, activities):
        code = operation.codes[graph.first_activity[loop.begin : loop.begin + loop.period]].tolist()
        turn = Turn.of(graph, loop, ["" if at < 0 else operation.values[at] for at in code])
        kind = kind_of(graph, turn)
        if kind is None:
            left.append(turn)
            continue
        found.append((loop, kind))
        yield loop, kind, _parts(turn, turn.carried())
    for turn in left:  # the backward pass of a cell goes with it
        of = [kind for loop, kind in found if kind in CELLS and _differentiates(graph, turn.loop, loop)]
        if len(set(of)) == 1:
            yield turn.loop, of[0], _parts(turn, turn.carried())


def _parts(turn: Turn, carried: BoolArray) -> IntArray:
    """Return the position in PARTS of each operator: products on the way of the state, other products, the rest."""
    product = np.array([each in PRODUCTS for each in turn.operations])
    return np.where(product & carried, 0, np.where(product, 1, 2))


def _differentiates(graph: NodeGraph, loop: Loop, forward: Loop) -> bool:
    """Return whether a loop is a backward pass' and reads what most iterations of a forward loop computed."""
    if loop.begin not in graph.backward or loop.begin < forward.end:
        return False
    span = slice(*np.searchsorted(graph.consumer, [loop.begin, loop.end]).tolist())
    writer = graph.producer[span]
    writer = writer[(writer >= forward.begin) & (writer < forward.end)]
    return 2 * len(np.unique((writer - forward.begin) // forward.period)) > (loop.end - loop.begin) // loop.period


_NONE: Final = "in no such loop, shapes were not recorded, or dataflow is not known"
COLUMNS = Columns(
    docs=(
        ColumnDoc("recurrence", "numbers", "which recurrence it is part of: operators that repeat 16 times or more on one stream with the same shapes, each time on what the time before left, and compute the cell of an LSTM, GRU or RNN or scale and add to a state; or the backward pass of such a cell", _NONE),
        ColumnDoc("recurrence_turns", "numbers", "how many iterations that has", _NONE),
        ColumnDoc("recurrence_kind", "categories", "what it computes, one of " + ", ".join(f"`{kind}`" for kind in KINDS), _NONE),
        ColumnDoc("recurrence_part", "categories", "`product`: a product on the way from one state to the next; `projection`: another product; `rest`", _NONE),
    ),
    derive=_columns,
)  # fmt: skip
