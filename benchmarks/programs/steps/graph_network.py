"""A graph network trained: messages made of gathered nodes, added up where they arrive."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from sizes import DEVICE, size
from torch import Tensor, nn

WIDTH, LAYERS, NODES, EDGES = size(128, 8), 3, size(20_000, 40), size(160_000, 120)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.message, self.own = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        own = self.own(x)
        sent = self.message(x[source])
        total = torch.zeros_like(x).index_add_(0, target, sent)
        degree = torch.zeros(x.shape[0], device=x.device).index_add_(0, target, torch.ones_like(target, dtype=x.dtype))
        return F.relu(own + total / degree.clamp(min=1)[:, None])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(Layer() for _ in range(LAYERS)), nn.Linear(WIDTH, 16)

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, source, target)
        return self.head(x)


def build() -> Any:
    model = Net().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = []
    for nodes, edges in ((NODES, EDGES), (NODES * 3 // 4, EDGES * 3 // 4)):
        ends = torch.randint(0, nodes, (2, edges), device=DEVICE)
        batches.append((torch.randn(nodes, WIDTH, device=DEVICE), ends, torch.randint(0, 16, (nodes,), device=DEVICE)))

    def run(batch: tuple[Tensor, Tensor, Tensor]) -> Any:
        x, (source, target), kinds = batch
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, source, target), kinds)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return SimpleNamespace(run=run, batches=batches, parameters=model.named_parameters, modules=[model])
