"""Derive random numbers from random bits, and check that they look random: each element has bits of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

_DEVIATIONS = 5
_DRAWS = 1 << 24  # integers below this are drawn


def _uniform(draws: torch.Tensor, start: float = 0.0, end: float = 1.0) -> torch.Tensor:
    return start + draws.double() / _DRAWS * (end - start)


def _normal(draws: torch.Tensor, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
    return mean + std * torch.special.ndtri((draws.double() + 0.5) / _DRAWS)


def _exponential(draws: torch.Tensor, rate: float = 1.0) -> torch.Tensor:
    return (-((draws.double() + 1) / _DRAWS).log()).clamp_min(1 / _DRAWS) / rate


# By the operator the numbers that draws become, in float64, and what its numbers are to that.
RANDOM: Mapping[str, tuple[Callable[..., torch.Tensor], Mapping[str, str]]] = {
    "uniform_": (_uniform, {"from": "start", "to": "end"}),
    "rand": (_uniform, {}),
    "rand_like": (_uniform, {}),
    "normal_": (_normal, {"mean": "mean", "std": "std"}),
    "randn": (_normal, {}),
    "randn_like": (_normal, {}),
    "exponential_": (_exponential, {"lambd": "rate"}),
}


def random_numbers(operator: str, draws: torch.Tensor, given: Mapping[str, float]) -> torch.Tensor:
    """Return the numbers that an operator makes of draws. given: its arguments, those that are numbers."""
    make, names = RANDOM[operator.removeprefix("aten::")]
    return make(draws, **{names[name]: number for name, number in given.items()})


def coins(draws: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return for each draw whether it is in the upper half, and whether it is odd."""
    return draws >= _DRAWS // 2, draws % 2 == 1


def faults(masks: Sequence[torch.Tensor], shares: Sequence[float], again: Sequence[torch.Tensor] = ()) -> list[str]:
    """Return what shows that numbers are not random as they should be, beyond 5 standard deviations.

    shares: of elements that each keeps. again: what they keep with another seed.
    """
    found = [
        f"it keeps {int(mask.sum())} of {mask.numel()} elements where {share:g} of them should be"
        for mask, share in zip(masks, shares, strict=True)
        if mask.numel() and _unlikely(int(mask.sum()), mask.numel(), share)
    ]
    for says, one, share, other, others in _pairs(masks, shares, again):
        alike = share * others + (1 - share) * (1 - others)
        if one.shape == other.shape and one.numel() and _unlikely(int((one == other).sum()), one.numel(), alike):
            found.append(f"{says} are equal in {int((one == other).sum())} of {one.numel()} elements")
    return found


def _pairs(
    masks: Sequence[torch.Tensor], shares: Sequence[float], again: Sequence[torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor, float, torch.Tensor, float]]:
    """Yield masks that should have nothing to do with each other, with the shares that they keep."""
    for k, (mask, share) in enumerate(zip(masks, shares, strict=True)):
        for j in range(k):
            yield f"draws {j} and {k}", masks[j], shares[j], mask, share
        for d, size in enumerate(mask.shape):
            if size > 1:
                first, second = mask.narrow(d, 0, size - 1), mask.narrow(d, 1, size - 1)
                yield f"neighbours along axis {d}", first, share, second, share
    for mask, other, share in zip(masks, again, shares, strict=False):
        yield "two seeds", mask, share, other, share


def _unlikely(found: int, count: int, probability: float) -> bool:
    return abs(found - count * probability) > _DEVIATIONS * math.sqrt(count * probability * (1 - probability)) + 1
