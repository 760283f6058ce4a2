"""Attention spelled out, forward and backward, and what looks like it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.causes.parts import (
    B,
    H,
    adamw,
    attended,
    attended_training,
    hidden,
    length,
    over,
    residuals,
    sdpa,
    square,
    trained,
    transformer,
)
from benchmarks.causes.program import Step, chance, program, size

# -- forward -----------------------------------------------------------------------------------------------------------


@program
def attention_scaled(fixed: bool) -> Step:
    """Scores times a scale."""

    def spelled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.matmul(q, k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        return torch.matmul(scores.softmax(-1), v)

    return attended(sdpa if fixed else spelled)


@program
def attention_softmax_float32(fixed: bool) -> Step:
    """A padding mask added, softmax in float32 and back, as transformers' eager functions have it."""
    mask = torch.zeros(size(8, 2), 1, 1, length(), dtype=H)
    mask[1, ..., -length() // 4 :] = torch.finfo(H).min

    def spelled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5 + mask
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        return torch.matmul(weights, v)

    return attended(sdpa if fixed else spelled, mask, dtype=H)


@program
def attention_relative_bias(fixed: bool) -> Step:
    """A bias of places, computed once, added to unscaled scores."""
    bias = torch.randn(1, 16, length(), length(), dtype=B)

    def spelled(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return (torch.matmul(q, k.transpose(3, 2)) + bias).softmax(-1) @ v

    def whole(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return sdpa(q, k, v, attn_mask=bias, scale=1.0)

    return attended(whole if fixed else spelled, bias)


@program
def attention_alibi_baddbmm(fixed: bool) -> Step:
    """Heads folded into the batch; a slope times the distance is the product's addend."""
    slopes = 2.0 ** -torch.arange(1, 17, dtype=torch.float32).div(2)
    alibi = (slopes[:, None] * torch.arange(length()))[:, None, :].to(B).repeat(size(8, 2), 1, 1)
    causal = torch.ones(length(), length(), dtype=torch.bool).triu(1)

    def spelled(q: Tensor, k: Tensor, v: Tensor, alibi: Tensor) -> Tensor:
        batch, heads, rows, head = q.shape
        q, k, v = (t.reshape(batch * heads, rows, head) for t in (q, k, v))
        scores = torch.baddbmm(alibi, q, k.transpose(1, 2), beta=1.0, alpha=head**-0.5)
        scores = scores.view(batch, heads, rows, rows).masked_fill(causal, torch.finfo(q.dtype).min)
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        return torch.bmm(weights.view(batch * heads, rows, rows), v).view(batch, heads, rows, head)

    def whole(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return sdpa(q, k, v, attn_mask=mask)

    mask = alibi.view(-1, 16, 1, length()).masked_fill(causal, torch.finfo(B).min)
    return attended(whole, mask) if fixed else attended(spelled, alibi)


@program
def attention_softcap() -> Step:
    """Scores squeezed by a tanh: only flex_attention takes such a function, and it wants to be compiled."""

    def spelled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5
        scores = torch.tanh(scores / 50.0) * 50.0
        return torch.matmul(scores.softmax(-1), v)

    return attended(spelled)


@program
def attention_sigmoid() -> Step:
    """A sigmoid of every score: no softmax."""

    def spelled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5
        return torch.matmul(torch.sigmoid(scores - 7.0), v)

    return attended(spelled)


@program
def attention_linear() -> Step:
    """Softmax of queries over features and of keys over places; no product of both is as long as it is wide."""

    def spelled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        context = torch.matmul(k.softmax(-2).transpose(2, 3), v)
        return torch.matmul(q.softmax(-1), context)

    return attended(spelled)


@program
def attention_sparse() -> Step:
    """Of each row the largest scores alone: they are sorted out before the softmax."""

    def spelled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5
        kept = scores.topk(size(64), dim=-1).values[..., -1:]
        return torch.matmul(scores.masked_fill(scores < kept, -torch.inf).softmax(-1), v)

    return attended(spelled)


@program
def attention_gate() -> Step:
    """A product and a softmax whose result is multiplied in element by element."""
    width = size(1024, 64)
    model, gate = residuals(width).to(B).eval(), nn.Linear(width, width).to(B)
    return over(lambda x: model(x) * gate(x).softmax(-1), hidden(16))


# -- backward ----------------------------------------------------------------------------------------------------------


@program(training=True)
def attention_trained_dropout(fixed: bool) -> Step:
    """Causal, with dropout of the weights."""
    causal = torch.ones(length(), length(), dtype=torch.bool).tril()

    def spelled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        weights = F.softmax(scores.masked_fill(~causal, -torch.inf), dim=-1)
        return F.dropout(weights, chance(0.1)) @ v

    def whole(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return sdpa(q, k, v, dropout_p=chance(0.1), is_causal=True)

    return attended_training(whole if fixed else spelled)


@program(training=True)
def attention_trained_grouped(fixed: bool) -> Step:
    """Each head of keys and values repeated for four of queries."""

    def spelled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (t.repeat_interleave(4, dim=1) for t in (k, v))
        return F.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5, dim=-1) @ v

    def whole(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return sdpa(q, k, v, enable_gqa=True)

    return attended_training(whole if fixed else spelled, kv_heads=4)


@program(training=True)
def attention_trained_entropy() -> Step:
    """The entropy of the weights is part of the loss: they are read elsewhere."""
    kept: list[Tensor] = []

    def spelled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = F.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5, dim=-1)
        kept.append(weights)
        return weights @ v

    model = transformer(spelled, layers=1).to(B)

    def loss(x: Tensor) -> Tensor:
        kept.clear()
        out = model(x)
        return square(out) + 0.01 * sum((w * (w + 1e-6).log()).sum(-1).mean() for w in kept)

    return trained(model, hidden(4), loss=loss)


@program(training=True)
def attention_trained_contrastive() -> Step:
    """A product of two towers, cross entropy over its rows and columns."""
    width = size(1024, 64)
    towers = nn.ModuleList(residuals(width, 2) for _ in range(2)).to(B)
    left, right = (torch.randn(size(8192), width, dtype=B) for _ in range(2))

    def loss(a: Tensor, b: Tensor) -> Tensor:
        a, b = F.normalize(towers[0](a), dim=-1), F.normalize(towers[1](b), dim=-1)
        logits = a @ b.t() * 10
        own = torch.arange(len(a), device=a.device)
        return (F.cross_entropy(logits, own) + F.cross_entropy(logits.t(), own)) / 2

    return trained(towers, left, right, loss=loss, optimizer=adamw(towers.parameters()))
