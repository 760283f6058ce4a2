"""A residual network trained under autocast, its weights averaged tensor by tensor, its accuracy printed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from sizes import DEVICE, size
from torch import Tensor, nn

WIDTH, BLOCKS, ROWS, SIDE = size(128, 8), size(5, 2), size(64, 4), size(32, 8)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norm, self.after = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.after(self.second(F.relu(self.norm(self.first(x))))))


def build() -> Any:
    body = [nn.Conv2d(3, WIDTH, 3, padding=1), *(Residual(WIDTH) for _ in range(BLOCKS))]
    model = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTH, 100)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=False)
    average = [parameter.detach().clone() for parameter in model.parameters()]
    batches = [
        (torch.randn(ROWS, 3, SIDE, SIDE, device=DEVICE), torch.randint(0, 100, (ROWS,), device=DEVICE))
        for _ in range(3)
    ]
    right: list[Any] = []

    def run(batch: tuple[Tensor, Tensor]) -> Any:
        pictures, kinds = batch
        with torch.autocast(DEVICE, torch.bfloat16):
            said = model(pictures)
            loss = F.cross_entropy(said, kinds)
        right.append((said.argmax(1) == kinds).float().mean().item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(average, model.parameters(), strict=True):
                old.mul_(0.999).add_(new, alpha=0.001)
        return loss.detach(), average[0]

    return SimpleNamespace(
        run=run, batches=batches, parameters=model.named_parameters, modules=[model], loss=lambda given: given[0]
    )
