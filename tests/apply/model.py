"""A step as a user would write it, in which tests plant faults by source diffs."""

from __future__ import annotations

import os
import random
import time
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

PAUSE_S, REST_S = 0.01, 0.003
VIRTUAL = True  # a clock that what else runs on the machine does not move; else steps do take their time
held: list[Tensor] = []
now = [0]
noise = random.Random(os.getpid())


class Scaled(torch.autograd.Function):  # type: ignore[misc]  # torch may have no types here
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 2


def pause(seconds: float) -> None:
    """Let a step take so long, give or take a hundredth."""
    if VIRTUAL:
        now[0] += round(seconds * noise.gauss(1e9, 1e7))
        time.perf_counter_ns = lambda: now[0]
    else:
        time.sleep(seconds)


def build() -> Any:
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.BatchNorm1d(16), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = [torch.randn(rows, 8) for rows in (6, 10, 6)]

    def run(batch: Tensor) -> Tensor:
        optimizer.zero_grad()
        pause(PAUSE_S)
        out = Scaled.apply(model(batch))
        loss = out.pow(2).mean()
        loss.backward()
        pause(REST_S)
        optimizer.step()
        return loss.detach()

    return SimpleNamespace(run=run, batches=batches, parameters=model.named_parameters, modules=[model])
