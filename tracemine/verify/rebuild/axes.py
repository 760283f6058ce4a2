"""Axes of a reduction, where its arguments were not recorded: they follow from the shape of its result.

Older profilers record shapes, and no values of arguments. Two calls next to a reduction read its result, and so
record its shape:

- ATen gives the reduction's result back the axes that it lacks, before a kernel fills it
  (`review_reduce_result` in ReduceOpsUtils.h): inside a reduction that keeps no axes, and only there, is an
  `as_strided` of the result.
- Autograd sums a gradient to the shape of what it is of (`sum_to` in ExpandUtils.h, called by `validate_outputs` in
  engine.cpp): axes are kept, and where the gradient has more of them than that, a view follows at once.

And some operators call a reduction with axes of their own (`_MEANS`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from tracemine.calls import Call

# Their results go through review_reduce_result, and `dim` and `keepdim` are all that shapes depend on.
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
