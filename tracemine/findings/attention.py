"""Attention spelled out, as the fused call that takes its place: sizes, and what that call takes.

The products tell the sizes: [heads, queries, width] by [heads, width, keys] gives the scores, and probabilities by
[heads, keys, width] the result, or [heads, width, keys] by the turned probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tracemine.findings.lists import Lists
from tracemine.ops import dtype
from tracemine.perfmodel import NOTHING, Abstained, Attention, Estimate, Range, Rates, attention_ns, backend_of
from tracemine.perfmodel.ranges import outwards

_PRODUCTS: Final = {"aten::bmm": 0, "aten::baddbmm": 1}  # place of the first factor
_SOFTMAX, _BACKWARD = ("aten::_softmax", "aten::softmax"), "aten::_softmax_backward_data"
_MASKS: Final = frozenset({"aten::add", "aten::add_", "aten::masked_fill", "aten::masked_fill_", "aten::where"})
_OTHER_SCORES: Final = frozenset({"aten::tanh", "aten::tanh_"})
_DROPOUT = "aten::native_dropout"
# flex_attention is a compiled kernel of Triton's, not a library's: how much longer it takes (assumed).
_FLEX: Final = (1.0, 1.3, 2.0)
# ROCm numbers its chips otherwise: "9.4" is no Hopper. Which of torch's conditions hold there was not looked into.
_TAKEN_FOR: Final = 8, 0
_NOT_MEASURED: Final = "its kernels are taken to do as well as NVIDIA's, of which alone some were measured (assumed)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelled:
    """One occurrence. `call`: the forward pass of the fused call that takes its place."""

    call: Attention
    trained: bool  # its backward pass is part of it
    other_scores: bool  # its scores go through a function that the fused call does not have


def spelled(lists: Lists, op_rows: Sequence[int]) -> Spelled | None:
    """What one occurrence computes, by its operators in the order of time; None where shapes do not tell.

    The first product before the softmax gives the scores, the first one behind it takes the probabilities.
    """
    rows = [row for row in dict.fromkeys(op_rows) if row >= 0 and lists.name(row)]
    told = [lists.name(row) for row in rows]
    at = next((k for k, name in enumerate(told) if name in _SOFTMAX), None)
    if at is None:
        return None
    before = [k for k in range(at) if told[k] in _PRODUCTS]
    after = [k for k in range(at, len(rows)) if told[k] in _PRODUCTS]
    if not before or not after:
        return None
    scores, values = (_factors(lists, rows[k], _PRODUCTS[told[k]]) for k in (before[-1], after[0]))
    if scores is None or values is None:
        return None
    (heads, queries, width), (_, _, keys) = scores[0], scores[1]
    if values[0] == (heads, queries, keys) and values[1][:2] == (heads, keys):
        value_width = values[1][2]
    elif values[1] == (heads, keys, queries) and (values[0][0], values[0][2]) == (heads, keys):
        value_width = values[0][1]
    else:
        return None
    between = set(told[before[-1] : after[0]])
    call = Attention(
        batch=1, heads=heads, queries=queries, keys=keys, width=width, value_width=value_width, dtype=scores[2],
        mask=bool(between & _MASKS) or told[before[-1]] == "aten::baddbmm", dropout=_DROPOUT in between,
    )  # fmt: skip
    return Spelled(call=call, trained=_BACKWARD in told, other_scores=bool(between & _OTHER_SCORES))


def _factors(lists: Lists, row: int, place: int) -> tuple[tuple[int, ...], tuple[int, ...], str] | None:
    """Shapes of a product's two factors, and their dtype."""
    shapes: list[Any] = lists.shapes(row)
    types = lists.types(row)
    if len(shapes) < place + 2 or len(types) < place + 2:
        return None
    one, other = shapes[place : place + 2]
    whole = all(
        isinstance(s, list) and len(s) == 3 and all(type(n) is int and 0 < n < 1 << 40 for n in s) for s in (one, other)
    )
    kind = dtype(str(types[place]))
    return (tuple(one), tuple(other), kind) if whole and kind is not None else None


def in_one_call(
    found: Spelled,
    rates: Rates,
    capability: str | None,
    torch: tuple[int, int] | None,
    written_bytes: int | None,
    *,
    amd: bool = False,
) -> Estimate | Abstained:
    """What the fused call takes, backward pass too where it is part of it. written_bytes: what its members write of
    scores and probabilities now.
    """
    major, _, minor = (capability or "").partition(".")
    if not (major.isdigit() and minor.isdigit()):
        return Abstained("device_unknown")
    chip = _TAKEN_FOR if amd else (int(major), int(minor))
    passes = [found.call, replace(found.call, backward=True)] if found.trained else [found.call]
    after = NOTHING
    for each in passes:
        took = attention_ns(each, rates, chip, torch)
        if isinstance(took, Abstained):
            return took
        after += took
    backend = backend_of(found.call, chip, torch)
    says = [_NOT_MEASURED] if amd else [f"the {backend.name} backend takes it", *backend.passed_over]
    if found.other_scores:
        after = Range(*_scaled(after))
        says = [
            *says[: int(amd)],
            f"flex_attention takes {_FLEX[0]:g} to {_FLEX[2]:g} times as long as a library's kernel (assumed)",
        ]
    return Estimate(after_ns=after, intermediate_bytes=written_bytes, assumptions=tuple(says))


def _scaled(after: Range) -> tuple[int, int, int]:
    found = outwards(*(ns * times for ns, times in zip((after.low, after.mid, after.high), _FLEX, strict=True)))
    return found.low, found.mid, found.high
