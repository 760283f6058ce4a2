"""Eager attention as the fused call that takes its place: sizes, and how long that call takes.

The products tell the sizes: [heads, queries, width] by [heads, width, keys] gives the scores, and probabilities by
[heads, keys, width] the result, or [heads, width, keys] by the turned probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from tracemine.calls.call import sizes
from tracemine.causes.attention_unfused.fused_call import Attention, attention_ns, backend_of
from tracemine.causes.attention_unfused.scores import function_of_scores
from tracemine.findings.lists import Lists
from tracemine.ops.dtypes import HALF
from tracemine.ops.infer.tensor import Sizes
from tracemine.perfmodel import NOTHING, Abstained, Estimate, Rates
from tracemine.perfmodel.ranges import outwards

_PRODUCTS: Final = {"aten::bmm": 0, "aten::baddbmm": 1}  # position of the first factor
_SOFTMAX, _BACKWARD = ("aten::_softmax", "aten::softmax"), "aten::_softmax_backward_data"
_BY_CONDITION: Final = frozenset({"aten::masked_fill", "aten::masked_fill_", "aten::where"})
_MASKS: Final = _BY_CONDITION | {"aten::add", "aten::add_"}
_DROPOUT, _COPY = "aten::native_dropout", "aten::copy_"
_OPERANDS: Final = ("queries", "keys", "values")
# flex_attention is a compiled kernel of Triton's, not a library's: how much longer it takes (assumed).
_FLEX: Final = (1.0, 1.3, 2.0)
# ROCm numbers its chips otherwise: "9.4" is no Hopper. Which of torch's conditions hold there was not looked into.
_TAKEN_FOR: Final = 8, 0
_Factors = tuple[tuple[int, ...], tuple[int, ...], str]
_NOT_MEASURED: Final = "its kernels are taken to do as well as NVIDIA's, of which alone some were measured (assumed)"


class EagerAttention(Struct, frozen=True, kw_only=True):
    """One occurrence. `call`: the forward pass of the fused call that takes its place."""

    call: Attention
    trained: bool  # its backward pass is part of it
    other_scores: bool  # its scores go through a function that the fused call does not have
    by_condition: bool  # its mask is a condition, which the fused call makes numbers of
    cast_up: bool = False  # its products' operands, from half precision: the fused call takes them as they were


def eager_attention(lists: Lists, op_rows: Sequence[int]) -> EagerAttention | None:
    """Return what one occurrence computes, by its operators in time order; None where shapes do not tell.

    The first product before the softmax gives the scores, the first one behind it takes the probabilities.
    """
    rows = [row for row in dict.fromkeys(op_rows) if row >= 0 and lists.name(row)]
    names = [lists.name(row) for row in rows]
    products = _around_softmax(names)
    if products is None:
        return None
    before, after = products
    scores, values = (_factors(lists, rows[k], _PRODUCTS[names[k]]) for k in products)
    value_width = None if scores is None or values is None else _value_width(scores, values)
    if scores is None or value_width is None:
        return None
    heads, queries, width = scores[0]
    between = set(names[before:after])
    half = _cast_from(lists, rows, names, before)
    call = Attention(
        batch=1, heads=heads, queries=queries, keys=scores[1][2], width=width, value_width=value_width,
        dtype=half or scores[2], mask=bool(between & _MASKS) or names[before] == "aten::baddbmm",
        dropout=_DROPOUT in between,
    )  # fmt: skip
    return EagerAttention(
        call=call,
        trained=_BACKWARD in names,
        other_scores=function_of_scores(lists, rows) is not None,
        by_condition=bool(between & _BY_CONDITION),
        cast_up=half is not None,
    )


def _around_softmax(names: Sequence[str]) -> tuple[int, int] | None:
    """Return the places of the last product before the softmax and of the first one after it."""
    at = next((k for k, name in enumerate(names) if name in _SOFTMAX), len(names))
    before = [k for k in range(at) if names[k] in _PRODUCTS]
    after = [k for k in range(at, len(names)) if names[k] in _PRODUCTS]
    return (before[-1], after[0]) if before and after else None


def _cast_from(lists: Lists, rows: Sequence[int], names: Sequence[str], scores: int) -> str | None:
    """Return the dtype in half precision that queries, keys and values all were cast up from, outside of the scores."""
    softmax = next(k for k, name in enumerate(names) if name in _SOFTMAX)
    copies = [lists.recorded(row) for row in (*rows[:scores], *rows[softmax:]) if lists.name(row) == _COPY]
    casts = [copy.dtype(1) for copy in copies if copy.dtype(0) == "float32" and copy.dtype(1) in HALF]
    return casts[0] if len(casts) == len(_OPERANDS) and len(set(casts)) == 1 else None


def _value_width(scores: _Factors, values: _Factors) -> int | None:
    """Return the width of a value; None where the second product does not take the first one's probabilities."""
    (heads, queries, _), (_, _, keys) = scores[:2]
    first, second = values[:2]
    if first == (heads, queries, keys) and second[:2] == (heads, keys):
        return second[2]
    transposed = second == (heads, keys, queries) and (first[0], first[2]) == (heads, keys)
    return first[1] if transposed else None


def _factors(lists: Lists, row: int, position: int) -> _Factors | None:
    """Return the shapes of a product's two factors, and their dtype."""
    call = lists.recorded(row)
    first, second = (sizes(each) for each in (*lists.shapes(row)[position : position + 2], (), ())[:2])
    kind = call.dtype(position)
    if first is None or second is None or kind is None or not (_is_batched(first) and _is_batched(second)):
        return None
    return first, second, kind


def _is_batched(shape: Sizes) -> bool:
    return len(shape) == 3 and 0 not in shape


def fused_attention(
    eager: EagerAttention,
    rates: Rates,
    capability: str | None,
    torch: tuple[int, int] | None,
    written_bytes: int | None,
    *,
    amd: bool = False,
) -> Estimate | Abstained:
    """Estimate the fused call, backward pass too where it is part of it.

    written_bytes: what its members write of scores and probabilities now.
    """
    major, _, minor = (capability or "").partition(".")
    if not (major.isdigit() and minor.isdigit()):
        return Abstained("device_unknown")
    chip = _TAKEN_FOR if amd else (int(major), int(minor))
    passes = [eager.call, replace(eager.call, backward=True)] if eager.trained else [eager.call]
    after = NOTHING
    for each in passes:
        took = attention_ns(each, rates, chip, torch)
        if isinstance(took, Abstained):
            return took
        after += took
    backend, passed_over = backend_of(eager.call, chip, torch)
    says = [_NOT_MEASURED] if amd else [f"the {backend} backend takes it", *passed_over]
    if eager.cast_up:
        says.append(f"queries, keys and values are given as they were, in {eager.call.dtype}")
    if eager.other_scores:
        after = outwards(*(ns * times for ns, times in zip((after.low, after.mid, after.high), _FLEX, strict=True)))
        says = [
            *says[: int(amd)],
            f"flex_attention takes {_FLEX[0]:g} to {_FLEX[2]:g} times as long as a library's kernel (assumed)",
        ]
    return Estimate(after_ns=after, intermediate_bytes=written_bytes, assumptions=tuple(says))
