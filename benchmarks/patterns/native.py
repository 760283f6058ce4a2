"""Operators that are one kernel of PyTorch's own and reduce rows, short and long: what that kernel loses, if anything.

`cross_entropy` and its backward are two.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from benchmarks.patterns.makers import CLASSES, COL, F32, IMAGE, ONE, ROW, X, pattern


@pattern(X, ROW, group="native")
def native_rms_norm(x, w):
    return F.rms_norm(x, x.shape[-1:], w, 1e-6)


@pattern(X, ROW, group="native")
def spelled_rms_norm(x, w):
    h = x.float()
    return w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


@pattern(X, ROW, ROW, group="native")
def native_layer_norm(x, w, b):
    return F.layer_norm(x, x.shape[-1:], w, b)


@pattern(X, group="native")
def native_softmax(x):
    return torch.softmax(x, -1)


@pattern(X, group="native")
def native_log_softmax(x):
    return torch.log_softmax(x, -1)


@pattern(X, CLASSES, group="native")
def cross_entropy(x, y):
    return F.cross_entropy(x, y)


@pattern(F32, CLASSES, ONE, ONE, group="native")
def cross_entropy_backward(logp, y, one, weight):
    back = torch.ops.aten.nll_loss_backward(one, logp, y, None, 1, -100, weight)
    return torch.ops.aten._log_softmax_backward_data(back, logp, -1, torch.float32)


@pattern(IMAGE, group="native")
def native_group_norm(x):
    return F.group_norm(x, 8)


@pattern(X, X, ROW, COL, COL, group="native")
def native_layer_norm_backward(g, x, w, mean, rstd):
    grads = torch.ops.aten.native_layer_norm_backward
    return grads(g, x, x.shape[-1:], mean.float(), rstd.float().abs(), w, w, [True, False, False])[0]
