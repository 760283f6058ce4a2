"""What eager's own roundings may come to: each call's error, carried through the calls after it with other signs.

How far eager is from float64 in one element is chance: errors cancel, or add up. Here every call is run once more in
float64 on what eager gave it; the difference is what that call alone rounded off. The chain in float64, with those
differences added with signs drawn at random, gives other results that as careful a program could have had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_ROUNDING = 2.0**-24  # of a float32, as a share of the number
DRAWS = 8  # of signs: one element's size is told by as many


class InDouble(TorchDispatchMode):  # type: ignore[misc]
    """Runs a chain in float64: what it casts to a float stays wide.

    offs: what to add to the results of each call, with signs drawn from `generator`; none: the truth.
    """

    def __init__(self, offs: Sequence[Sequence[Any]] = (), generator: Any = None) -> None:
        super().__init__()
        self.offs, self.generator, self.at = offs, generator, 0

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        """One call."""
        found = widely(function, given, named or {})
        if self.at < len(self.offs):
            for tensor, off in zip(tensors_of(function, given, found), self.offs[self.at], strict=True):
                add_signed(tensor, off, self.generator)
        self.at += 1
        return found


class Recorded(TorchDispatchMode):  # type: ignore[misc]
    """Runs a chain as it is, and keeps what each call rounds off: `offs`, None where a result is exact."""

    def __init__(self) -> None:
        super().__init__()
        self.offs: list[list[torch.Tensor | None]] = []

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        """One call."""
        wide = _wide(given)
        exact = tensors_of(function, wide, widely(function, wide, named or {}))
        found = function(*given, **(named or {}))
        reached = max((t for t in _flat(given) if _is_float(t)), key=torch.numel, default=None)
        results = zip(tensors_of(function, given, found), exact, strict=True)
        self.offs.append([rounded_off(a, b, reached) for a, b in results])
        return found


def widely(function: Any, given: Sequence[Any], named: Any) -> Any:
    """A call in float64."""
    wide = {n: torch.float64 if v in _FLOATS else v for n, v in named.items()}
    taken = [torch.float64 if isinstance(v, torch.dtype) and v in _FLOATS else v for v in given]
    if "_softmax" in str(function):
        taken = [False if v is True else v for v in taken]  # half_to_float
    return function(*taken, **wide)


def tensors_of(function: Any, given: Sequence[Any], found: Any) -> list[torch.Tensor]:
    """The tensors that a call gives, or those that it writes where it gives none."""
    if found is None:
        written = [a.alias_info is not None and a.alias_info.is_write for a in function._schema.arguments]
        found = [v for v, is_written in zip(given, written, strict=False) if is_written]
    return [t for t in _flat(found) if isinstance(t, torch.Tensor)]


def _flat(found: Any) -> list[Any]:
    return [t for each in found for t in _flat(each)] if isinstance(found, list | tuple) else [found]


def _wide(value: Any) -> Any:
    """Copies, floats in float64."""
    if isinstance(value, list | tuple):
        return [_wide(each) for each in value]
    if not isinstance(value, torch.Tensor):
        return value
    return value.double() if value.dtype in _FLOATS else value.clone()


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _FLOATS


def rounded_off(found: torch.Tensor, exact: torch.Tensor, reached: torch.Tensor | None = None) -> torch.Tensor | None:
    """What a result lacks of the exact one; None where that is nothing, or nothing that rounding does.

    reached: the largest tensor that the call reads. Of many numbers one is made in float32 on the way, and where they
    cancel, as in a mean, it is rounded as numbers of their size are: eager may have been luckier, or summed in wider
    types, and a program that was not is as careful.
    """
    if found.dtype not in _FLOATS or found.shape != exact.shape:
        return None
    off = (found.double() - exact.double()).nan_to_num(0.0, 0.0, 0.0)
    if not bool(off.any()):
        return None
    if reached is not None and 0 < 2 * found.numel() <= reached.numel():
        least = _ROUNDING * float(reached.double().nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt())
        off = torch.where(off.abs() < least, least, off)
    return off.float()


def add_signed(tensor: torch.Tensor, off: torch.Tensor | None, generator: Any) -> None:
    """Adds what was rounded off with signs drawn at random."""
    if off is not None and tensor.dtype == torch.float64:
        signs = torch.randint(0, 2, off.shape, generator=generator, device=off.device, dtype=torch.int8) * 2 - 1
        tensor.add_(off * signs)


def spread(
    chain: Callable[..., Any],
    inputs: Callable[[], Sequence[torch.Tensor]],
    wide: Callable[[], Sequence[torch.Tensor]],
    truth: Sequence[torch.Tensor],
) -> list[torch.Tensor] | None:
    """What each element of a chain's results may be off by: root mean square over a few draws of signs.

    chain: takes tensors, gives a sequence of them. inputs, wide: fresh ones, and such with floats in float64. truth:
    what the chain gives in float64, and its inputs after that. None where the chain makes other calls in float64.
    """
    taken = inputs()
    with Recorded() as recorded:
        chain(*taken)
    squares = [torch.zeros(t.shape, dtype=torch.float64, device=t.device) for t in truth]
    generator = torch.Generator(truth[0].device if truth else "cpu").manual_seed(0)
    for _ in range(DRAWS):
        taken = wide()
        try:
            with InDouble(recorded.offs, generator) as run:
                found = [*(chain(*taken) or ()), *taken]
        except ValueError:  # a call gives another number of results
            return None
        if run.at != len(recorded.offs):
            return None
        for square, a, b in zip(squares, found, truth, strict=True):
            square += (a.double() - b.double()).nan_to_num(0.0, 0.0, 0.0).square()
    return [(square / DRAWS).sqrt() for square in squares]
