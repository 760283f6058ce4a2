"""A step of several ranks, as a user would write it: data parallel, on a CPU."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def build() -> Any:
    """The step; PLANTED names what one of its ranks does wrong."""
    dist.init_process_group("gloo")
    rank, planted = dist.get_rank(), os.environ.get("PLANTED", "")
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)))
    batches = [torch.randn(rows + rank, 8) for rows in (6, 10)]
    times = 1.01 if planted == "wrong" and rank else 1.0

    def run(batch: Tensor) -> Tensor:
        model.zero_grad()
        loss = model(batch).pow(2).mean() * times
        if planted == "raises" and rank:
            raise ValueError("no")
        if planted == "crashes" and not rank:
            os._exit(3)
        loss.backward()
        return loss.detach()

    return SimpleNamespace(run=run, batches=batches, parameters=model.named_parameters, modules=[model])
