"""Gradients that are filled with zeros, and added to.

A tensor that is filled is a gradient where the autograd engine adds to it in place: recognised by its memory where an
execution trace names tensors, and then of each fill; else by its shape, of loops and lists.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np

from tracemine.calls import Call, calls_of
from tracemine.causes.cause import Cause
from tracemine.causes.parameter_loop import the_programs_own
from tracemine.columns import booleans, numbers
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.labels import text_at
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, without_zeros
from tracemine.rows.activities import zero_grads
from tracemine.rows.ancestors import taken
from tracemine.rows.arrow import categories, is_named, named_at, rows_of, take
from tracemine.rows.table import (
    BoolArray,
    Categories,
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
from tracemine.timeline import Timeline


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate gradients that nothing fills: without zeros nothing is added to them either."""
    durations = context.facts["activities"].dur_ns[matrix]
    operation = category(context.rows["activities"], "operation")
    added = [text_at(operation, row) == "add" for row in matrix[0]]
    measured_ns = float(durations.sum(axis=1).mean())
    return on_gpu(context, matrix, without_zeros(measured_ns, float(durations.mean(axis=0)[added].sum())))


_ACCUMULATES: Final = "AccumulateGrad"  # torch::autograd::AccumulateGrad, whatever is in front of it
_LISTED: Final = "aten::_foreach_zero_"


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    timeline = sources.timeline
    zeroed = np.where(category(activities, "sweep_kind").among("zero"), number(activities, "sweep", -1), -1)
    alone = np.where(the_programs_own(timeline, activities), number(activities, "segment", -1), -1)
    zeroing = _zeroed_gradients(timeline, zero_grads(timeline), zeroed, alone)
    return {"zeroing": Numbers(np.maximum(zeroing, 0), zeroing >= 0)}


def _zeroed_gradients(timeline: Timeline, zeroing: IntArray, zeroed: IntArray, alone: IntArray) -> IntArray:
    """Return, for each activity, the call, loop or list that fills gradients and that it is part of; −1: none.

    `zeroing`: of each activity the row of the `zero_grad` that it is part of, `zeroed`: the number of the loop of
    fills, `alone`: of each fill of the program's the step that it is part of; −1: none. What such a fill makes the
    autograd engine add is part of it: without zeros nothing is added.
    """
    op_row = rows_of(timeline.activities["op_row"])
    names = categories(timeline.ops["name"])
    adds = _accumulated(timeline, names, op_row)
    if not adds.any():  # gradients are None, or those of a graph
        return zeroing
    listed = named_at(names, op_row, _LISTED) & (zeroing < 0)
    by = np.where(zeroing >= 0, zeroing, -1)
    added = np.flatnonzero(adds)
    zeros = np.where(_of_zeros(timeline, names)[op_row] & (zeroing < 0), alone, -1)
    keys = _Keys(timeline, op_row, np.flatnonzero((zeros >= 0) | listed | (zeroing >= 0)), added)
    gradients = {key for row in added.tolist() for key in keys.of(row)}
    if keys.exact:
        zeroed = zeros
        for row in np.flatnonzero(zeros >= 0).tolist():
            if not gradients.issuperset(keys.of(row)):
                zeroed[row] = -1
    for rows in (*_each(zeroed), *_each(np.where(listed, op_row, -1))):
        by[rows] = op_row[rows[0]]
    for rows in _each(np.where(zeroing < 0, by, -1)):
        own = [key for row in dict.fromkeys(rows.tolist()) for key in keys.of(row)]
        if not own or not gradients.issuperset(own):
            by[rows] = -1
    _with_additions(by, adds, keys)
    return by


def _with_additions(by: IntArray, adds: BoolArray, keys: _Keys) -> None:
    """Join to each fill the first addition to what it filled."""
    waiting = defaultdict[Hashable, list[int]](list)
    seen = set[int]()
    for row in np.flatnonzero((by >= 0) | adds).tolist():
        if adds[row]:
            own = [key for key in keys.of(row) if waiting[key]]
            if own:
                by[row] = waiting[own[0]].pop(0)
        elif keys.op_row[row] not in seen:  # a list is filled by several kernels
            seen.add(keys.op_row[row])
            for key in keys.of(row):
                if keys.exact:
                    waiting[key].clear()
                waiting[key].append(int(by[row]))


class _Keys:
    """Keys of the tensors that an activity's operator writes: their memory, or their shapes."""

    def __init__(self, timeline: Timeline, op_row: IntArray, *rows: IntArray) -> None:
        self.op_row: list[int] = op_row.tolist()
        self._memory = _memory(timeline, {self.op_row[row] for each in rows for row in each.tolist()})
        self._calls = calls_of(timeline)
        self.exact = all(self.op_row[row] in self._memory for each in rows for row in each.tolist())

    def of(self, row: int) -> Sequence[Hashable]:
        """Return one entry a tensor; none where nothing was recorded."""
        op_row = self.op_row[row]
        if self.exact:
            return self._memory[op_row]
        call = self._calls.at(op_row)
        return () if call is None else _first(call)


def _memory(timeline: Timeline, op_rows: set[int]) -> dict[int, list[Hashable]]:
    """Return the memory of the tensors that each of these operators takes first."""
    table = timeline.tensors
    of, position = numbers(table.column("op_row"), -1), numbers(table.column("position"), -1)
    chosen = (position == 0) & ~booleans(table.column("is_output")) & np.isin(of, np.fromiter(op_rows, np.int64))
    storage, offset = (numbers(table.column(name), -1) for name in ("storage_id", "offset_elements"))
    found = defaultdict[int, list[Hashable]](list)
    for row, *where in np.stack([of, storage, offset])[:, chosen].T.tolist():
        found[row].append(tuple(where))
    return found


def _first(call: Call) -> Sequence[Hashable]:
    """Return the shape of a call's first tensor, or those of its list's members.

    >>> _first(Call("aten::zero_", ((64, 64), ()))), _first(Call("aten::_foreach_zero_", (((64, 64), (64,)),)))
    (((64, 64),), ((64, 64), (64,)))
    """
    first = call.shape(0)
    return call.members(0) if first is None else (first,)


def _of_zeros(timeline: Timeline, names: Categories) -> BoolArray:
    """Return, for each row of `ops`, whether it fills with zeros; one more for −1."""
    found: BoolArray = is_named(names, "aten::zero_")
    rows = np.flatnonzero(is_named(names, "aten::fill_"))
    found[rows] = calls_of(timeline).spread(rows, _is_zero, False, np.bool_)
    return found


def _is_zero(fill: Call) -> bool:
    """Return whether what `fill_` fills with is recorded, and zero.

    >>> [_is_zero(Call("aten::fill_", values=("", value))) for value in ("0", "0.", "1", "")]
    [True, True, False, False]
    """
    try:
        return float(fill.value(1)) == 0
    except ValueError:
        return False


def _accumulated(timeline: Timeline, names: Categories, op_row: IntArray) -> BoolArray:
    """Return activities that add a gradient to one that is there, for the autograd engine."""
    engine = np.array([*(name.endswith(_ACCUMULATES) for name in names.values), False], np.bool_)
    parent = taken(rows_of(timeline.ops["parent_row"]), op_row)
    found: BoolArray = named_at(names, op_row, "aten::add_") & engine[take(names, parent).codes]
    return found


def _each(numbers_of: IntArray) -> list[IntArray]:
    """Return the rows of each number, in their order."""
    rows = np.flatnonzero(numbers_of >= 0)
    order = rows[np.argsort(numbers_of[rows], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(numbers_of[order])) + 1) if len(order) else []


COLUMNS = Columns(
    docs=(
        ColumnDoc("zeroing", "numbers", "which filling of gradients with zeros it is part of: what a call of an optimizer's `zero_grad` launches, as PyTorch annotates it; fills of tensors that the autograd engine adds to, by a loop (`sweep_kind` is `zero`), by `_foreach_zero_`, or, where an execution trace names tensors, by any operator of the program's in one step; and the first addition to each of them", "in none, or no operators were recorded"),
    ),
    derive=_columns,
    needs=("sweep", "sweep_kind"),
)  # fmt: skip

CAUSE = Cause(rule="gradient_zeroing", columns=COLUMNS, estimate=estimate, fix_at=f"{__name__}.fix:FIX")
