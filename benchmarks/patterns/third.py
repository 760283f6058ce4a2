"""Patterns written before anything was changed that they score: held out from that."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from benchmarks.patterns.makers import (
    ANGLES,
    COL,
    F32,
    HEADS,
    I8,
    IDS_OF_ROWS,
    LIKE_TRANSPOSED,
    ROW,
    SCORE_MASK,
    SCORES,
    UNIT,
    X,
    pattern,
    rms,
)


@pattern(X, X, group="third")
def reglu(g, u):
    return torch.relu(g) * u


@pattern(X, group="third")
def gelu_tanh_spelled(x):
    return 0.5 * x * (1.0 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))


@pattern(UNIT, UNIT, group="third")
def binary_cross_entropy_spelled(p, t):
    return -(t * torch.log(p) + (1.0 - t) * torch.log(1.0 - p))


@pattern(X, COL, group="third")
def fake_quantise(x, s):
    return torch.clamp(torch.round(x / s), -127.0, 127.0) * s


@pattern(I8, ROW, ROW, group="third")
def dequant_bias_gelu(q, s, b):
    return F.gelu(q.to(s.dtype) * s + b)


@pattern(X, X, group="third")
def dropout_add(x, y):
    return F.dropout(x, 0.1, training=True) + y


@pattern(X, X, ROW, group="third")
def token_shift_mix(x, y, m):
    shifted = torch.cat((y[:1], x[:-1]), 0)
    return x * m + shifted * (1.0 - m)


@pattern(X, LIKE_TRANSPOSED, group="third")
def transposed_add(x, y):
    return (x + y.t()) * 0.5


@pattern(HEADS, ANGLES, ANGLES, group="third")
def rotary_interleaved(x, c, s):
    even, odd = x[..., ::2], x[..., 1::2]
    cos, sin = c[..., ::2], s[..., ::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


@pattern(X, IDS_OF_ROWS, COL, group="third")
def gather_scale_add(x, i, s):
    return x.index_select(0, i) * s + x


@pattern(F32, F32, F32, F32, F32, F32, group="third")
def foreach_sgd(p, q, g, h, m, n):
    momentum = torch._foreach_mul((m, n), 0.9)
    momentum = torch._foreach_add(momentum, (g, h))
    return (*torch._foreach_add((p, q), momentum, alpha=-0.1), *momentum)


@pattern(X, X, ROW, ROW, group="third")
def adaptive_layernorm(x, y, a, b):
    return F.layer_norm(x, (x.shape[-1],)) * (1.0 + a) + b + y


@pattern(HEADS, HEADS, ANGLES, group="third")
def query_key_norm(q, k, w):
    return rms(q).to(q.dtype) * w[..., :1, :], rms(k).to(k.dtype) * w[..., :1, :]


@pattern(SCORES, SCORE_MASK, group="third")
def masked_softmax_dropout(s, m):
    return F.dropout(F.softmax(s + m, -1), 0.1, training=True)


@pattern(X, group="third")
def entropy_rows(x):
    return -(F.softmax(x, -1) * F.log_softmax(x, -1)).sum(-1)


@pattern(X, X, group="third")
def divergence_rows(p, q):
    return (torch.exp(p) * (p - q)).sum(-1)


@pattern(X, X, group="third")
def softmax_backward_spelled(y, g):
    return y * (g - (g * y).sum(-1, keepdim=True))


@pattern(X, X, ROW, group="third")
def layernorm_backward_spelled(h, g, w):
    d = g * w
    return d - d.mean(-1, keepdim=True) - h * (d * h).mean(-1, keepdim=True)


@pattern(X, X, ROW, group="third")
def rmsnorm_silu_gate(x, g, w):
    return F.rms_norm(x, (x.shape[-1],), w) * F.silu(g)


@pattern(X, X, group="third")
def relu_bias_grad(g, x):
    return torch.where(x > 0, g, 0.0).sum(0)


@pattern(X, group="third")
def columns_centred(x):
    return x - x.mean(0, keepdim=True)


@pattern(X, group="third")
def scaled_cumsum(x):
    return (x * 0.5).cumsum(-1)


@pattern(X, group="third")
def top8_gate(x):
    return F.softmax(x.float().topk(8, -1).values, -1)


@pattern(X, X, group="third")
def huber_mean(x, y):
    d = torch.abs(x - y)
    return torch.where(d < 1.0, 0.5 * d * d, d - 0.5).mean()


# Little or nothing to win: one operator, which is one kernel already.


@pattern(X, group="third")
def lone_silu(x):
    return F.silu(x)


@pattern(X, X, X, group="third")
def lone_addcmul(x, y, z):
    return torch.addcmul(x, y, z)


@pattern(X, ROW, group="third")
def lone_rms_norm(x, w):
    return F.rms_norm(x, (x.shape[-1],), w)


@pattern(X, group="third")
def lone_column_sum(x):
    return x.sum(0)


@pattern(X, group="third")
def lone_transpose(x):
    return x.t().contiguous()


@pattern(X, IDS_OF_ROWS, group="third")
def lone_index_select(x, i):
    return x.index_select(0, i)
