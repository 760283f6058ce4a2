"""A loop over tensors that an operator over lists does at once.

fix.py      operators over lists
passes.py   what passes over lists move

One number a loop, so that a rule can match all of it at once.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tracemine.causes.cause import Cause
from tracemine.causes.column_fact import column_fact
from tracemine.columns import codes, sorted_unique
from tracemine.ops import lookup
from tracemine.rows.activities import zero_grads
from tracemine.rows.ancestors import engine_of, taken
from tracemine.rows.arrow import categories, coded, named_at, rows_of, take
from tracemine.rows.loops import repeating
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
    flags,
    number,
)
from tracemine.timeline import Timeline

_LONGEST_PERIOD, _LEAST_TURNS, _LEAST_SHAPES = 4, 8, 3
_NO_SWEEP: Final = "in no such loop, or shapes were not recorded"


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    sweep, kinds = _sweeps(sources.timeline, activities)
    own = category(activities, "update_style").among("own")
    sweep[own] = sweep.max(initial=0) + 1 + number(activities, "update")[own]
    kinds[own] = _KINDS.index("update")
    return {"sweep": Numbers(np.maximum(sweep, 0), sweep >= 0), "sweep_kind": coded(_KINDS, kinds)}


def the_programs_own(timeline: Timeline, activities: Rows) -> BoolArray:
    """Return which activities neither an optimizer's step nor its `zero_grad` nor the autograd engine launched."""
    of_engine = taken(engine_of(timeline), rows_of(timeline.activities["op_row"])) >= 0
    own: BoolArray = (number(activities, "update", -1) < 0) & (zero_grads(timeline) < 0) & ~of_engine
    return own


def _sweeps(timeline: Timeline, activities: Rows) -> tuple[IntArray, IntArray]:
    """Return the loop that each activity is part of, −1: none; and what kind of loop that is.

    A loop is a stretch of a stream in which up to four operators repeat, eight times or more, each time on tensors of
    one shape. There are three shapes or more in all (two where an optimizer's step is recorded): a recurrence, which
    goes on from its own result, has one shape throughout.
    """
    kinds = np.full(activities.count, -1, np.int64)
    loop = np.full(activities.count, -1, np.int64)
    op = category(activities, "op")
    each = _Operators(op)
    shape, op_row = category(activities, "shape"), rows_of(timeline.activities.column("op_row"))
    no_update = number(activities, "update", -1) < 0
    eligible = the_programs_own(timeline, activities) & each.eligible[op.codes] & (shape.codes >= 0)
    eligible &= _called_alone(timeline, op_row, each.moves[op.codes])
    eligible &= ~category(activities, "copy_kind").among("HtoD", "DtoH", "PtoP")
    for name in ("compiled", "generated", "graph", "handwritten"):
        eligible &= ~flags(activities, name)
    if not eligible.any():
        return loop, kinds
    place = codes(*(number(activities, name, -1) for name in ("device", "stream", "segment")))
    order = np.argsort(place, kind="stable")
    # One entry a call: what an operator launches is one of it.
    first = np.append(True, (op_row[order][1:] != op_row[order][:-1]) | (place[order][1:] != place[order][:-1]))
    call = np.cumsum(first) - 1
    heads = order[first]
    code = np.where(eligible[heads], op.codes[heads], -1 - np.arange(len(heads)))  # what is none repeats nothing
    # Where an optimizer is at work, nothing recurs in place outside its step: two shapes tell as much as three.
    least = _LEAST_SHAPES if no_update.all() else 2
    taken_by = np.zeros(len(heads), np.bool_)
    for period in range(1, _LONGEST_PERIOD + 1):
        for begin, end in repeating(code, place[heads], period, _LEAST_TURNS):
            if taken_by[begin:end].any():
                continue
            turn = _turns(op.codes[heads[begin:end]], shape.codes[heads[begin:end]], period, each, least)
            if turn is None:
                continue
            skipped, turns, kind = turn
            begin, end = begin + skipped, begin + skipped + turns * period
            taken_by[begin:end] = True
            rows = order[np.searchsorted(call, begin) : np.searchsorted(call, end)]
            loop[rows], kinds[rows] = begin, kind
    return loop, kinds


_KINDS: Final = ("zero", "norm", "average", "copy", "update")


class _Operators:
    """What each operator's name says, by the code of the column `op`; the last entry answers for −1."""

    def __init__(self, op: Categories) -> None:
        known = [lookup(name) for name in op.values]
        classes = [None if one is None else one.op_class for one in known]
        names = [name.removeprefix("aten::") for name in op.values]
        self.in_place = np.array([*(name.endswith("_") for name in names), False], np.bool_)
        self.fill = np.array([*(one == "fill" for one in classes), False], np.bool_)
        self.norm = np.array([*(name in ("linalg_vector_norm", "norm") for name in names), False], np.bool_)
        self.moves = np.array([*(one in ("copy", "fill") for one in classes), False], np.bool_)
        pointwise = np.array([*(one == "pointwise" for one in classes), False], np.bool_)
        self.eligible = self.norm | pointwise | (self.moves & self.in_place)
        self.names = names


def _turns(ops: IntArray, shapes: IntArray, period: int, each: _Operators, least: int) -> tuple[int, int, int] | None:
    """Return the entries before a loop, its iterations and its kind; None where it is no loop over tensors."""
    for skipped in range(period):
        turns = (len(ops) - skipped) // period
        if turns < _LEAST_TURNS:
            break
        own = shapes[skipped : skipped + turns * period].reshape(turns, period)
        if not (own == own[:, :1]).all() or len(sorted_unique(own[:, 0])) < least:
            continue
        kind = _kind(ops[skipped : skipped + period], each)
        if kind is not None:
            return skipped, turns, _KINDS.index(kind)
    return None


def _kind(ops: IntArray, each: _Operators) -> str | None:
    """Return what operators do to one tensor after another; None where nothing is kept of it."""
    if each.fill[ops].all():
        return "zero"
    if each.norm[ops].any():
        return "norm" if len(ops) == 1 else None
    if not each.in_place[ops[-1]]:
        return None
    names = [each.names[code] for code in ops.tolist()]
    if names == ["copy_"]:
        return "copy"
    return "average" if names in (["mul_", "add_"], ["lerp_"], ["mul", "mul", "add", "copy_"]) else "update"


def _called_alone(timeline: Timeline, op_row: IntArray, moves: BoolArray) -> BoolArray:
    """Return whether the program itself called it: what another operator copies or fills is that one's own result.

    `zero_` alone calls `fill_`; a `fill_` that is called by itself writes a value of the program's into a slice.
    """
    names = categories(timeline.ops.column("name"))
    parent = rows_of(timeline.ops.column("parent_row"))
    operator = np.array([*(name.startswith("aten::") for name in names.values), False], np.bool_)
    rows = np.flatnonzero(moves)
    own, by = op_row[rows], taken(parent, op_row[rows])
    by_zero = named_at(names, by, "aten::zero_")
    above = np.where(by_zero, taken(parent, by), by)
    alone = ~operator[take(names, above).codes]
    found = np.ones(len(op_row), np.bool_)
    found[rows] = alone & (~named_at(names, own, "aten::fill_") | by_zero)
    return found


COLUMNS = Columns(
    docs=(
        ColumnDoc("sweep", "numbers", "which loop over tensors it is part of: up to four operators that repeat eight times or more, one after the other on one stream, each time on tensors of one shape, of three shapes or more in all, or of two where an optimizer's step is recorded; outside optimizers' steps, their `zero_grad` and the autograd engine. An optimizer's step that code of the program's own goes through is one too", _NO_SWEEP),
        ColumnDoc("sweep_kind", "categories", "what that loop does: `zero` (fills), `norm` (one norm a tensor), `average` (`mul_` and `add_`, `lerp_`, or their sum copied), `copy` (`copy_` alone: data-parallel buckets, inputs of compiled graphs), `update` (other operators, the last of them in place)", _NO_SWEEP),
    ),
    derive=_columns,
    needs=("update_style",),
)  # fmt: skip

_SWEEPS = ("zero", "norm", "average", "update")
_FACTS = column_fact("loop", "what a loop over tensors does to each", "sweep_kind", _SWEEPS)
CAUSE = Cause(rule="parameter_loop", columns=COLUMNS, facts=_FACTS, fix_at=f"{__name__}.fix:FIX")
