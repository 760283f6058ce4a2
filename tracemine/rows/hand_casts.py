"""Weights that a program casts to half width itself, in every step: `F.linear(x, weight.to(x.dtype))`.

Told by dataflow: the copy's source is there before the step, or an optimizer wrote it; every step copies it; and
a product or convolution takes the copy where its weight stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tracemine.columns import sorted_unique
from tracemine.ops import dtype
from tracemine.rows.arrow import categories, rows_of, take
from tracemine.rows.graph import Graph
from tracemine.rows.signature import decoded_inputs
from tracemine.rows.table import BoolArray, Categories, IntArray, Rows, number
from tracemine.timeline import Timeline

_HALVES: Final = ("float16", "bfloat16")
# Where the weight of each operator stands, and the activation beside it.
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
    called = [take(categories(timeline.ops[name]), op_row) for name in ("name", "input_shapes", "input_dtypes")]
    casts = np.flatnonzero(_casts(called) & _known_sources(activities, graph, first))
    if not len(casts):
        return found
    casts = casts[_in_every_step(graph, casts, number(activities, "segment", -1)[first])]
    if len(casts):
        chosen = np.isin(graph.producer, casts)
        pairs = zip(graph.consumer[chosen].tolist(), graph.producer[chosen].tolist(), strict=True)
        own = [cast for user, cast in pairs if _is_weight(_text(called, user), _text(called, cast))]
        found[graph.activity[graph.activity_begin[np.array(own, np.int64)]]] = True
    return found


def _casts(called: Sequence[Categories]) -> BoolArray:
    """Return nodes that copy float32 to half width."""
    names, _, types = called
    copies = np.array([*(name == "aten::copy_" for name in names.values), False], np.bool_)[names.codes]
    halves = np.array([*(_to_half(text) for text in types.values), False], np.bool_)[types.codes]
    found: BoolArray = copies & halves
    return found


def _to_half(types: str) -> bool:
    """Return whether a call of `copy_` is one from float32 to half width.

    >>> _to_half('["c10::Half","float","Scalar"]'), _to_half('["float","c10::Half","Scalar"]')
    (True, False)
    """
    inputs = decoded_inputs("[]", types, None, None)
    kinds = [dtype(str(kind)) for kind in inputs[1][:2]] if inputs is not None and isinstance(inputs[1], list) else []
    return len(kinds) > 1 and kinds[0] in _HALVES and kinds[1] == "float32"


def _known_sources(activities: Rows, graph: Graph, first: IntArray) -> BoolArray:
    """Return nodes that read nothing but what is there before, or what an optimizer wrote."""
    update = number(activities, "update", -1)[first] >= 0
    made = np.bincount(graph.consumer[~update[graph.producer]], minlength=len(graph)) > 0
    found: BoolArray = graph.told & ~made
    return found


def _in_every_step(graph: Graph, casts: IntArray, segment: IntArray) -> BoolArray:
    """Return which of these copy memory that is copied in each of two steps or more."""
    steps = len(sorted_unique(segment[segment > 0]))
    reads = graph.read_begin[casts]
    known = (reads < graph.read_begin[casts + 1]) & (segment[casts] > 0)
    source = np.where(known, np.append(graph.read_buffer, -1)[reads], -1)
    pairs = np.unique(np.stack([source, segment[casts]]), axis=1)
    sources, counts = np.unique(pairs[0], return_counts=True)
    found: BoolArray = known & np.isin(source, sources[counts == steps]) & (steps > 1)
    return found


def _is_weight(user: Sequence[str | None], cast: Sequence[str | None]) -> bool:
    """Return whether a call takes a copy where its weight stands, told by shapes.

    >>> copy = "aten::copy_", "[[32,64],[32,64],[]]", '["c10::Half","float","Scalar"]'
    >>> _is_weight(("aten::mm", "[[8,64],[64,32]]", '["c10::Half","c10::Half"]'), copy)
    True
    >>> _is_weight(("aten::mm", "[[32,64],[64,16]]", '["c10::Half","c10::Half"]'), copy)
    False
    >>> _is_weight(("aten::bmm", "[[1,8,64],[1,64,32]]", '["c10::Half","c10::Half"]'), copy)  # of an einsum
    True
    """
    places = _OPERANDS.get(user[0] or "")
    operands, copied = ([_unbatched(shape) for shape in _shapes(text)] for text in (user[1], cast[1]))
    shape = copied[0] if copied else None
    if places is None or len(operands) <= max(places) or not isinstance(shape, list) or len(shape) < 2:
        return False
    alike = [shape, [*shape[:-2], shape[-1], shape[-2]]]  # as it is, and transposed
    weight, activation = places
    return operands[weight] in alike and operands[activation] not in alike


def _unbatched(shape: Any) -> Any:
    return shape[1:] if isinstance(shape, list) and len(shape) == 3 and shape[0] == 1 else shape


def _shapes(text: str | None) -> list[Any]:
    inputs = decoded_inputs(text, "[]", None, None)
    return inputs[0] if inputs is not None and isinstance(inputs[0], list) else []


def _text(called: Sequence[Categories], node: int) -> list[str | None]:
    return [column.values[code] if (code := int(column.codes[node])) >= 0 else None for column in called]
