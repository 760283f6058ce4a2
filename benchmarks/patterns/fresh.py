"""Patterns written after the predictor was, for a second held-out figure."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from benchmarks.patterns.makers import F32, MASK, ROW, UNIT, X, pattern, rms


@pattern(X, X, group="fresh")
def geglu(g, u):
    return F.gelu(g) * u


@pattern(X, group="fresh")
def quick_gelu(x):
    return x * torch.sigmoid(1.702 * x)


@pattern(X, X, X, group="fresh")
def tanh_gate(x, g, y):
    return x + torch.tanh(g) * y


@pattern(UNIT, group="fresh")
def logit_spelled(p):
    return torch.log(p / (1.0 - p))


@pattern(X, X, ROW, ROW, group="fresh")
def rotate_pairs(a, b, c, s):
    return a * c - b * s, a * s + b * c


@pattern(F32, F32, F32, group="fresh")
def sgd_momentum(p, g, m):
    m = m * 0.9 + g
    return p - 0.1 * m, m


@pattern(X, MASK, group="fresh")
def dropout_apply(x, m):
    return x * m * 1.25


@pattern(X, ROW, ROW, X, group="fresh")
def scale_shift_residual(x, a, b, y):
    return x * (1.0 + a) + b + y


@pattern(X, X, group="fresh")
def smooth_l1(x, y):
    d = torch.abs(x - y)
    return torch.where(d < 1.0, 0.5 * d * d, d - 0.5)


@pattern(X, X, X, X, group="fresh")
def four_way_mean(a, b, c, d):
    return (a + b + c + d) * 0.25


@pattern(X, group="fresh")
def softplus_squared(x):
    y = F.softplus(x)
    return y * y


@pattern(X, group="fresh")
def mean_centre(x):
    return x - x.mean(-1, keepdim=True)


@pattern(X, group="fresh")
def minmax_scale(x):
    low = x.amin(-1, keepdim=True)
    return (x - low) / (x.amax(-1, keepdim=True) - low)


@pattern(X, X, ROW, group="fresh")
def gated_rmsnorm(x, g, w):
    return rms(x).to(x.dtype) * w * F.silu(g)


@pattern(X, X, group="fresh")
def row_dot(x, y):
    return (x * y).sum(-1)


@pattern(X, group="fresh")
def softmax_temperature(x):
    return F.softmax(x / 0.7, -1)


@pattern(X, group="fresh")
def standardise(x):
    return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1e-5)


@pattern(X, X, ROW, ROW, group="fresh")
def layernorm_gelu_residual(x, y, w, b):
    return F.gelu(F.layer_norm(x, (x.shape[-1],), w, b)) + y


@pattern(X, group="fresh")
def absmean_ternary(x):
    s = x.abs().mean(-1, keepdim=True)
    return torch.clamp(torch.round(x / s), -1, 1).to(torch.int8)


@pattern(X, X, group="fresh")
def row_mse(x, y):
    return ((x - y) ** 2).mean(-1)


@pattern(X, group="fresh")
def lone_scale(x):
    return x * 0.5


@pattern(X, X, group="fresh")
def lone_mul(x, y):
    return x * y


@pattern(X, group="fresh")
def lone_log_softmax(x):
    return F.log_softmax(x, -1)


@pattern(X, group="fresh")
def lone_row_max(x):
    return x.amax(-1)
