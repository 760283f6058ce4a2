"""What several programs of `labelled_seventh.py` are made of; nothing here is labelled."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HALF = torch.bfloat16
WAITS = "asks the device for a number"
COPIES = "copies from ordinary memory"
PLAIN = "AdamW was not made to be captured"


def heads_of(width: int) -> int:
    return max(1, width // 64)


def split_heads(x: Tensor, parts: int, heads: int) -> Tensor:
    """Return queries, keys and values, or some of these, by head."""
    return x.unflatten(-1, (parts, heads, -1)).permute(2, 0, 3, 1, 4)


class Mlp(nn.Module):
    def __init__(self, width: int, times: int = 4) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, times * width), nn.Linear(times * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(self.norm(x))))


class SelfAttention(nn.Module):
    def __init__(self, width: int, causal: bool = False) -> None:
        super().__init__()
        self.causal, self.heads = causal, heads_of(width)
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = split_heads(self.qkv(self.norm(x)), 3, self.heads)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(seen.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, causal: bool = False) -> None:
        super().__init__()
        self.attention, self.mlp = SelfAttention(width, causal), Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        return x + self.mlp(x)


def tower(width: int, layers: int, causal: bool = False) -> nn.Sequential:
    return nn.Sequential(*(Block(width, causal) for _ in range(layers)))


class Residual(nn.Module):
    """Two convolutions with group norms, as pictures are made with."""

    def __init__(self, enter: int, leave: int) -> None:
        super().__init__()
        groups = min(8, enter, leave)
        self.first, self.second = nn.GroupNorm(groups, enter), nn.GroupNorm(groups, leave)
        self.one, self.two = nn.Conv2d(enter, leave, 3, padding=1), nn.Conv2d(leave, leave, 3, padding=1)
        self.skip = nn.Conv2d(enter, leave, 1) if enter != leave else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.one(F.silu(self.first(x)))
        return self.skip(x) + self.two(F.silu(self.second(y)))


def inverted(matrices: Tensor) -> Tensor:
    """Invert 2x2 matrices."""
    a, b, c, d = matrices.flatten(-2).unbind(-1)
    return torch.stack((d, -b, -c, a), -1).unflatten(-1, (2, 2)) / (a * d - b * c)[..., None, None]


class LossOfRows(torch.autograd.Function):
    """The loss of a linear layer over many words, and its gradients, some rows at a time."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, goals: Tensor, strength: float, rows: int) -> Tensor:
        total, by_weight, by_hidden = hidden.new_zeros((), dtype=torch.float32), torch.zeros_like(weight), []
        for part, goal in zip(hidden.split(rows), goals[:, None].split(rows), strict=True):
            logits = (part @ weight.T).float()
            top, place = logits.max(-1, keepdim=True)
            wanted, chances = logits.gather(1, goal), logits.softmax(-1)
            whole = top - chances.gather(1, place).log()
            total += (whole - wanted + strength * whole.square()).sum()
            change = chances.mul_(1 + 2 * strength * whole)
            change = change.scatter_add_(1, goal, -torch.ones_like(wanted)).to(weight.dtype)
            by_hidden.append(change @ weight)
            by_weight.addmm_(change.T, part)
        ctx.save_for_backward(torch.cat(by_hidden), by_weight)
        return total / len(hidden)

    @staticmethod
    def backward(ctx: Any, *changes: Tensor) -> tuple[Tensor | None, ...]:
        by_hidden, by_weight = ctx.saved_tensors
        change = (changes[0] / len(by_hidden)).to(by_weight.dtype)
        return by_hidden * change, by_weight * change, None, None, None
