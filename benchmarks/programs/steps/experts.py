"""Layers of experts: a router picks two for each token, and a loop asks each expert which tokens are its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from sizes import DEVICE, size
from torch import Tensor, nn

EXPERTS, WIDTH, LAYERS, TOKENS = size(16, 4), size(512, 16), size(4, 2), size(1024, 24)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.randn(WIDTH, EXPERTS) * WIDTH**-0.5)
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, 2 * WIDTH) * WIDTH**-0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, 2 * WIDTH, WIDTH) * (2 * WIDTH) ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = torch.topk(torch.softmax((x @ self.gate).float(), -1), 2, dim=-1)
        return x + self.mixed(F.rms_norm(x, (WIDTH,)), weights.to(x.dtype), chosen)

    def mixed(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        for expert in range(EXPERTS):
            rows, slots = torch.where(chosen == expert)
            hidden = F.silu(x[rows] @ self.up[expert]) @ self.down[expert]
            out.index_add_(0, rows, hidden * weights[rows, slots, None])
        return out


def build() -> Any:
    model = nn.Sequential(*(Layer() for _ in range(LAYERS))).to(DEVICE, torch.bfloat16).requires_grad_(False)
    batches = [torch.randn(TOKENS, WIDTH, device=DEVICE).bfloat16() for _ in range(3)]
    return SimpleNamespace(run=model, batches=batches, parameters=model.named_parameters, modules=[model])
