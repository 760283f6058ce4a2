"""A text classifier trained with autocast, a scaler, two parts a batch, clipping, and a loss that is printed."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from sizes import DEVICE, size
from torch import Tensor, nn

WIDTH, HEADS, LAYERS = size(512, 64), 8, size(3, 2)
ROWS, LENGTH, WORDS, PARTS = size(32, 4), size(256, 12), size(8000, 100), 2
HALF = torch.float16 if DEVICE == "cuda" else torch.bfloat16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        mixed = torch.softmax(scores, -1) @ v
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.after(x))))


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(WORDS, WIDTH), nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embed(words) + self.places)).mean(1))


def build() -> Any:
    model = Classifier().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=1024.0, enabled=DEVICE == "cuda")
    batches = [
        (
            torch.randint(0, WORDS, (PARTS, ROWS, LENGTH), device=DEVICE),
            torch.randint(0, 10, (PARTS, ROWS), device=DEVICE),
        )
        for _ in range(3)
    ]

    def run(batch: tuple[Tensor, Tensor]) -> Any:
        total = 0.0
        for words, kinds in zip(*batch, strict=True):
            with torch.autocast(DEVICE, HALF):
                loss = F.cross_entropy(model(words), kinds) / PARTS
            scaler.scale(loss).backward()
            total += loss.item()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return total

    return SimpleNamespace(
        run=run, batches=batches, parameters=model.named_parameters, modules=[model], loss=lambda total: total
    )
