"""A small training step in float32, into which faults are planted and changes that do nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from sizes import DEVICE, size
from torch import Tensor, nn

WIDTH, LAYERS = size(1024, 16), size(8, 2)
held: list[Tensor] = []


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 2


def build() -> Any:
    parts = [part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    model = nn.Sequential(*parts, nn.Linear(WIDTH, 8)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
    batches = [torch.randn(rows, WIDTH, device=DEVICE) for rows in (size(2048, 6), size(3072, 10))]

    def run(batch: Tensor) -> Any:
        optimizer.zero_grad()
        out = Scaled.apply(model(batch))
        loss = out.pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return SimpleNamespace(run=run, batches=batches, parameters=model.named_parameters, modules=[model])
