"""Whether what a dropout keeps looks drawn: as much as it should, and each element by a draw of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

_DEVIATIONS = 5


def faults(masks: Sequence[torch.Tensor], shares: Sequence[float], again: Sequence[torch.Tensor] = ()) -> list[str]:
    """What gives dropouts away that do not draw as they should, within 5 standard deviations.

    shares: of elements that each keeps. again: what they keep with another seed.
    """
    found = [
        f"dropout keeps {int(mask.sum())} of {mask.numel()} elements where {share:g} of them should be"
        for mask, share in zip(masks, shares, strict=True)
        if mask.numel() and _unlikely(int(mask.sum()), mask.numel(), share)
    ]
    for says, one, share, other, others in _pairs(masks, shares, again):
        alike = share * others + (1 - share) * (1 - others)
        if one.shape == other.shape and one.numel() and _unlikely(int((one == other).sum()), one.numel(), alike):
            found.append(f"dropout: {says} are alike in {int((one == other).sum())} of {one.numel()} elements")
    return found


def _pairs(
    masks: Sequence[torch.Tensor], shares: Sequence[float], again: Sequence[torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor, float, torch.Tensor, float]]:
    """Masks that should have nothing to do with each other, with the shares that they keep."""
    for k, (mask, share) in enumerate(zip(masks, shares, strict=True)):
        for j in range(k):
            yield f"dropouts {j} and {k}", masks[j], shares[j], mask, share
        for d, size in enumerate(mask.shape):
            if size > 1:
                first, second = mask.narrow(d, 0, size - 1), mask.narrow(d, 1, size - 1)
                yield f"neighbours along axis {d}", first, share, second, share
    for mask, other, share in zip(masks, again, shares, strict=False):
        yield "two seeds", mask, share, other, share


def _unlikely(found: int, count: int, probability: float) -> bool:
    return abs(found - count * probability) > _DEVIATIONS * math.sqrt(count * probability * (1 - probability)) + 1
