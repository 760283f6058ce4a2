"""Direct preference optimization of a decoder: chosen and rejected answers apart, log-probabilities written."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from sizes import DEVICE, size
from torch import Tensor, nn

WIDTH, HEADS, LAYERS, WORDS = size(512, 32), 8, size(3, 1), size(16_000, 60)
ROWS, LENGTH = size(4, 2), size(256, 10)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.RMSNorm(WIDTH, 1e-6), nn.RMSNorm(WIDTH, 1e-6)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.after(x))))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.blocks(self.embed(words)))


def said(model: nn.Module, words: Tensor) -> Tensor:
    logits = model(words[:, :-1]).float()
    log_probabilities = torch.log_softmax(logits, -1)
    return log_probabilities.gather(2, words[:, 1:, None]).squeeze(2).sum(1)


def both(model: nn.Module, chosen: Tensor, rejected: Tensor) -> tuple[Tensor, Tensor]:
    return said(model, chosen), said(model, rejected)


def build() -> Any:
    policy = Decoder().to(DEVICE, torch.bfloat16)
    reference = copy.deepcopy(policy).requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-5, foreach=False)
    batches = [tuple(torch.randint(0, WORDS, (2, ROWS, LENGTH), device=DEVICE)) for _ in range(2)]
    shown: list[Any] = []

    def run(batch: tuple[Tensor, Tensor]) -> Any:
        chosen, rejected = both(policy, *batch)
        with torch.no_grad():
            was, other = both(reference, *batch)
        margin = 0.1 * ((chosen - was) - (rejected - other))
        loss = -F.logsigmoid(margin).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shown.append({"loss": loss.item(), "margin": margin.mean().item(), "right": (margin > 0).float().mean().item()})
        return loss.detach(), chosen.detach()

    return SimpleNamespace(
        run=run,
        batches=batches,
        parameters=policy.named_parameters,
        modules=[policy, reference],
        loss=lambda given: given[0],
    )
