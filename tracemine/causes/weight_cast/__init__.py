"""Weights cast anew in each step.

Recognised by dataflow: the copy's source is there before the step, or an optimizer wrote it; every step copies it; and
a product or convolution takes the copy where its weight stands.

Each distinct call is looked at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tracemine.calls import Call, calls_of
from tracemine.calls.call import Extents
from tracemine.causes.cause import Cause
from tracemine.columns import codes, examples, sorted_unique, unique_pairs
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.lists import ListedCall, Lists
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Curves, Estimate, Pass, Range, Traffic
from tracemine.perfmodel.group import listed_ns
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.ancestors import taken
from tracemine.rows.arrow import categories, named_at, rows_of
from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import BoolArray, Column, ColumnDoc, Columns, Flags, IntArray, Rows, Sources, number
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


# Arguments that are weights or biases, of operators that autocast gives half-width operands, and the activation's.
_WEIGHTS: Final = {
    **dict.fromkeys(("linear", *(f"conv{n}d" for n in (1, 2, 3))), ((1, 2), 0)),
    **dict.fromkeys((f"conv_transpose{n}d" for n in (1, 2, 3)), ((1, 2), 0)),
    "addmm": ((0, 2), 1),
}


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    timeline = sources.timeline
    return {"weight_cast": Flags(_within_operators(timeline) | hand_casts(timeline, activities))}


def _within_operators(timeline: Timeline) -> BoolArray:
    """Return copies to half width that autocast makes of a product's or convolution's weight or bias.

    Autocast casts within the operator: `aten::linear` > `aten::to` > `aten::_to_copy` > `aten::copy_`.
    """
    names, op_row = categories(timeline.ops["name"]), rows_of(timeline.activities["op_row"])
    parent, calls = rows_of(timeline.ops["parent_row"]), calls_of(timeline)
    found = np.zeros(len(op_row), np.bool_)
    rows = np.flatnonzero(named_at(names, op_row, "aten::copy_"))
    at = op_row[rows]
    for name in ("aten::_to_copy", "aten::to"):
        at = taken(parent, at)
        inside = named_at(names, at, name)
        rows, at = rows[inside], at[inside]
    outer = taken(parent, at)
    rows, outer = rows[outer >= 0], outer[outer >= 0]
    if not len(rows):
        return found
    (around, of_around), (copies, of_copy) = calls.distinct(outer), calls.distinct(op_row[rows])
    pair = codes(of_around, of_copy)
    one = examples(pair)
    pairs = zip(of_around[one].tolist(), of_copy[one].tolist(), strict=True)
    found[rows] = np.array([weight_cast(around[a], copies[b]) for a, b in pairs], np.bool_)[pair]
    return found


def weight_cast(around: Call, copy: Call) -> bool:
    """Return whether a copy within an operator takes a weight or bias to half width, and surely not the input.

    >>> linear = Call("aten::linear", ((8, 64), (32, 64), (32,)), ("float", "float", "float"))
    >>> weight_cast(linear, Call("aten::copy_", ((32, 64), (32, 64), ()), ("c10::Half", "float", "Scalar")))
    True
    >>> weight_cast(linear, Call("aten::copy_", ((8, 64), (8, 64), ()), ("c10::Half", "float", "Scalar")))
    False
    """
    weights = _WEIGHTS.get(around.name.removeprefix("aten::"))
    operands, copied = around.shapes or (), copy.shapes or ()
    if weights is None or len(copied) < 2 or len(operands) > len(around.dtypes or ()):
        return False
    if copy.dtype(0) not in HALVES or copy.dtype(1) != "float32":
        return False
    alike = [at for at, shape in enumerate(operands) if shape == copied[1] and around.dtype(at) == "float32"]
    places, activation = weights
    return any(at in places for at in alike) and activation not in alike


COLUMNS = Columns(
    docs=(
        ColumnDoc("weight_cast", "flags", "a copy from float32 to half width that autocast makes of a weight or bias, within `linear`, `addmm` or a convolution: recognised by the argument whose shape it has, and not where the input has the same; or one that the program makes in every step of what is there before, or what an optimizer wrote, for the weight of a product or convolution"),
    ),
    derive=_columns,
)  # fmt: skip


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate what is left of casts of weights."""
    facts, members = context.facts["activities"], matrix[0]
    calls = context.lists.calls(facts.op_row[members], [""] * len(members))
    if len(calls) < len(members):
        return Abstained("bytes_unknown")
    copied, moved_bytes = cast_pass(context.lists, calls)
    measured_ns = float(facts.dur_ns[matrix].mean(axis=0).sum())
    found = cast_once(copied, moved_bytes, measured_ns, context.curves, training=context.training)
    return on_gpu(context, matrix, found)


def cast_pass(lists: Lists, calls: Sequence[ListedCall]) -> tuple[Pass, int]:
    """Return copies of weights from float32 to half width as one pass over lists, and the bytes that are moved now.

    Autocast entered several times a step copies a weight as often: recorded tensors put it in the pass once.
    """
    sizes = [call.sizes[0][0] if call.sizes else 0 for call in calls]
    sources = [_source(lists, call) for call in calls]
    own = list(dict(zip(sources, sizes, strict=True)).values()) if all(sources) else sizes
    return Pass(reads=4 * sum(own), writes=2 * sum(own), sizes=tuple(own), lists=2), 6 * sum(sizes)


def _source(lists: Lists, call: ListedCall) -> tuple[int, int] | None:
    """Return which memory a call of `copy_` copies; None where that was not recorded."""
    return next((t.memory for t in lists.tensors(call.row) if not t.is_output and t.position == 1), None)


def cast_once(
    copied: Pass, moved_bytes: int, measured_ns: float, curves: Curves | None, *, training: bool
) -> Estimate | Abstained:
    """Estimate weights kept at half width in place of being copied in every step, which moves so many bytes.

    In training they change with every step: the optimizer writes them too (low end), or lists are copied (middle).

    >>> from tracemine.devices import find_device
    >>> curves = Curves.of(find_device("NVIDIA H200"))
    >>> copied = Pass(reads=4 << 20, writes=2 << 20, sizes=(1 << 20,), lists=2)
    >>> cast_once(copied, 6 << 20, 30_000, curves, training=False).after_ns.high
    0
    """
    if curves is None:
        return Abstained("device_unknown")
    traffic = Traffic(before=moved_bytes, after=0)
    if not training:
        return Estimate(after_ns=Range(0, 0, 0), traffic_bytes=traffic, assumptions=("nothing is left of it",))
    written = curves.memory_ns(0, copied.writes, 0.0) - curves.memory_ns(0, 1, 0.0)
    mid = min(max(listed_ns(curves, copied), written), measured_ns)
    return Estimate(
        after_ns=outwards(min(written, mid), mid, measured_ns),
        traffic_bytes=Traffic(before=traffic.before, after=copied.writes),
        assumptions=(
            "low end: the optimizer writes the copies in its own pass; middle: lists of weights are copied behind it; "
            "high end: as long as now",
        ),
    )


CAUSE = Cause(rule="weight_cast", columns=COLUMNS, estimate=estimate, fix_at=f"{__name__}.fix:FIX")
