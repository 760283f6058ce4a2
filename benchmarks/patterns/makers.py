"""How the tensors of a pattern are made, on torch's default device, and the table of all patterns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Maker = Callable[[int, int, torch.dtype], torch.Tensor]
PATTERNS: dict[str, tuple[str, Callable[..., Any], tuple[Maker, ...]]] = {}


def X(r, c, d):
    return torch.randn(r, c).to(d)


def ROW(r, c, d):
    return torch.randn(c).to(d)


def COL(r, c, d):
    return torch.randn(r, 1).to(d)


def F32(r, c, d):
    return torch.randn(r, c)


def UNIT(r, c, d):
    return torch.rand(r, c).mul(0.9).add(0.05).to(d)


def MASK(r, c, d):
    return torch.rand(r, c) > 0.3


def I8(r, c, d):
    return torch.randint(-127, 127, (r, c), dtype=torch.int8)


def IDS(r, c, d):
    return torch.randint(0, 32000, (r,))


def CLASSES(r, c, d):
    return torch.randint(0, c, (r,))


def TABLE(r, c, d):
    return torch.randn(32000, c).to(d)


def HEADS(r, c, d):
    return torch.randn(max(1, r // 512), c // 64, min(r, 512), 64).to(d)


def ANGLES(r, c, d):
    return torch.randn(1, 1, min(r, 512), 64).to(d)


def SCORES(r, c, d):
    return torch.randn(max(1, r * c // (1 << 20)), 4, 512, 512).to(d)


def SCORE_MASK(r, c, d):
    return torch.randn(1, 1, 512, 512).to(d)


def IMAGE(r, c, d):
    return torch.randn(max(1, r * c // (64 * 56 * 56)), 64, 56, 56).to(d)


def CHANNEL(r, c, d):
    return torch.randn(64, 1, 1).to(d)


def IDS_OF_ROWS(r, c, d):
    return torch.randint(0, r, (r,))


def ONE(r, c, d):
    return torch.ones(())


def LIKE_TRANSPOSED(r, c, d):
    return torch.randn(c, r).to(d)


def WEIGHT(r, c, d):
    return (torch.randn(c, c) * c**-0.5).to(d)


def pattern(*makers: Maker, group: str):
    def keep(function):
        PATTERNS[function.__name__] = (group, function, makers)
        return function

    return keep


def rms(x):
    h = x.float()
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
