"""The kind of each loop that one call could do."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracemine.causes.python_loop.kinds import KINDS, Body, over
from tracemine.columns import sorted_unique
from tracemine.rows.ancestors import engine_of, taken
from tracemine.rows.arrow import categories, coded, rows_of
from tracemine.rows.loops import checkpointed
from tracemine.rows.table import (
    BoolArray,
    Categories,
    Column,
    ColumnDoc,
    Columns,
    IntArray,
    Rows,
    Sources,
    category,
    flags,
    number,
    numbers_of,
)

# What other causes say of such loops.
_CLAIMED: Final = ("turns_of", "sweep", "bags")


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    loop, kinds = number(activities, "loop", -1), np.full(activities.count, -1, np.int64)
    inside = np.flatnonzero(loop >= 0)
    if len(inside):
        inside = inside[np.argsort(loop[inside], kind="stable")]
        op_row = rows_of(sources.timeline.activities["op_row"])
        left_out = _left_out(activities) | checkpointed(sources.timeline)[op_row]
        assigns, moves = _assigns(sources, activities), _within_device(sources, activities)
        of_engine = taken(engine_of(sources.timeline), op_row) >= 0
        for rows in np.split(inside, np.flatnonzero(np.diff(loop[inside])) + 1):
            if not left_out[rows].any() and not of_engine[rows].all():
                found = over(_body(activities, rows[~of_engine[rows]], assigns, moves))
                kinds[rows] = -1 if found is None else KINDS.index(found)
    return {"loop_over": coded(KINDS, kinds)}


def _left_out(activities: Rows) -> BoolArray:
    """Return which activities another cause has a loop of, or no loop in Python launched one by one."""
    found: BoolArray = np.zeros(activities.count, np.bool_)
    for name in ("compiled", "generated", "graph", "handwritten"):
        found |= flags(activities, name)
    found |= category(activities, "collective").codes >= 0
    found |= category(activities, "update_style").among("fused", "compiled", "lists", "loop", "own")
    for name in _CLAIMED:
        valid = numbers_of(activities, name).valid
        found |= True if valid is None else valid
    copies: BoolArray = category(activities, "sweep_kind").among("copy")  # no finding of that cause
    return found & ~copies


def _assigns(sources: Sources, activities: Rows) -> BoolArray:
    """Return which activities an assignment that the program itself makes launched."""
    ops = sources.timeline.ops
    parent, is_op = rows_of(ops["parent_row"]), categories(ops["kind"]).among("op")
    assigned = categories(ops["name"]).among("aten::copy_", "aten::fill_")
    return np.append(assigned & ~np.append(is_op, False)[parent], False)[rows_of(sources.timeline.activities["op_row"])]


def _within_device(sources: Sources, activities: Rows) -> BoolArray:
    """Return which activities move nothing between host and device; none where ranks communicate, whose buckets are
    filled by copies.
    """
    if (category(activities, "collective").codes >= 0).any():
        return np.zeros(activities.count, np.bool_)
    return ~categories(sources.timeline.activities["copy_kind"]).among("HtoD", "DtoH")


def _joined(activities: Rows, rows: IntArray) -> tuple[bool, bool]:
    """Return whether something reads what most iterations wrote: as one tensor, and as several that it puts together.
    Else each may have a buffer of its own, as the inputs of a compiled graph have.
    """
    graph = activities.graph
    if graph is None:
        return False, False
    wrote = np.zeros(len(graph.known) + 1, np.bool_)
    wrote[graph.activity_node[rows]] = True
    wrote[-1] = False
    count = np.bincount(graph.consumer[wrote[graph.producer] & ~wrote[graph.consumer]])
    reader = int(count.argmax()) if len(count) else 0
    span = slice(int(graph.read_begin[reader]), int(graph.read_begin[reader + 1]))
    several, most = len(sorted_unique(graph.read_buffer[span])), 2 * int(count.max(initial=0)) > len(rows)
    moves: BoolArray = category(activities, "op_class").among("copy")
    return most and len(rows) > 2 * several, most and bool(moves[graph.first_activity[reader]])


def _body(activities: Rows, rows: IntArray, assigns: BoolArray, moves: BoolArray) -> Body:
    as_one, together = _joined(activities, rows) if moves[rows].all() else (False, False)
    names = _values(category(activities, "op"), rows)
    work = rows[~category(activities, "operation").among("_local_scalar_dense")[rows]]
    return Body(
        operations=_values(category(activities, "operation"), work),
        classes=_values(category(activities, "op_class"), work),
        in_place=any(name.endswith("_") for name in names),
        dependence=next(iter(_values(category(activities, "loop_dependence"), rows[:1])), None),
        differs=next(iter(_values(category(activities, "loop_differs"), rows[:1])), None),
        sizes=bool(flags(activities, "loop_sizes")[rows[0]]),
        assigns=bool(assigns[rows].all()) and as_one,
        gathers=together,
    )


def _values(column: Categories, rows: IntArray) -> frozenset[str]:
    return frozenset(column.values[code] for code in set(column.codes[rows].tolist()) if code >= 0)


_NONE: Final = "in no loop, or in one of which no call for all iterations is known, or which another cause has"
COLUMNS = Columns(
    docs=(
        ColumnDoc("loop_over", "categories", "what the loop goes over, inferred from what its body calls and how its iterations depend on each other, one of " + ", ".join(f"`{kind}`" for kind in KINDS), _NONE),
    ),
    derive=_columns,
    needs=(*_CLAIMED, "sweep_kind", "update_style"),
)  # fmt: skip
