"""A recurrent classifier trained: a GRU cell called once a position, Adam tensor by tensor, the loss printed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from sizes import DEVICE, size
from torch import Tensor, nn

INPUT, WIDTH, ROWS, LENGTH = size(64, 8), size(256, 16), size(64, 4), size(32, 6)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(INPUT, WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], WIDTH)
        for at in range(LENGTH):
            state = self.cell(x[:, at], state)
        return self.head(state)


def build() -> Any:
    model = Recurrent().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
    batches = [
        (torch.randn(ROWS, LENGTH, INPUT, device=DEVICE), torch.randint(0, 10, (ROWS,), device=DEVICE))
        for _ in range(3)
    ]

    def run(batch: tuple[Tensor, Tensor]) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss.item()

    return SimpleNamespace(
        run=run, batches=batches, parameters=model.named_parameters, modules=[model], loss=lambda given: given
    )
