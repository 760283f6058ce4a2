"""Gradients as large as a table of which few rows were looked up, and the optimizer's way over all rows.

Modelled, with what sparse gradients cost as measured once: 16 tables of 100,000 rows, whose dense gradients and updates
took 1.8 ms, took 10 ms longer a step with `sparse=True` and SparseAdam (H200, torch 2.11): 0.7 ms a table. Plain SGD
adds the rows to the table: nothing is sorted, nor made unique.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import Final

import numpy as np

from tracemine.calls import Call, calls_of
from tracemine.causes.cause import Cause
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.ops.infer.tensor import Sizes
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.ancestors import engine_of, nearest, taken
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.table import (
    BoolArray,
    Column,
    ColumnDoc,
    Columns,
    IntArray,
    Numbers,
    Rows,
    Sources,
    category,
    number,
)

_GRADIENT: Final = "aten::embedding_dense_backward"
_ADDS: Final = ("aten::add", "aten::add_")
_ROWS: Final = 8  # times as many in the table as were looked up
_LEAST_BYTES: Final = 64 << 20  # of a table
_MOST: Final = 80  # percent of a list's elements that such tables have: else the list is the optimizer's own finding


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    share, tables = np.zeros((2, activities.count), np.int64)
    names = categories(sources.timeline.ops["name"])
    if _GRADIENT in names.values and not (category(activities, "collective").codes >= 0).any():
        share, tables = _dense(sources, activities, _gradient_around(sources))
    known = (share > 0) & (tables > 0)
    return {"dense_tables": Numbers(tables * known, known), "dense_percent": Numbers(share * known, known)}


def _gradient_around(sources: Sources) -> IntArray:
    """Return the call that computes a table's gradient around each activity, a row of `ops`; −1: none."""
    ops = sources.timeline.ops
    marked = categories(ops["name"]).among(_GRADIENT)
    return taken(nearest(rows_of(ops["parent_row"]), marked), rows_of(sources.timeline.activities["op_row"]))


def _dense(sources: Sources, activities: Rows, gradient: IntArray) -> tuple[IntArray, IntArray]:
    """Return how much of each activity goes over such tables, percent, and how many gradients its step computes."""
    calls, op_row = calls_of(sources.timeline), rows_of(sources.timeline.activities["op_row"])
    made = {call.outputs[0].shape for call in calls if call.op_class == "gemm" and call.outputs and call.outputs[0]}
    shapes = {_table(call) for call in calls.distinct(gradient)[0]} - made - {()}  # what a product gives too is tied
    own = calls.spread(gradient, lambda call: _table(call) in shapes, False, np.bool_)
    updated = number(activities, "update", null=-1) >= 0
    share = np.where(updated, calls.spread(op_row, lambda call: _share(call, shapes), 0), 0)
    of_engine = taken(engine_of(sources.timeline), op_row) >= 0
    share[of_engine & calls.spread(op_row, lambda call: _sums(call, shapes), False, np.bool_)] = 100
    segment = number(activities, "segment")
    if not (own.any() and (share > 0).any()):
        return np.zeros_like(share), np.zeros_like(share)
    first = np.unique(gradient[own], return_index=True)[1]
    counted = np.bincount(segment[own][first], minlength=int(segment.max(initial=0)) + 1)
    return np.where(own, 100, share), counted[segment]


def _table(call: Call) -> Sizes:
    """Return the shape of a table whose gradient is large, and of which few rows were looked up; else none.

    >>> def gradient(rows, found): return Call("aten::embedding_dense_backward", ((found, 64), (found,), (), (), ()),
    ...     ("float", "long int", "Scalar", "Scalar", "Scalar"), None, ("", "", str(rows), "-1", "False"))
    >>> _table(gradient(1_000_000, 4096)), _table(gradient(10_000, 4096)), _table(gradient(100_000, 64_000))
    ((1000000, 64), (), ())
    """
    found, indices = (call.outputs or (None,))[0], call.shape(1)
    if call.name != _GRADIENT or found is None or indices is None or found.bytes is None:
        return ()
    return found.shape if found.bytes >= _LEAST_BYTES and found.shape[0] >= _ROWS * prod(indices) else ()


def _sums(call: Call, tables: Collection[Sizes]) -> bool:
    """Return whether a call adds gradients of a table that was looked up in more than once."""
    return call.name in _ADDS and call.shape(0) in tables and call.shape(0) == call.shape(1)


def _share(call: Call, tables: Collection[Sizes]) -> int:
    """Return the share of an optimizer's operator that goes over tables; 0 where most of it does not."""
    members = call.members(0) or ((call.first_tensor[0] or ()),)
    sizes = [(prod(shape), shape in tables) for shape in members]
    percent = 100 * sum(size for size, is_table in sizes if is_table) // max(sum(size for size, _ in sizes), 1)
    return percent if percent >= _MOST else 0


COLUMNS = Columns(
    docs=(
        ColumnDoc("dense_tables", "numbers", "of what computes gradients of embedding tables as large as the table, of their sums, and of the optimizer's operators over them, how many such gradients the step computes: of tables of 64 MiB or more, an eighth of whose rows were looked up at most, that no product has a gradient of as well", "neither, something is communicated, or shapes were not recorded"),
        ColumnDoc("dense_percent", "numbers", "how much of it goes over these tables, of its elements: all, or 80 % and more of an optimizer's lists", "as `dense_tables`"),
    ),
    derive=_columns,
)  # fmt: skip


_TABLE_NS: Final = (400_000, 700_000, 1_200_000)  # sorting, making unique and updating the rows of one
_ADDED_NS: Final = (15_000, 40_000, 120_000)  # adding them


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate sparse gradients and updates, where that is less than what runs now even at the high end."""
    rows, members = context.rows["activities"], matrix[0]
    mean_ns = context.facts["activities"].dur_ns[matrix].mean(axis=0)
    tables, percent = int(number(rows, "dense_tables")[members[0]]), number(rows, "dense_percent")[members]
    stays_ns = float((mean_ns * (100 - percent) / 100).sum())
    table_ns = _ADDED_NS if _added(context, members) else _TABLE_NS
    after = outwards(*(stays_ns + tables * each for each in table_ns))
    if after.high >= mean_ns.sum():
        return Abstained("nothing_to_win")
    text = f"modelled: a sparse gradient and its update take {table_ns[1] / 1e6:g} ms a table, most of it the host's"
    return on_gpu(context, matrix, Estimate(after_ns=after, assumptions=(text,)))


def _added(context: ScanContext, rows: IntArray) -> bool:
    """Return whether all that the optimizer does is to add gradients to tables: SGD without momentum or decay."""
    facts = context.facts["activities"]
    rows = rows[facts.optimizer.codes[rows] >= 0]
    return bool(len(rows)) and bool(facts.op.among("aten::_foreach_add_", "aten::add_")[rows].all())


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return whether updates add gradients alone."""
    if rule.id != "embedding_gradient_dense":
        return {}
    return {"only_added": _added(context, np.concatenate([one.matrix.reshape(-1) for one in classes]))}


FACTS = AdviceFacts(
    docs={"only_added": FactDoc("the optimizer adds gradients to tables, and does nothing else with them")}, find=_facts
)


CAUSE = Cause(rule="embedding_gradient_dense", columns=COLUMNS, estimate=estimate, facts=FACTS, part="optimizer")
