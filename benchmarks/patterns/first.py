"""The patterns recorded first: half of them fitted the few constants of the predictor."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from benchmarks.patterns.makers import (
    ANGLES,
    CHANNEL,
    CLASSES,
    COL,
    F32,
    HEADS,
    I8,
    IDS,
    IMAGE,
    MASK,
    ROW,
    SCORE_MASK,
    SCORES,
    TABLE,
    X,
    pattern,
    rms,
)


@pattern(X, ROW, group="first")
def log_relu_bias(x, b):
    return torch.log(torch.relu(x + b) + 1.0)


@pattern(X, ROW, group="first")
def bias_gelu_tanh(x, b):
    return F.gelu(x + b, approximate="tanh")


@pattern(X, X, group="first")
def swiglu(g, u):
    return F.silu(g) * u


@pattern(X, X, X, group="first")
def residual_scale(x, y, z):
    return (x + y) * 0.5 + z


@pattern(X, MASK, group="first")
def scale_mask(x, m):
    return torch.where(m, x * 0.125, -10000.0)


@pattern(I8, ROW, group="first")
def dequant(q, s):
    return q.to(s.dtype) * s


@pattern(X, group="first")
def hardswish_spelled(x):
    return x * torch.clamp(x + 3.0, 0.0, 6.0) / 6.0


@pattern(X, group="first")
def mish_spelled(x):
    return x * torch.tanh(torch.log(1 + torch.exp(x)))


@pattern(X, X, group="first")
def glu_sigmoid(x, y):
    return torch.sigmoid(x) * y


@pattern(X, group="first")
def squared_relu(x):
    return torch.relu(x).square()


@pattern(X, group="first")
def softcap(x):
    return 30.0 * torch.tanh(x / 30.0)


@pattern(X, COL, ROW, group="first")
def affine_broadcast(x, c, r):
    return (x - c) * r + 1.0


@pattern(X, ROW, group="first")
def cast_mul_cast(x, w):
    return (x.float() * w.float() * 2.0).to(x.dtype)


@pattern(X, X, X, group="first")
def lerp_spelled(a, b, t):
    return a + (b - a) * t


@pattern(F32, F32, F32, F32, group="first")
def adam_update(p, g, m, v):
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return p - 1e-3 * m / (v.sqrt() + 1e-8), m, v


@pattern(X, ROW, group="first")
def rmsnorm(x, w):
    return w * rms(x).to(x.dtype)


@pattern(X, X, ROW, group="first")
def add_rmsnorm(x, y, w):
    z = x + y
    return w * rms(z).to(x.dtype), z


@pattern(X, ROW, ROW, group="first")
def layernorm_spelled(x, w, b):
    m = x.mean(-1, keepdim=True)
    v = ((x - m) ** 2).mean(-1, keepdim=True)
    return (x - m) / torch.sqrt(v + 1e-5) * w + b


@pattern(X, X, ROW, ROW, group="first")
def add_layernorm(x, y, w, b):
    return F.layer_norm(x + y, (x.shape[-1],), w, b)


@pattern(X, group="first")
def softmax_spelled(x):
    e = torch.exp(x - x.max(-1, keepdim=True).values)
    return e / e.sum(-1, keepdim=True)


@pattern(SCORES, SCORE_MASK, group="first")
def scale_mask_softmax(s, m):
    return F.softmax(s * 0.125 + m, dim=-1)


@pattern(SCORES, SCORE_MASK, group="first")
def softmax_fp32_cast(s, m):
    return F.softmax((s * 0.125 + m).float(), dim=-1).to(s.dtype)


@pattern(X, group="first")
def l2_normalise(x):
    return x / x.pow(2).sum(-1, keepdim=True).sqrt().clamp(min=1e-6)


@pattern(X, group="first")
def rows_quant_int8(x):
    s = x.abs().amax(-1, keepdim=True) / 127.0
    return torch.round(x / s).to(torch.int8), s


@pattern(X, ROW, group="first")
def rmsnorm_quant(x, w):
    y = rms(x) * w
    s = y.abs().amax(-1, keepdim=True) / 127.0
    return torch.round(y / s).to(torch.int8), s


@pattern(X, CLASSES, group="first")
def cross_entropy_spelled(x, t):
    return -torch.log_softmax(x.float(), -1).gather(1, t[:, None]).mean()


@pattern(X, X, group="first")
def cosine(x, y):
    return (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1))


@pattern(X, group="first")
def logsumexp_spelled(x):
    m = x.amax(-1, keepdim=True)
    return m + torch.log(torch.exp(x - m).sum(-1, keepdim=True))


@pattern(X, COL, group="first")
def masked_mean(x, m):
    return (x * m).sum(0) / m.sum()


@pattern(X, X, group="first")
def mse(x, y):
    return ((x - y) ** 2).mean()


@pattern(HEADS, HEADS, ANGLES, ANGLES, group="first")
def rotary(q, k, c, s):
    def half(x):
        return torch.cat((-x[..., 32:], x[..., :32]), -1)

    return q * c + half(q) * s, k * c + half(k) * s


@pattern(X, X, group="first")
def cat_scale(x, y):
    return torch.cat((x, y), -1) * 0.5


@pattern(IDS, TABLE, X, group="first")
def embedding_add(i, t, x):
    return F.embedding(i, t) + x


@pattern(HEADS, ROW, group="first")
def transpose_bias(x, b):
    return (x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1) * 1.5).relu()


@pattern(IMAGE, CHANNEL, CHANNEL, group="first")
def batchnorm_eval_relu(x, w, b):
    return torch.relu(x * w + b)


@pattern(IMAGE, CHANNEL, group="first")
def bias_silu_img(x, b):
    return F.silu(x + b)


@pattern(IMAGE, group="first")
def groupnorm_spelled(x):
    g = x.view(x.shape[0], 8, -1)
    m = g.mean(-1, keepdim=True)
    v = g.var(-1, keepdim=True, unbiased=False)
    return ((g - m) * torch.rsqrt(v + 1e-5)).view_as(x)


@pattern(X, X, group="first")
def sibling_scales(x, y):
    return x * 2.0, x + 1.0, x * y


@pattern(X, ROW, group="first")
def two_outputs(x, b):
    h = torch.relu(x + b)
    return h, h * 2.0


@pattern(X, group="first")
def lone_relu(x):
    return torch.relu(x)


@pattern(X, X, group="first")
def lone_add(x, y):
    return x + y


@pattern(X, group="first")
def lone_softmax(x):
    return F.softmax(x, -1)


@pattern(X, ROW, ROW, group="first")
def lone_layer_norm(x, w, b):
    return F.layer_norm(x, (x.shape[-1],), w, b)


@pattern(X, group="first")
def lone_gelu(x):
    return F.gelu(x)


@pattern(X, group="first")
def lone_sum(x):
    return x.sum(-1)


@pattern(X, group="first")
def lone_cast(x):
    return x.float()


@pattern(X, group="first")
def lone_cumsum(x):
    return x.cumsum(-1)


@pattern(X, group="first")
def softmax_long(x):
    return F.softmax(x.view(-1, x.shape[0] * x.shape[1] // max(1, x.shape[0] // 8)), -1)
