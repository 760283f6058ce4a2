"""Facts that findings need of each activity and each gap, as arrays: read once, used by every rule."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracemine.patterns import deferred
from tracemine.rows.ancestors import engine_of, first_known, taken
from tracemine.rows.arrow import categories, mapped, rows_of, take
from tracemine.rows.table import BoolArray, Categories, IntArray, Rows, category, flags, number
from tracemine.timeline import Timeline

_COUNTER = deferred(r"_\d+(?=\.|$)")


class Facts(Struct, frozen=True, kw_only=True):
    """One entry a row of a row set. Row numbers and categories are −1 where there is none.

    `op` is the operator's name, or the kernel's family where no operator is known; in Proton's profiles the name of a
    Triton kernel.
    """

    op: Categories
    op_row: IntArray
    shapes: Categories  # of all the operator's inputs, as recorded
    dtypes: Categories
    strides: Categories
    dtype: Categories
    op_class: Categories
    module: Categories  # with counters replaced by `*`
    optimizer: Categories  # class of the optimizer whose step it belongs to
    backward: BoolArray  # launched by the autograd engine
    stack_row: IntArray
    source: Categories  # innermost line of the user's own
    dur_ns: IntArray


def activity_facts(timeline: Timeline, rows: Rows) -> Facts:
    """Return facts of the row set "activities"."""
    activities = timeline.activities
    op_row = rows_of(activities["op_row"])
    return Facts(
        op=_first_known(_first_known(category(rows, "op"), _own_kernels(timeline, rows)), category(rows, "family")),
        op_row=op_row,
        shapes=take(categories(timeline.ops["input_shapes"]), op_row),
        dtypes=take(categories(timeline.ops["input_dtypes"]), op_row),
        strides=take(categories(timeline.ops["input_strides"]), op_row),
        dtype=category(rows, "dtype"),
        op_class=category(rows, "op_class"),
        module=mapped(category(rows, "module"), pattern_of),
        optimizer=category(rows, "optimizer"),
        backward=_backward(timeline, op_row),
        stack_row=first_known(taken(rows_of(timeline.ops["stack_row"]), op_row), rows_of(activities["stack_row"])),
        source=category(rows, "source"),
        dur_ns=number(rows, "dur_ns"),
    )


def _own_kernels(timeline: Timeline, rows: Rows) -> Categories:
    """Return the names of kernels written by hand, in a profile without operators: each counts as an operator."""
    name, own = category(rows, "name"), flags(rows, "handwritten") & (timeline.meta.format == "proton")
    return Categories(np.where(own, name.codes, -1).astype(np.int32), name.values)


def gap_facts(rows: Rows, activities: Facts) -> Facts:
    """Return facts of the row set "gaps": of the host call that the device waited for."""
    nothing = Categories(np.full(rows.count, -1, np.int32), ())
    broken = number(rows, "break_stack_row", null=-1)
    return Facts(
        # A call made outside any operator counts as itself: cudaDeviceSynchronize, a launch of Triton's.
        op=_first_known(_first_known(category(rows, "op"), category(rows, "sync")), category(rows, "launch")),
        op_row=np.full(rows.count, -1, np.int64),
        shapes=nothing,
        dtypes=nothing,
        strides=nothing,
        dtype=nothing,
        op_class=nothing,
        optimizer=take(activities.optimizer, number(rows, "next_row")),
        backward=np.zeros(rows.count, np.bool_),
        module=mapped(category(rows, "module"), pattern_of),
        # In a graph break, the line that broke the graph: more than where a function begins.
        stack_row=np.where(broken >= 0, broken, number(rows, "stack_row", null=-1)),
        source=_first_known(category(rows, "break_source"), category(rows, "source")),
        dur_ns=number(rows, "dur_ns"),
    )


def backward_ops(timeline: Timeline) -> BoolArray:
    """Return which operators the autograd engine ran, or operators that it ran."""
    run: BoolArray = engine_of(timeline) >= 0
    return run


def _backward(timeline: Timeline, op_row: IntArray) -> BoolArray:
    """Return, for each activity, whether the autograd engine ran its operator."""
    return np.where(op_row >= 0, np.append(backward_ops(timeline), False)[op_row], False)


def pattern_of(module: str) -> str:
    """Return a module path with its counters replaced.

    >>> pattern_of("Llama_0.Layer_12.Conv2d_0")
    'Llama_*.Layer_*.Conv2d_*'
    """
    return _COUNTER.sub("_*", module)


def _first_known(first: Categories, other: Categories) -> Categories:
    codes = np.where(first.codes >= 0, first.codes, np.where(other.codes >= 0, other.codes + len(first.values), -1))
    return Categories(codes.astype(np.int32), first.values + other.values)
