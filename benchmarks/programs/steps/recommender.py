"""A recommender trained: many tables, few rows of each read, gradients and an optimizer that go over all rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from sizes import DEVICE, size
from torch import Tensor, nn

TABLES, ROWS, WIDTH, BATCH = size(26, 4), size(100_000, 50), size(32, 8), size(2048, 16)


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(ROWS, WIDTH) for _ in range(TABLES))
        self.bottom = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, WIDTH), nn.ReLU())
        pairs = (TABLES + 1) * TABLES // 2
        self.top = nn.Sequential(nn.Linear(pairs + WIDTH, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, places: Tensor, dense: Tensor) -> Tensor:
        x = self.bottom(dense)
        found = [table(places[at]) for at, table in enumerate(self.tables)]
        every = torch.stack([x, *found], 1)
        products = every @ every.transpose(1, 2)
        first, second = torch.triu_indices(TABLES + 1, TABLES + 1, 1, device=x.device)
        return self.top(torch.cat((x, products[:, first, second]), 1)).squeeze(1)


def build() -> Any:
    model = Recommender().to(DEVICE)
    optimizers: list[Any] = [torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)]
    batches = [
        (
            torch.randint(0, ROWS, (TABLES, BATCH), device=DEVICE),
            torch.randn(BATCH, 13, device=DEVICE),
            torch.rand(BATCH, device=DEVICE),
        )
        for _ in range(3)
    ]

    def run(batch: tuple[Tensor, Tensor, Tensor]) -> Any:
        places, dense, clicks = batch
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(places, dense), clicks)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.item()

    return SimpleNamespace(
        run=run, batches=batches, parameters=model.named_parameters, modules=[model], loss=lambda given: given
    )
