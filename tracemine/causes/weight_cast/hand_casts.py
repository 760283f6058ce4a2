"""Weights that a program casts to half width itself, in every step: `F.linear(x, weight.to(x.dtype))`.

Recognised by dataflow: the copy's source is there before the step, or an optimizer wrote it; every step copies it; and
a product or convolution takes the copy where its weight stands.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tracemine.calls import Call, calls_of
from tracemine.calls.text import Extents
from tracemine.columns import sorted_unique, unique_pairs
from tracemine.rows.arrow import rows_of
from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import BoolArray, IntArray, Rows, number
from tracemine.timeline import Timeline

HALVES: Final = ("float16", "bfloat16")
# Where the weight of each operator stands, and the activation next to it.
_OPERANDS: Final = {
    "aten::mm": (1, 0), "aten::bmm": (1, 0), "aten::addmm": (2, 1), "aten::baddbmm": (2, 1), "aten::linear": (1, 0),
    **dict.fromkeys(("aten::cudnn_convolution", "aten::convolution", "aten::_convolution"), (1, 0)),
    **dict.fromkeys(("aten::miopen_convolution", "aten::_conv_depthwise2d"), (1, 0)),
}  # fmt: skip


def hand_casts(timeline: Timeline, activities: Rows) -> BoolArray:
    """Return, for each activity, whether it is such a copy."""
    found = np.zeros(activities.count, np.bool_)
    graph = activities.graph
    if graph is None or not len(graph.activity):
        return found
    first = graph.first_activity
    op_row = rows_of(timeline.activities["op_row"])[first]
    calls = calls_of(timeline)
    casts = np.flatnonzero(calls.spread(op_row, _to_half, False, np.bool_) & known_sources(activities, graph, first))
    if not len(casts):
        return found
    casts = casts[_in_every_step(graph, casts, number(activities, "segment", -1)[first])]
    if len(casts):
        chosen = np.isin(graph.producer, casts)
        pairs = zip(graph.consumer[chosen].tolist(), graph.producer[chosen].tolist(), strict=True)
        own = [cast for user, cast in pairs if is_weight(calls.at(op_row[user]), calls.at(op_row[cast]))]
        found[graph.activity[graph.activity_begin[np.array(own, np.int64)]]] = True
    return found


def _to_half(call: Call) -> bool:
    """Return whether a call copies float32 to half width.

    >>> [_to_half(Call("aten::copy_", None, types)) for types in (("c10::Half", "float"), ("float", "c10::Half"))]
    [True, False]
    """
    return call.name == "aten::copy_" and call.dtype(0) in HALVES and call.dtype(1) == "float32"


def known_sources(activities: Rows, graph: NodeGraph, first: IntArray) -> BoolArray:
    """Return nodes that read nothing but what is there before, or what an optimizer wrote."""
    update = number(activities, "update", -1)[first] >= 0
    made = np.bincount(graph.consumer[~update[graph.producer]], minlength=len(graph)) > 0
    found: BoolArray = graph.told & ~made
    return found


def _in_every_step(graph: NodeGraph, casts: IntArray, segment: IntArray) -> BoolArray:
    """Return which of these copy memory that is copied in each of two steps or more."""
    steps = len(sorted_unique(segment[segment > 0]))
    reads = graph.read_begin[casts]
    known = (reads < graph.read_begin[casts + 1]) & (segment[casts] > 0)
    source = np.where(known, np.append(graph.read_buffer, -1)[reads], -1)
    pairs = unique_pairs(source, segment[casts])
    sources, counts = np.unique(pairs[0], return_counts=True)
    found: BoolArray = known & np.isin(source, sources[counts == steps]) & (steps > 1)
    return found


def is_weight(user: Call | None, cast: Call | None) -> bool:
    """Return whether a call takes a copy where its weight stands, by shapes.

    >>> cast, types = Call("aten::copy_", ((32, 64), (32, 64), ())), ("c10::Half", "c10::Half")
    >>> takes = ((8, 64), (64, 32)), ((32, 64), (64, 16)), ((1, 8, 64), (1, 64, 32))  # the last is an einsum's
    >>> [is_weight(Call("aten::bmm", shapes, types), cast) for shapes in takes]
    [True, False, True]
    """
    if user is None or cast is None:
        return False
    places = _OPERANDS.get(user.name)
    operands, copied = ([_unbatched(shape) for shape in call.shapes or ()] for call in (user, cast))
    shape = copied[0] if copied else ()
    if places is None or len(operands) <= max(places) or len(shape) < 2:
        return False
    alike = [shape, (*shape[:-2], shape[-1], shape[-2])]  # as it is, and transposed
    weight, activation = places
    return operands[weight] in alike and operands[activation] not in alike


def _unbatched(shape: Extents) -> Extents:
    return shape[1:] if len(shape) == 3 and shape[0] == 1 else shape
