"""Programs of the second part that was held back: attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.causes.parts import B, Layers, applied, sdpa, square, trained
from benchmarks.causes.program import Step, program, size


class GroupedQueries(nn.Module):
    """Queries in groups that share keys and values, heads behind the length, padded keys left out."""

    def __init__(self, width: int, heads: int, groups: int, fixed: bool) -> None:
        super().__init__()
        self.head, self.kv, self.groups, self.fixed = width // heads, heads // groups, groups, fixed
        self.norm = nn.RMSNorm(width)
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, self.kv * self.head, bias=False)
        self.v = nn.Linear(width, self.kv * self.head, bias=False)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        h = self.norm(x)
        q = self.q(h).unflatten(-1, (self.kv, self.groups, self.head))
        k, v = (one(h).unflatten(-1, (self.kv, self.head)) for one in (self.k, self.v))
        if self.fixed:
            q, k, v = q.flatten(2, 3).transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
            mixed = sdpa(q, k, v, attn_mask=keep[:, None, None, :], enable_gqa=True).transpose(1, 2)
            return x + self.out(mixed.flatten(2))
        scores = torch.einsum("bskgd,btkd->bkgst", q, k) / self.head**0.5
        scores = scores.masked_fill(~keep[:, None, None, None, :], float("-inf"))
        weights = scores.softmax(-1, dtype=torch.float32).to(q.dtype)
        return x + self.out(torch.einsum("bkgst,btkd->bskgd", weights, v).flatten(2))


class Gated(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor, *_: Tensor) -> Tensor:
        gate, up = self.up(self.norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


@program
def document_encoder_einsum_groups(fixed: bool) -> Step:
    """A document encoder with grouped queries by einsum over padded texts."""
    width, length, batch = size(1024, 64), size(1024), size(8, 3)
    blocks: list[nn.Module] = []
    for _ in range(2):
        blocks += [GroupedQueries(width, 16, 4, fixed), Gated(width)]
    lengths = torch.linspace(length // 2, length, batch).long()
    keep = torch.arange(length) < lengths[:, None]
    return applied(Layers(blocks).to(B), torch.randn(batch, length, width, dtype=B), keep)


class Slots(nn.Module):
    """Slots compete for places: a softmax over the slots, then for each slot a mean over the places."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.places, self.slots, self.before = (nn.LayerNorm(width) for _ in range(3))
        self.k, self.v, self.q = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.gru = nn.GRUCell(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        self.scale = width**-0.5

    def forward(self, x: Tensor, slots: Tensor) -> Tensor:
        x = self.places(x)
        k, v = self.k(x), self.v(x)
        for _ in range(3):
            q = self.q(self.slots(slots))
            shares = torch.bmm(k, q.mT).mul(self.scale).softmax(-1) + 1e-6
            weights = shares / shares.sum(1, keepdim=True)
            found = torch.bmm(weights.mT, v)
            slots = self.gru(found.flatten(0, 1), slots.flatten(0, 1)).view_as(slots)
            slots = slots + self.mlp(self.before(slots))
        return slots


@program
def objects_by_slots() -> Step:
    """Objects of images by slot attention."""
    width, batch = size(256), size(64, 2)
    x = torch.randn(batch, size(4096), width, dtype=B)
    return applied(Slots(width).to(B), x, torch.randn(batch, 16, width, dtype=B))


class TimeFirst(nn.Module):
    """Attention to earlier places on [length, batch, width], with batch and heads as one dimension."""

    def __init__(self, width: int, heads: int, length: int, fixed: bool) -> None:
        super().__init__()
        self.heads, self.head, self.fixed = heads, width // heads, fixed
        self.norm = nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.register_buffer("future", torch.full((length, length), float("-inf")).triu_(1))

    def forward(self, x: Tensor) -> Tensor:
        length, batch, width = x.shape
        h = self.norm(x)
        q, k, v = (
            one(h).view(length, batch * self.heads, self.head).transpose(0, 1) for one in (self.q, self.k, self.v)
        )
        if self.fixed:
            q, k, v = (t.unflatten(0, (batch, self.heads)) for t in (q, k, v))
            mixed = sdpa(q, k, v, is_causal=True).flatten(0, 1)
        else:
            scores = torch.baddbmm(self.future, q, k.transpose(1, 2), alpha=self.head**-0.5)
            mixed = torch.bmm(F.softmax(scores, dim=-1), v)
        return x + self.out(mixed.transpose(0, 1).reshape(length, batch, width))


class Wide(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x)), approximate="tanh"))


@program(training=True)
def music_time_first_baddbmm(fixed: bool) -> Step:
    """Training a music model, time first: scores by baddbmm onto the mask of what is to come."""
    width, length = size(768, 64), size(1024)
    blocks: list[nn.Module] = []
    for _ in range(2):
        blocks += [TimeFirst(width, 8, length, fixed), Wide(width)]
    return trained(nn.Sequential(*blocks).to(B), torch.randn(length, size(8, 2), width, dtype=B))


class Aligned(nn.Module):
    """Attention of speech frames to text, which gives its weights as well."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head = heads, width // heads
        self.norm = nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide = Wide(width)

    def forward(self, x: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (
            one(t).unflatten(-1, (self.heads, self.head)).transpose(1, 2)
            for one, t in ((self.q, self.norm(x)), (self.k, text), (self.v, text))
        )
        weights = (q @ k.mT * self.head**-0.5).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        return self.wide(x), weights


class Reader(nn.Module):
    """Two such layers; their weights are held to the diagonal."""

    def __init__(self, width: int, frames: int, letters: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Aligned(width, 4) for _ in range(2))
        off = torch.arange(frames)[:, None] / frames - torch.arange(letters) / letters
        self.register_buffer("far", 1 - torch.exp(-(off**2) / 0.08))

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        lost = 0.0
        for layer in self.layers:
            x, weights = layer(x, text)
            lost = lost + (weights * self.far).mean(dtype=torch.float32)
        return square(x) + lost


@program(training=True)
def speech_guided_alignment() -> Step:
    """Training a speech reader with a loss on where its attention lies."""
    width, frames, letters, batch = size(512, 64), size(640), size(160, 16), size(16, 2)
    model = Reader(width, frames, letters).to(B)
    text = torch.randn(batch, letters, width, dtype=B)
    return trained(model, torch.randn(batch, frames, width, dtype=B), text, loss=model)
