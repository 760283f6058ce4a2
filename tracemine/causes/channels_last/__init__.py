"""Convolutions around which layouts are converted.

    y = conv(x).permute(0, 2, 3, 1).contiguous()     # for what works along channels
    x = x + y.permute(0, 3, 1, 2).contiguous()       # back, for the next convolution

With channels_last tensors a convolution's result lies as the first wants it, and takes what the second makes a copy of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from tracemine.causes.cause import Cause
from tracemine.rows.arrow import rows_of
from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import (
    BoolArray,
    Categories,
    Column,
    ColumnDoc,
    Columns,
    Flags,
    IntArray,
    Numbers,
    Rows,
    Sources,
    category,
    flags,
)

_TO_NHWC: Final = (0, 3, 1, 2)  # axes of what is copied, in the order in which they lie
_TO_NCHW: Final = (0, 2, 3, 1)
_AXES: Final = len(_TO_NHWC)
_TAKE_EITHER: Final = ("conv", "pointwise", "pool", "resample", "reduction", "copy")  # readers of either layout
_MOST_NODES: Final = 64  # that are followed from one copy
_Next = Callable[[int], list[int]]


def permuting(graph: NodeGraph, op_class: Categories, operation: Categories, converting: IntArray) -> dict[int, int]:
    """Return, by its node, the convolution that a copy serves. `converting`: nodes that convert layouts themselves."""
    owned = np.diff(graph.activity_begin) > 0
    either = owned & graph.any_of(op_class.among(*_TAKE_EITHER))
    wanted, pointwise = {*converting.tolist()}, owned & graph.all_of(op_class.among("pointwise"))
    copies = np.flatnonzero(owned & graph.all_of(operation.among("copy")))
    found = dict[int, int]()
    for order, after in ((_TO_NHWC, graph.producers), (_TO_NCHW, graph.readers)):
        for node in copies[_reordered(graph, copies, order)].tolist():
            reached = list(_reached(node, after, lambda each: bool(pointwise[each])))
            served = next((each for each in reached if each in wanted), None)
            if served is not None and (order == _TO_NHWC or all(either[each] for each in reached)):
                found[node] = served
    return found


def _reordered(graph: NodeGraph, copies: IntArray, order: tuple[int, ...]) -> BoolArray:
    """Return which copies give in order what lies otherwise: its axes, outermost first, in that order."""
    tensors = graph.tensors
    to, source = (tensors.of[place][copies] for place in ("in0", "in1"))
    shape = tensors.shape[source][:, -_AXES:]
    known = (tensors.rank[[to, source]] == _AXES).all(axis=0) & tensors.has_strides[[to, source]].all(axis=0)
    same = (shape == tensors.shape[to][:, -_AXES:]).all(axis=1) & (shape > 1)[:, 1:].all(axis=1)
    straight = tensors.strides[to][:, -_AXES:] == _strides(shape, tuple(range(_AXES)))
    turned = tensors.strides[source][:, -_AXES:] == _strides(shape, order)
    found: BoolArray = known & same & straight.all(axis=1) & turned.all(axis=1)
    return found


def _strides(shape: IntArray, order: tuple[int, ...]) -> IntArray:
    """Return the strides of tensors without gaps whose axes lie in this order.

    >>> _strides(np.array([[2, 5, 7, 3]]), (0, 3, 1, 2)).tolist()
    [[105, 7, 1, 35]]
    """
    found, step = np.empty_like(shape), np.ones(len(shape), np.int64)
    for axis in reversed(order):
        found[:, axis] = step
        step = step * shape[:, axis]
    return found


def _reached(node: int, after: _Next, passes: Callable[[int], bool]) -> Iterator[int]:
    """Yield the nodes at which paths from a node end, and those that they pass."""
    seen, left = {node}, [node]
    while left and len(seen) < _MOST_NODES:
        for each in after(left.pop(0)):
            if each not in seen:
                seen.add(each)
                left += [each] if passes(each) else []
                yield each


# Norms whose CUDA kernels want NCHW of tensors with so many dimensions: group norms copy what comes otherwise, forward
# and backward; a BatchNorm of channels_last_3d runs elementwise (torch 2.11, recorded on an H100).
_WANT_NCHW: Final = {
    "aten::native_group_norm": (4, 5),
    "aten::native_group_norm_backward": (4, 5),
    "aten::native_batch_norm": (5,),
}


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    op_row = rows_of(sources.timeline.activities["op_row"])
    converts = flags(activities, "auxiliary") & category(activities, "family").among("layout")
    call, serves = op_row.copy(), converts.copy()
    undone = _undone_layout(category(activities, "op"), category(activities, "shape"))
    if activities.graph is not None:
        for copy, of in _copies(activities.graph, activities, converts & ~undone).items():
            call[copy], serves[copy] = op_row[of], True
    return {"layout_call": Numbers(call, serves), "undone_layout": Flags(undone)}


def _copies(graph: NodeGraph, activities: Rows, converts: BoolArray) -> dict[int, int]:
    """Return, by its activity, an activity of the convolution that a copy of the program's serves."""
    nodes = graph.activity_node[converts]
    op_class, operation = (category(activities, name) for name in ("op_class", "operation"))
    found = permuting(graph, op_class, operation, nodes[nodes >= 0])
    first = graph.first_activity
    return {int(first[copy]): int(first[served]) for copy, served in found.items()}


def _undone_layout(op: Categories, shape: Categories) -> BoolArray:
    """Return whether an activity's tensor is as large as one that a norm of the trace wants in NCHW.

    >>> op = Categories(np.array([0, 1, 1], np.int32), ("aten::native_group_norm", "aten::cudnn_convolution"))
    >>> _undone_layout(op, Categories(np.array([0, 0, 1], np.int32), ("[8,64,9,9]", "[8,3,9,9]"))).tolist()
    [True, True, False]
    """
    dimensions = np.array([*(text.count(",") + 1 for text in shape.values), 0])[shape.codes]
    found = np.zeros(len(shape.values) + 1, np.bool_)
    for name, wanted in _WANT_NCHW.items():
        found[shape.codes[op.among(name) & np.isin(dimensions, wanted)]] = True
    found[-1] = False
    undone: BoolArray = found[shape.codes]
    return undone


COLUMNS = Columns(
    docs=(
        ColumnDoc("layout_call", "numbers", "row of `ops`: the library call that converts a layout by it, next to its main kernel, or next to which the program copies from NCHW to NHWC or back", "it converts no layout for a library call"),
        ColumnDoc("undone_layout", "flags", "its operator's first tensor is as large as one that a norm of the trace wants in NCHW (a group norm, or a BatchNorm of five dimensions): channels_last would be undone there"),
    ),
    derive=_columns,
)  # fmt: skip


CAUSE = Cause(
    rule="channels_last",
    columns=COLUMNS,
    compiled_share=1.0,  # of two convolutional networks, on an H200 (benchmarks/programs/graphs.py)
    ways={"ways": ("channels_last", "channels_last, cudnn.benchmark", "cudnn.benchmark")},
)
