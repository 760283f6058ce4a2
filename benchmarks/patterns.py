"""Small patterns that fusion would help, a little, or not at all: functions of a few tensors, and how to make those.

`rows` × `columns` and a dtype make a point. The sets: `first` (recorded first; half of its patterns fitted the few
constants of the predictor) and `fresh` (written after the predictor was, never fitted to).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Maker = Callable[[int, int, torch.dtype], torch.Tensor]
PATTERNS: dict[str, tuple[str, Callable[..., Any], tuple[Maker, ...]]] = {}


def X(r, c, d):
    return torch.randn(r, c, device="cuda").to(d)


def ROW(r, c, d):
    return torch.randn(c, device="cuda").to(d)


def COL(r, c, d):
    return torch.randn(r, 1, device="cuda").to(d)


def F32(r, c, d):
    return torch.randn(r, c, device="cuda")


def UNIT(r, c, d):
    return torch.rand(r, c, device="cuda").mul(0.9).add(0.05).to(d)


def MASK(r, c, d):
    return torch.rand(r, c, device="cuda") > 0.3


def I8(r, c, d):
    return torch.randint(-127, 127, (r, c), device="cuda", dtype=torch.int8)


def IDS(r, c, d):
    return torch.randint(0, 32000, (r,), device="cuda")


def CLASSES(r, c, d):
    return torch.randint(0, c, (r,), device="cuda")


def TABLE(r, c, d):
    return torch.randn(32000, c, device="cuda").to(d)


def HEADS(r, c, d):
    return torch.randn(max(1, r // 512), c // 64, min(r, 512), 64, device="cuda").to(d)


def ANGLES(r, c, d):
    return torch.randn(1, 1, min(r, 512), 64, device="cuda").to(d)


def SCORES(r, c, d):
    return torch.randn(max(1, r * c // (1 << 20)), 4, 512, 512, device="cuda").to(d)


def SCORE_MASK(r, c, d):
    return torch.randn(1, 1, 512, 512, device="cuda").to(d)


def IMAGE(r, c, d):
    return torch.randn(max(1, r * c // (64 * 56 * 56)), 64, 56, 56, device="cuda").to(d)


def CHANNEL(r, c, d):
    return torch.randn(64, 1, 1, device="cuda").to(d)


def pattern(*makers: Maker, group: str = "first"):
    def keep(function):
        PATTERNS[function.__name__] = (group, function, makers)
        return function

    return keep


def fresh(*makers: Maker):
    return pattern(*makers, group="fresh")


def _rms(x):
    h = x.float()
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)


# --- first ---------------------------------------------------------------------------------------------------------


@pattern(X, ROW)
def log_relu_bias(x, b):
    return torch.log(torch.relu(x + b) + 1.0)


@pattern(X, ROW)
def bias_gelu_tanh(x, b):
    return F.gelu(x + b, approximate="tanh")


@pattern(X, X)
def swiglu(g, u):
    return F.silu(g) * u


@pattern(X, X, X)
def residual_scale(x, y, z):
    return (x + y) * 0.5 + z


@pattern(X, MASK)
def scale_mask(x, m):
    return torch.where(m, x * 0.125, -10000.0)


@pattern(I8, ROW)
def dequant(q, s):
    return q.to(s.dtype) * s


@pattern(X)
def hardswish_spelled(x):
    return x * torch.clamp(x + 3.0, 0.0, 6.0) / 6.0


@pattern(X)
def mish_spelled(x):
    return x * torch.tanh(torch.log(1 + torch.exp(x)))


@pattern(X, X)
def glu_sigmoid(x, y):
    return torch.sigmoid(x) * y


@pattern(X)
def squared_relu(x):
    return torch.relu(x).square()


@pattern(X)
def softcap(x):
    return 30.0 * torch.tanh(x / 30.0)


@pattern(X, COL, ROW)
def affine_broadcast(x, c, r):
    return (x - c) * r + 1.0


@pattern(X, ROW)
def cast_mul_cast(x, w):
    return (x.float() * w.float() * 2.0).to(x.dtype)


@pattern(X, X, X)
def lerp_spelled(a, b, t):
    return a + (b - a) * t


@pattern(F32, F32, F32, F32)
def adam_update(p, g, m, v):
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return p - 1e-3 * m / (v.sqrt() + 1e-8), m, v


@pattern(X, ROW)
def rmsnorm(x, w):
    return w * _rms(x).to(x.dtype)


@pattern(X, X, ROW)
def add_rmsnorm(x, y, w):
    z = x + y
    return w * _rms(z).to(x.dtype), z


@pattern(X, ROW, ROW)
def layernorm_spelled(x, w, b):
    m = x.mean(-1, keepdim=True)
    v = ((x - m) ** 2).mean(-1, keepdim=True)
    return (x - m) / torch.sqrt(v + 1e-5) * w + b


@pattern(X, X, ROW, ROW)
def add_layernorm(x, y, w, b):
    return F.layer_norm(x + y, (x.shape[-1],), w, b)


@pattern(X)
def softmax_spelled(x):
    e = torch.exp(x - x.max(-1, keepdim=True).values)
    return e / e.sum(-1, keepdim=True)


@pattern(SCORES, SCORE_MASK)
def scale_mask_softmax(s, m):
    return F.softmax(s * 0.125 + m, dim=-1)


@pattern(SCORES, SCORE_MASK)
def softmax_fp32_cast(s, m):
    return F.softmax((s * 0.125 + m).float(), dim=-1).to(s.dtype)


@pattern(X)
def l2_normalise(x):
    return x / x.pow(2).sum(-1, keepdim=True).sqrt().clamp(min=1e-6)


@pattern(X)
def rows_quant_int8(x):
    s = x.abs().amax(-1, keepdim=True) / 127.0
    return torch.round(x / s).to(torch.int8), s


@pattern(X, ROW)
def rmsnorm_quant(x, w):
    y = _rms(x) * w
    s = y.abs().amax(-1, keepdim=True) / 127.0
    return torch.round(y / s).to(torch.int8), s


@pattern(X, CLASSES)
def cross_entropy_spelled(x, t):
    return -torch.log_softmax(x.float(), -1).gather(1, t[:, None]).mean()


@pattern(X, X)
def cosine(x, y):
    return (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1))


@pattern(X)
def logsumexp_spelled(x):
    m = x.amax(-1, keepdim=True)
    return m + torch.log(torch.exp(x - m).sum(-1, keepdim=True))


@pattern(X, COL)
def masked_mean(x, m):
    return (x * m).sum(0) / m.sum()


@pattern(X, X)
def mse(x, y):
    return ((x - y) ** 2).mean()


@pattern(HEADS, HEADS, ANGLES, ANGLES)
def rotary(q, k, c, s):
    def half(x):
        return torch.cat((-x[..., 32:], x[..., :32]), -1)

    return q * c + half(q) * s, k * c + half(k) * s


@pattern(X, X)
def cat_scale(x, y):
    return torch.cat((x, y), -1) * 0.5


@pattern(IDS, TABLE, X)
def embedding_add(i, t, x):
    return F.embedding(i, t) + x


@pattern(HEADS, ROW)
def transpose_bias(x, b):
    return (x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1) * 1.5).relu()


@pattern(IMAGE, CHANNEL, CHANNEL)
def batchnorm_eval_relu(x, w, b):
    return torch.relu(x * w + b)


@pattern(IMAGE, CHANNEL)
def bias_silu_img(x, b):
    return F.silu(x + b)


@pattern(IMAGE)
def groupnorm_spelled(x):
    g = x.view(x.shape[0], 8, -1)
    m = g.mean(-1, keepdim=True)
    v = g.var(-1, keepdim=True, unbiased=False)
    return ((g - m) * torch.rsqrt(v + 1e-5)).view_as(x)


@pattern(X, X)
def sibling_scales(x, y):
    return x * 2.0, x + 1.0, x * y


@pattern(X, ROW)
def two_outputs(x, b):
    h = torch.relu(x + b)
    return h, h * 2.0


@pattern(X)
def lone_relu(x):
    return torch.relu(x)


@pattern(X, X)
def lone_add(x, y):
    return x + y


@pattern(X)
def lone_softmax(x):
    return F.softmax(x, -1)


@pattern(X, ROW, ROW)
def lone_layer_norm(x, w, b):
    return F.layer_norm(x, (x.shape[-1],), w, b)


@pattern(X)
def lone_gelu(x):
    return F.gelu(x)


@pattern(X)
def lone_sum(x):
    return x.sum(-1)


@pattern(X)
def lone_cast(x):
    return x.float()


@pattern(X)
def lone_cumsum(x):
    return x.cumsum(-1)


@pattern(X)
def softmax_long(x):
    return F.softmax(x.view(-1, x.shape[0] * x.shape[1] // max(1, x.shape[0] // 8)), -1)


# --- fresh ---------------------------------------------------------------------------------------------------------


@fresh(X, X)
def geglu(g, u):
    return F.gelu(g) * u


@fresh(X)
def quick_gelu(x):
    return x * torch.sigmoid(1.702 * x)


@fresh(X, X, X)
def tanh_gate(x, g, y):
    return x + torch.tanh(g) * y


@fresh(UNIT)
def logit_spelled(p):
    return torch.log(p / (1.0 - p))


@fresh(X, X, ROW, ROW)
def rotate_pairs(a, b, c, s):
    return a * c - b * s, a * s + b * c


@fresh(F32, F32, F32)
def sgd_momentum(p, g, m):
    m = m * 0.9 + g
    return p - 0.1 * m, m


@fresh(X, MASK)
def dropout_apply(x, m):
    return x * m * 1.25


@fresh(X, ROW, ROW, X)
def scale_shift_residual(x, a, b, y):
    return x * (1.0 + a) + b + y


@fresh(X, X)
def smooth_l1(x, y):
    d = torch.abs(x - y)
    return torch.where(d < 1.0, 0.5 * d * d, d - 0.5)


@fresh(X, X, X, X)
def four_way_mean(a, b, c, d):
    return (a + b + c + d) * 0.25


@fresh(X)
def softplus_squared(x):
    y = F.softplus(x)
    return y * y


@fresh(X)
def mean_centre(x):
    return x - x.mean(-1, keepdim=True)


@fresh(X)
def minmax_scale(x):
    low = x.amin(-1, keepdim=True)
    return (x - low) / (x.amax(-1, keepdim=True) - low)


@fresh(X, X, ROW)
def gated_rmsnorm(x, g, w):
    return _rms(x).to(x.dtype) * w * F.silu(g)


@fresh(X, X)
def row_dot(x, y):
    return (x * y).sum(-1)


@fresh(X)
def softmax_temperature(x):
    return F.softmax(x / 0.7, -1)


@fresh(X)
def standardise(x):
    return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1e-5)


@fresh(X, X, ROW, ROW)
def layernorm_gelu_residual(x, y, w, b):
    return F.gelu(F.layer_norm(x, (x.shape[-1],), w, b)) + y


@fresh(X)
def absmean_ternary(x):
    s = x.abs().mean(-1, keepdim=True)
    return torch.clamp(torch.round(x / s), -1, 1).to(torch.int8)


@fresh(X, X)
def row_mse(x, y):
    return ((x - y) ** 2).mean(-1)


@fresh(X)
def lone_scale(x):
    return x * 0.5


@fresh(X, X)
def lone_mul(x, y):
    return x * y


@fresh(X)
def lone_log_softmax(x):
    return F.log_softmax(x, -1)


@fresh(X)
def lone_row_max(x):
    return x.amax(-1)
