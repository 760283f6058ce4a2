"""A matrix product and what follows it."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from benchmarks.patterns.makers import ROW, WEIGHT, X, pattern


@pattern(X, WEIGHT, ROW, group="gemm")
def linear_gelu(x, w, b):
    return F.gelu(F.linear(x, w, b))


@pattern(X, WEIGHT, ROW, group="gemm")
def matmul_bias_relu(x, w, b):
    return torch.relu(x @ w + b)


@pattern(X, WEIGHT, X, group="gemm")
def matmul_residual(x, w, r):
    return x @ w + r


@pattern(X, WEIGHT, X, group="gemm")
def matmul_silu_gate(x, w, g):
    return F.silu(x @ w) * g


@pattern(X, WEIGHT, ROW, X, group="gemm")
def linear_residual_scale(x, w, b, r):
    return F.linear(x, w, b) * 0.5 + r


@pattern(X, WEIGHT, group="gemm")
def lone_matmul(x, w):
    return x @ w
