"""Casts whose result is undefined: NaN to an integer, and numbers out of range of the integer or fp8 type.

C leaves them undefined; CPUs and GPUs differ, and PyTorch's own versions: an fp8 code of 500 is NaN in one, 448 in the
next. A graph that makes such casts is run once more with other numbers in their places. What is another number then,
no kernel need give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tracemine.validate.roundings import Mode, operator_of

_CASTS = ("_to_copy", "copy_")
_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


class Casts(Mode):
    """Run a graph. `met`: whether it made such a cast. other: whether to give another number where it does."""

    def __init__(self, other: bool = False) -> None:
        super().__init__()
        self.other, self.met = other, False

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        """Run one call."""
        name = operator_of(function)
        undefined_here = None
        if name in _CASTS:
            named = named or {}
            target = given[0].dtype if name == "copy_" else named.get("dtype")
            undefined_here = undefined(given[name == "copy_"], target)
        found = function(*given, **(named or {}))
        if undefined_here is not None and bool(undefined_here.any()):
            self.met = True
            if self.other:
                bits = found.view(torch.uint8) if found.dtype in _FP8 else found
                bits.copy_(torch.where(undefined_here, 0x38 if found.dtype in _FP8 else ~bits, bits))
        return found


def undefined(source: Any, target: torch.dtype | None) -> torch.Tensor | None:
    """Return where a float has no number of another dtype; None where the cast is none to integers or codes."""
    if not isinstance(source, torch.Tensor) or not source.dtype.is_floating_point or target in (None, torch.bool):
        return None
    if target in _FP8:
        return source.abs().double() > torch.finfo(target).max
    if target is None or target.is_floating_point or target.is_complex:
        return None
    bounds = torch.iinfo(target)
    wide = source.double()
    return ~((wide > float(bounds.min) - 1) & (wide < float(bounds.max) + 1))


def defined(run: Callable[[], tuple[Sequence[Any], Sequence[Any]]]) -> tuple[list[Any], list[Any]]:
    """Return what eager gives and what is right, both from `run`; right is NaN where the result is undefined."""
    with Casts() as casts:
        eager, truth = run()
    if not casts.met:
        return list(eager), list(truth)
    with Casts(other=True):
        others = run()
    marked = []
    for ours, right, other, wide in zip(eager, truth, *others, strict=True):
        undefined_here = _differ(ours, other) | _differ(right, wide)
        marked.append(torch.where(undefined_here, torch.nan, right.double()) if bool(undefined_here.any()) else right)
    return list(eager), marked


def _differ(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if not a.dtype.is_floating_point:
        return a != b
    x, y = a.double(), b.double()
    return (x != y) & ~(x.isnan() & y.isnan())
