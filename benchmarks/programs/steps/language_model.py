"""A decoder trained in bfloat16: norms, rotations and attention written out, AdamW tensor by tensor."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from sizes import DEVICE, size
from torch import Tensor, nn

WIDTH, HEADS, LAYERS, WORDS = size(768, 32), size(12, 4), size(3, 2), size(8192, 60)
ROWS, LENGTH = size(4, 2), size(512, 10)


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def attended(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
    scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(hidden, float("-inf"))
    return torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype) @ v


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = Norm(), Norm()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, hidden: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1))
        mixed = attended(turned(q, cos, sin), turned(k, cos, sin), v, hidden)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        inner = self.after(x)
        return x + self.down(F.silu(self.gate(inner)) * self.up(inner))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        half = WIDTH // HEADS // 2
        angles = torch.arange(LENGTH)[:, None] * torch.exp(torch.linspace(0, -9, half))[None]
        self.register_buffer("cos", torch.cat((angles, angles), 1).cos())
        self.register_buffer("sin", torch.cat((angles, angles), 1).sin())
        self.register_buffer("hidden", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1))

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words)
        for block in self.blocks:
            x = block(x, self.cos, self.sin, self.hidden)
        return self.head(x)


def build() -> Any:
    model = Decoder().to(DEVICE, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    batches = [torch.randint(0, WORDS, (ROWS, LENGTH + 1), device=DEVICE) for _ in range(3)]

    def run(words: Tensor) -> Any:
        logits = model(words[:, :-1]).float()
        loss = F.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return SimpleNamespace(run=run, batches=batches, parameters=model.named_parameters, modules=[model])
