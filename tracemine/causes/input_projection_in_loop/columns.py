"""Products of a recurrence's loop with one weight, whose inputs are there before the loop begins."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracemine.causes.recurrence_unfused.cells import one_weight
from tracemine.rows.loops import loops_with_state
from tracemine.rows.table import Column, ColumnDoc, Columns, Numbers, Rows, Sources, category

_PRODUCTS: Final = frozenset({"mm", "addmm", "_addmm_activation"})  # a batched product has a weight an entry


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    number, turns = np.full(activities.count, -1, np.int64), np.zeros(activities.count, np.int64)
    graph, operation = activities.graph, category(activities, "operation")
    for loop in () if graph is None else loops_with_state(sources.timeline, activities):
        assert graph is not None  # noqa: S101 - else there is none
        for slot in np.flatnonzero(loop.own).tolist():
            code = int(operation.codes[graph.first_activity[loop.begin + slot]])
            if code < 0 or operation.values[code] not in _PRODUCTS or not one_weight(graph, loop, slot):
                continue
            nodes = range(loop.begin + slot, loop.end, loop.period)
            rows = np.concatenate(
                [graph.activity[graph.activity_begin[at] : graph.activity_begin[at + 1]] for at in nodes]
            )
            number[rows], turns[rows] = loop.begin + slot, len(nodes)
    return {
        "projection_of": Numbers(np.maximum(number, 0), number >= 0),
        "projection_turns": Numbers(turns, number >= 0),
    }


COLUMNS = Columns(
    docs=(
        ColumnDoc("projection_of", "numbers", "which products it is one of, that a loop makes with one weight, each of an input of its own, in iterations that need each other: these products need none of them", "no such product, shapes were not recorded, or dataflow is not known"),
        ColumnDoc("projection_turns", "numbers", "how many iterations that loop has", "no such product"),
    ),
    derive=_columns,
)  # fmt: skip
