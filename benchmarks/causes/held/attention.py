"""Attention spelled out, forward and backward, and what looks like it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.causes.parts import B, H, S, attended, attended_training, hidden, length, over, sdpa, transformer
from benchmarks.causes.program import Step, program, size

# -- forward -----------------------------------------------------------------------------------------------------------


@program
def attention_causal_filled(fixed: bool) -> Step:
    """What lies ahead is filled by a mask of ones and zeros that was made once."""
    ahead = torch.ones(length(), length(), dtype=torch.bool).triu(1)

    def spelled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = (q @ k.mT) / q.shape[-1] ** 0.5
        return F.softmax(scores.masked_fill(ahead, float("-inf")), dim=-1) @ v

    def whole(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return sdpa(q, k, v, is_causal=True)

    return attended(whole if fixed else spelled)


@program
def attention_grouped_queries(fixed: bool) -> Step:
    """Heads of keys and values expanded and reshaped for four of queries each; a causal mask is added."""
    mask = torch.full((length(), length()), torch.finfo(B).min, dtype=B).triu(1)[None, None]

    def repeated(t: Tensor) -> Tensor:
        batch, heads, rows, head = t.shape
        return t[:, :, None].expand(batch, heads, 4, rows, head).reshape(batch, heads * 4, rows, head)

    def spelled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        k, v = repeated(k), repeated(v)
        scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5 + mask
        return torch.matmul(F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype), v)

    def whole(q: Tensor, k: Tensor, v: Tensor, _: Tensor) -> Tensor:
        return sdpa(q, k, v, is_causal=True, enable_gqa=True)

    return attended(whole if fixed else spelled, mask, kv_heads=4)


@program
def attention_einsum(fixed: bool) -> Step:
    """Written by einsum, the queries scaled before."""

    def spelled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = torch.einsum("bhqd,bhkd->bhqk", q * q.shape[-1] ** -0.5, k).softmax(dim=-1)
        return torch.einsum("bhqk,bhkd->bhqd", weights, v)

    return attended(sdpa if fixed else spelled, dtype=H)


class Cross(nn.Module):
    """Queries of one sequence, keys and values of another, padded one."""

    def __init__(self, width: int, heads: int, fixed: bool) -> None:
        super().__init__()
        self.heads, self.fixed = heads, fixed
        self.query, self.both, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor, there: Tensor) -> Tensor:
        q = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.both(memory).unflatten(-1, (2 * self.heads, -1)).transpose(1, 2).chunk(2, 1)
        if self.fixed:
            out = sdpa(q, k, v, attn_mask=there)
        else:
            scores = torch.matmul(q, k.transpose(-1, -2)).div(q.shape[-1] ** 0.5)
            scores = torch.where(there, scores, torch.finfo(q.dtype).min)
            out = torch.matmul(torch.softmax(scores, -1), v)
        return x + self.out(out.transpose(1, 2).flatten(2))


@program
def attention_cross_where(fixed: bool) -> Step:
    """Cross attention; scores of padding are replaced by `where`."""
    layers = nn.ModuleList(Cross(size(1024, 64), 16, fixed) for _ in range(3)).to(B).eval()
    there = torch.ones(size(8, 2), 1, 1, size(1536), dtype=torch.bool)
    there[0, ..., size(1024) :] = False

    def call(x: Tensor, memory: Tensor) -> Tensor:
        for layer in layers:
            x = layer(x, memory, there)
        return x

    return over(call, hidden(8, 768), hidden(8, 1536))


@program
def attention_window(fixed: bool) -> Step:
    """A window of places to the left, as a float mask, in float32 (TF32 on)."""
    at = torch.arange(length())
    away = at[:, None] - at[None]
    mask = torch.zeros(length(), length()).masked_fill_((away < 0) | (away >= length() // 4), -torch.inf)

    def spelled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = torch.add(mask, torch.matmul(q, k.transpose(-2, -1)), alpha=q.shape[-1] ** -0.5)
        return torch.matmul(torch.softmax(scores, dim=-1), v)

    return attended(sdpa if fixed else spelled, mask, dtype=S)


@program
def attention_rollout() -> Step:
    """The weights of all layers are multiplied together as well: they are read elsewhere."""
    kept: list[Tensor] = []

    def spelled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = ((q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5).softmax(-1)
        kept.append(weights.mean(1))
        return weights @ v

    model = transformer(spelled).to(B).eval()

    def call(x: Tensor) -> tuple[Tensor, Tensor]:
        kept.clear()
        out = model(x)
        return out, kept[1] @ kept[0]

    return over(call, hidden())


@program
def attention_squared_relu() -> Step:
    """Squares of what is left of zero's right, over the length: no softmax."""

    def spelled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        return (F.relu(scores).square() / k.shape[-2]) @ v

    return attended(spelled)


@program
def attention_fused_bias() -> Step:
    """One call already, with a bias as its mask."""
    bias = torch.randn(1, 16, length(), length(), dtype=B)
    return attended(lambda q, k, v, bias: sdpa(q, k, v, attn_mask=bias), bias)


@program
def attention_retention() -> Step:
    """Scores times a decay that was computed once: no softmax."""
    away = torch.arange(length())[:, None] - torch.arange(length())[None]
    decay = torch.where(away < 0, 0.0, 0.97 ** away.clamp(min=0).float()).to(B)

    def spelled(q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> Tensor:
        scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        return (scores * decay) @ v

    return attended(spelled, decay)


# -- backward ----------------------------------------------------------------------------------------------------------


@program(training=True)
def attention_trained_float32(fixed: bool) -> Step:
    """Softmax in float32 between products in bfloat16."""

    def spelled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5
        return torch.matmul(F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype), v)

    return attended_training(sdpa if fixed else spelled)


@program(training=True)
def attention_trained_padding(fixed: bool) -> Step:
    """A padding mask added to the scores."""
    mask = torch.zeros(size(4, 2), 1, 1, length(), dtype=B)
    mask[0, ..., -length() // 4 :] = -10_000.0

    def spelled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = torch.matmul(q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5
        return torch.matmul(nn.functional.softmax(scores + mask, dim=-1), v)

    return attended_training(sdpa if fixed else spelled, mask)


@program(training=True)
def attention_trained_fused() -> Step:
    """One call already, causal and with dropout."""
    return attended_training(lambda q, k, v: sdpa(q, k, v, dropout_p=0.1, is_causal=True))


@program(training=True)
def attention_trained_sigmoid() -> Step:
    """A sigmoid of every score: no softmax."""

    def spelled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.sigmoid(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5 - 7.0) @ v

    return attended_training(spelled)
