"""A diffusion sampler with guidance: two passes a round, noise levels asked of the device."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from sizes import DEVICE, size
from torch import Tensor, nn

WIDTH, DEPTH, ROUNDS, ROWS, SIDE = size(128, 16), size(4, 2), size(4, 3), 4, size(32, 8)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.after = nn.GroupNorm(8, WIDTH), nn.GroupNorm(8, WIDTH)
        self.first, self.second = (nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, when: Tensor) -> Tensor:
        h = self.first(F.silu(self.norm(x))) + self.time(when)[:, :, None, None]
        return x + self.second(F.silu(self.after(h)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv2d(4, WIDTH, 3, padding=1), nn.Conv2d(WIDTH, 4, 3, padding=1)
        self.blocks, self.text = nn.ModuleList(Block() for _ in range(DEPTH)), nn.Linear(64, WIDTH)
        self.register_buffer("rates", torch.exp(torch.linspace(0, -6, WIDTH // 2)))

    def forward(self, x: Tensor, level: Tensor, text: Tensor) -> Tensor:
        turn = level[:, None] * self.rates
        when = torch.cat((turn.sin(), turn.cos()), 1).to(x.dtype) + self.text(text)
        h = self.enter(x)
        for block in self.blocks:
            h = block(h, when)
        return self.leave(h)


def build() -> Any:
    model = Net().to(DEVICE, torch.bfloat16).requires_grad_(False).eval()
    sigmas = torch.linspace(3.0, 0.1, ROUNDS + 1, device=DEVICE)
    none = torch.zeros(ROWS, 64, device=DEVICE, dtype=torch.bfloat16)
    batches = [
        (torch.randn(ROWS, 4, SIDE, SIDE, device=DEVICE), torch.randn(ROWS, 64, device=DEVICE).bfloat16())
        for _ in range(2)
    ]

    def level_of(at: int) -> float:
        return sigmas[at].item()

    def guided(x: Tensor, level: Tensor, text: Tensor) -> Tensor:
        bare = model(x, level, none)
        meant = model(x, level, text)
        return bare + 3.0 * (meant - bare)

    def run(batch: tuple[Tensor, Tensor]) -> Tensor:
        x, text = batch[0] * 3.0, batch[1]
        for at in range(ROUNDS):
            now, after = level_of(at), level_of(at + 1)
            level = torch.full((ROWS,), math.log(now), device=DEVICE)
            slope = guided((x / math.sqrt(now * now + 1)).bfloat16(), level, text).float()
            x = x + slope * (after - now)
        return x

    return SimpleNamespace(run=run, batches=batches, parameters=model.named_parameters, modules=[model])
