"""Loops over products that one batched product does at once."""

from __future__ import annotations

import numpy as np

from tracemine.rows.loops import loops_of_products
from tracemine.rows.table import Column, ColumnDoc, Columns, Numbers, Rows, Sources


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    number, turns = np.full(activities.count, -1, np.int64), np.zeros(activities.count, np.int64)
    for loop, rows in loops_of_products(sources.timeline, activities):
        number[rows], turns[rows] = loop.begin, (loop.end - loop.begin) // loop.period
    known = number >= 0
    return {"turns_of": Numbers(np.maximum(number, 0), known), "turns": Numbers(turns, known)}


COLUMNS = Columns(
    docs=(
        ColumnDoc("turns_of", "numbers", "which loop over independent products it is part of: up to 16 operators, a product among them, that repeat eight times or more on one stream with the same shapes, where no product of an iteration reads, by any path within the loop, what another one wrote; without those operators of an iteration that do. Outside of steps something has to read the results of several iterations", "in no such loop, shapes were not recorded, or dataflow is not known"),
        ColumnDoc("turns", "numbers", "how many iterations that loop has", "in no such loop"),
    ),
    derive=_columns,
)  # fmt: skip
