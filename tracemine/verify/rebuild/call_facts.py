"""What a trace says of one operator call: its tensors, types and texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from tracemine.calls import Call
from tracemine.calls.call import Extents, sizes
from tracemine.ops import dtype
from tracemine.ops.infer.tensor import contiguous
from tracemine.verify.rebuild.view_recovery import Layout

# Axes of a reduction follow from the shape of its result, where a profiler recorded no arguments. Two calls record it:
# - ATen gives the result back the axes that it lacks (`review_reduce_result` in ReduceOpsUtils.h): inside a reduction
#   that keeps no axes, and only there, is an `as_strided` of the result.
# - Autograd sums a gradient to the shape of what it is of (`sum_to` in ExpandUtils.h, called by `validate_outputs` in
#   engine.cpp): axes are kept, and where the gradient has more of them than that, a view follows at once.
# And some operators call a reduction with axes of their own (`_MEANS`).
# Results of these go through review_reduce_result, and `dim` and `keepdim` are all that shapes depend on.
REDUCTIONS = frozenset({"aten::sum", "aten::mean", "aten::amax", "aten::amin"})
AUTOGRAD = "autograd::engine::evaluate_function: "
_MOST_AXES = 8
# Pooling to one element is a mean over the last axes, which are kept (AdaptiveAveragePooling.cpp and …Pooling3d.cpp).
_MEANS = {"aten::adaptive_avg_pool2d": 2, "aten::adaptive_avg_pool3d": 3}


_UNTOLD = "the axes of {} are not recorded: they follow from"


@dataclass(frozen=True, slots=True)
class Reduced:
    """What a reduction was asked for, and what it gave."""

    axes: tuple[int, ...]
    keeps: bool
    shape: tuple[int, ...]
    dtype: str | None
    says: str


def reduced(
    operator: str, shape: Sequence[int], inside: Sequence[Call], after: Call | None, around: str = ""
) -> Reduced | None:
    """Return what is known of a reduction of a shape; None where nothing tells it, or several sets of axes fit.

    after: the call that follows within the same node of autograd, where the reduction is that node's own. around: the
    operator that calls the reduction.

    >>> reduced("aten::sum", (16, 512), [], Call("aten::view", ((1, 512),), ("float",))).axes
    (0,)
    >>> reduced("aten::mean", (4, 8), [Call("aten::as_strided", ((4,),), ("float",))], None).axes
    (1,)
    >>> reduced("aten::mean", (8, 8), [Call("aten::as_strided", ((8,),), ("float",))], None)
    """
    if operator not in REDUCTIONS or len(shape) > _MOST_AXES:
        return None
    results = [call for call in inside if call.name == "aten::as_strided"]
    keeps = not results
    pooled = _MEANS.get(around, 0) if keeps and operator == "aten::mean" else 0
    if 0 < pooled < len(shape):
        last = tuple(range(len(shape) - pooled, len(shape)))
        one_each = (*shape[: len(shape) - pooled], *(1,) * pooled)
        return Reduced(last, True, one_each, None, f"{_UNTOLD.format(operator)} the call around it, {around}")
    if keeps and operator == "aten::sum" and after is not None and after.name == "aten::view":
        results = [after]
    if len(results) != 1:
        return None
    result, element = results[0].first_tensor
    if result is None or element is None or (axes := axes_between(shape, result, keeps=keeps)) is None:
        return None
    source = "the view that comes after it" if keeps else "the shape of its result, which a call inside it reads"
    return Reduced(axes, keeps, result, element, f"{_UNTOLD.format(operator)} {source}")


def axes_between(source: Sequence[int], result: Sequence[int], *, keeps: bool) -> tuple[int, ...] | None:
    """Return the axes whose reduction leads from one shape to another; None where none do, or several that differ.

    It is the same whether an axis of one element is among them: of those the fewest are taken.

    >>> axes_between((4, 8, 3), (8,), keeps=False), axes_between((1, 8), (8,), keeps=False)
    ((0, 2), (0,))
    >>> axes_between((4, 8, 3), (1, 8, 1), keeps=True), axes_between((4, 4), (4,), keeps=False)
    ((0, 2), None)
    """
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    places = range(len(source))
    for count in range(1, len(source) + 1):
        for axes in combinations(places, count):
            left = [1 if d in axes else n for d, n in enumerate(source) if keeps or d not in axes]
            if left == list(result):
                found.setdefault(tuple(d for d in axes if source[d] != 1), axes)
    return next(iter(found.values())) if len(found) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTensor:
    """One tensor that an operator took or gave. `buffer`: a storage, counted anew when it is allocated anew."""

    row: int  # of `tensors`; −1: of none
    position: int
    member: int  # of a list; −1: no list
    buffer: tuple[str, int]
    layout: Layout
    dtype: str | None
    on_host: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """One operator call of a node."""

    node: int
    op_row: int
    operator: str
    overload: str | None  # None: the operator's schema is not known
    parents: tuple[str, ...]  # the ATen operators around it, innermost first
    inputs: tuple[RecordedTensor, ...]
    outputs: tuple[RecordedTensor, ...]
    types: tuple[str, ...]  # as recorded, one an argument
    texts: tuple[str, ...] | None
    shapes: tuple[Extents, ...]  # as recorded, one an argument
    strides: tuple[Extents, ...]
    kernels: tuple[str, ...]  # names
    reduced: Reduced | None = None  # of a reduction whose arguments were not recorded


def from_outside(facts: CallFacts, place: int) -> RecordedTensor | None:
    """Return a tensor argument of which nothing tells where it comes from, by what the call recorded of it."""
    return outside(facts.op_row, place, facts.shapes, facts.strides, facts.types)


def outside(
    op_row: int, place: int, shapes: Sequence[Extents], all_strides: Sequence[Extents], types: Sequence[str]
) -> RecordedTensor | None:
    guessed = not all_strides
    if place >= min(len(types), len(shapes), len(shapes if guessed else all_strides)):
        return None
    shape, name = sizes(shapes[place]), dtype(types[place])
    if name is None or shape is None:
        return None
    strides = contiguous(shape) if guessed else sizes(all_strides[place])
    if strides is None or len(shape) != len(strides):
        return None
    layout = Layout(0, shape, strides, guessed and bool(shape))
    own = ("call", op_row * 256 + place)
    return RecordedTensor(row=-1, position=place, member=-1, buffer=own, layout=layout, dtype=name, on_host=False)


def with_result(facts: CallFacts) -> CallFacts:
    """Return the call with its result where only the shape is known: new memory without gaps, and no known consumer."""
    told = facts.reduced
    if told is None or facts.outputs:
        return facts
    guessed = bool(told.shape) and any(seen.layout.guessed for seen in facts.inputs)
    layout = Layout(0, told.shape, contiguous(told.shape), guessed)
    own = ("result", facts.op_row)
    given = RecordedTensor(row=-1, position=0, member=-1, buffer=own, layout=layout, dtype=told.dtype, on_host=False)
    return replace(facts, outputs=(given,))
