"""Layouts that are converted around library calls, and those that a norm would convert back."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracemine.causes.channels_last.permuted import permuting
from tracemine.rows.arrow import rows_of
from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import (
    BoolArray,
    Categories,
    Column,
    ColumnDoc,
    Columns,
    Flags,
    Numbers,
    Rows,
    Sources,
    category,
    flags,
)

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
