"""Steps of optimizers, and loops that call the same operators on one tensor after another.

Both are found from rows alone: an annotation that torch.optim writes, and operators that repeat over tensors of several
shapes. One number a step or loop, so that a rule can match all of it at once.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from tracemine.columns import codes, sorted_unique
from tracemine.ops import lookup
from tracemine.rows.ancestors import nearest, taken
from tracemine.rows.arrow import categories, coded, mapped, named_at, rows_of, take
from tracemine.rows.gradients import zeroed_gradients
from tracemine.rows.table import BoolArray, Categories, Column, IntArray, Numbers, Rows, category, flags, number
from tracemine.rows.turns import repeating
from tracemine.timeline import Timeline

STYLES: Final = ("fused", "compiled", "other", "lists", "loop")
_FUSED, _COMPILED, _OTHER, _LISTS, _LOOP = range(len(STYLES))
# What an update is made of that one kernel a list of parameters can do. Norms of whole layers need a pass of their own.
_POINTWISE: Final = ("pointwise", "foreach", "copy", "fill")
_STEP = re.compile(r"Optimizer\.step#(.+)\.step")
_ZEROING = re.compile(r"Optimizer\.zero_grad#(.+)\.zero_grad")
_ENGINE = "autograd::engine::"
_LONGEST_PERIOD, _LEAST_TURNS, _LEAST_SHAPES = 4, 8, 3
_HOST_BYTES = 4096  # copied between host and device in a step: more is a state that lies on the host


def optimizer_of(annotation: str) -> str | None:
    """Return the optimizer's class of an annotation that names its step.

    >>> optimizer_of("Optimizer.step#AdamW.step"), optimizer_of("Optimizer.zero_grad#AdamW.zero_grad")
    ('AdamW', None)
    """
    found = _STEP.fullmatch(annotation)
    return found[1] if found else None


def updates_of(timeline: Timeline) -> tuple[Categories, IntArray, IntArray]:
    """Return the optimizer in whose step each activity was launched, which step that is, and which `zero_grad` of one.

    A step is the row in `ops` of PyTorch's annotation, −1 for none; of steps inside each other the innermost.
    """
    names, parent = categories(timeline.ops.column("name")), rows_of(timeline.ops.column("parent_row"))
    optimizer = mapped(names, optimizer_of)
    zeroing = mapped(names, lambda name: name if _ZEROING.fullmatch(name) else None)
    op_row = rows_of(timeline.activities.column("op_row"))
    update, zeroes = (taken(nearest(parent, marks.codes >= 0), op_row) for marks in (optimizer, zeroing))
    return take(optimizer, update), update, zeroes


def update_columns(timeline: Timeline, activities: Rows) -> dict[str, Column]:
    """Return the columns `optimizer`, `update`, `update_style`, `zeroing`, `sweep` and `sweep_kind`.

    >>> from tracemine.timeline import Meta
    >>> from tracemine.rows.activities import activity_rows
    >>> from tracemine.rows.compiled import activity_columns, compiled
    >>> empty = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    >>> rows = activity_rows(empty).with_columns(activity_columns(empty, compiled(empty)))
    >>> sorted(update_columns(empty, rows))
    ['optimizer', 'sweep', 'sweep_kind', 'update', 'update_style', 'zeroing']
    """
    optimizer, update, zeroes = updates_of(timeline)
    op_row = rows_of(timeline.activities.column("op_row"))
    of_engine = _of_engine(timeline, op_row)
    sweep, kind = _sweeps(timeline, activities, update < 0, zeroes < 0, of_engine)
    ours = (update < 0) & (zeroes < 0) & ~of_engine
    alone = np.where(ours, number(activities, "segment", -1), -1)
    zeroing = zeroed_gradients(timeline, zeroes, np.where(kind.among("zero"), sweep, -1), alone)
    return {
        "optimizer": optimizer,
        "update": Numbers(np.maximum(update, 0), update >= 0),
        "update_style": coded(STYLES, _styles(activities, update)),
        "zeroing": Numbers(np.maximum(zeroing, 0), zeroing >= 0),
        "sweep": Numbers(np.maximum(sweep, 0), sweep >= 0),
        "sweep_kind": kind,
    }


# --- steps of optimizers ---------------------------------------------------------------------------------------------


def _styles(activities: Rows, update: IntArray) -> IntArray:
    """Return how the step that each activity belongs to is done; −1: it belongs to none."""
    inside = np.flatnonzero(update >= 0)
    _, of = np.unique(update[inside], return_inverse=True)
    if not len(inside):
        return np.full(len(update), -1, np.int64)
    op_class, moved = category(activities, "op_class"), number(activities, "bytes_moved", -1)
    copies = category(activities, "copy_kind").among("HtoD", "DtoH") & (moved > _HOST_BYTES)
    fused = op_class.among("optimizer") | flags(activities, "handwritten")
    compiled = flags(activities, "compiled") | flags(activities, "generated") | flags(activities, "graph")
    other = copies | ~(op_class.among(*_POINTWISE) | fused | compiled)
    lists = np.where(op_class.among("foreach"), 2, -2) * number(activities, "dur_ns", -1) + 1

    def any_of(flags: BoolArray) -> BoolArray:
        return np.bincount(of, flags[inside]) > 0

    style = np.where(np.bincount(of, lists[inside]) > 0, _LISTS, _LOOP)
    for has, name in ((other, _OTHER), (compiled, _COMPILED), (fused, _FUSED)):
        style[any_of(has)] = name
    found = np.full(len(update), -1, np.int64)
    found[inside] = style[of]
    return found


# --- loops over tensors ----------------------------------------------------------------------------------------------


def _sweeps(
    timeline: Timeline, activities: Rows, no_update: BoolArray, no_zeroing: BoolArray, of_engine: BoolArray
) -> tuple[IntArray, Categories]:
    """Return the loop that each activity is part of, −1: none; and what kind of loop that is.

    A loop is a stretch of a stream in which up to four operators repeat, eight times or more, each time on tensors of
    one shape. There are three shapes or more in all (two where an optimizer's step is recorded): a recurrence, which
    goes on from its own result, has one shape throughout.
    """
    kinds = np.full(activities.count, -1, np.int64)
    number = np.full(activities.count, -1, np.int64)
    op = category(activities, "op")
    each = _Operators(op)
    shape, op_row = category(activities, "shape"), rows_of(timeline.activities.column("op_row"))
    eligible = no_update & no_zeroing & each.eligible[op.codes] & (shape.codes >= 0) & ~of_engine
    eligible &= _called_alone(timeline, op_row, each.moves[op.codes])
    eligible &= ~category(activities, "copy_kind").among("HtoD", "DtoH", "PtoP")
    for name in ("compiled", "generated", "graph", "handwritten"):
        eligible &= ~flags(activities, name)
    if not eligible.any():
        return number, coded(_KINDS, kinds)
    place = _places(activities)
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
            number[rows], kinds[rows] = begin, kind
    return number, coded(_KINDS, kinds)


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


def _of_engine(timeline: Timeline, op_row: IntArray) -> BoolArray:
    """Return whether the autograd engine launched it: gradients come one after another."""
    names = mapped(categories(timeline.ops.column("name")), lambda name: name if name.startswith(_ENGINE) else None)
    found: BoolArray = taken(nearest(rows_of(timeline.ops.column("parent_row")), names.codes >= 0), op_row) >= 0
    return found


def _places(activities: Rows) -> IntArray:
    """Return a code for each stream of each step."""
    return codes(*(number(activities, name, -1) for name in ("device", "stream", "segment")))
