"""Greedy decoding as libraries have it: norms written out, a cache that grows by `cat`, the end asked for each word."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from sizes import DEVICE, size
from torch import Tensor, nn

WIDTH, HEADS, LAYERS, WORDS = 512, 8, size(3, 2), size(8192, 256)
TOKENS, ROWS = size(8, 4), 4
END = WORDS - 1


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = Norm(WIDTH), Norm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)
        self.prepare()

    def prepare(self) -> None:
        pass

    def forward(self, x: Tensor, past: Any, at: Tensor) -> tuple[Tensor, Any]:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1))
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + 0.1 * self.out(mixed.transpose(1, 2).flatten(2))
        hidden = self.after(x)
        return x + 0.1 * self.down(F.silu(self.gate(hidden)) * self.up(hidden)), (k, v)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(WORDS, WIDTH), Norm(WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = nn.Parameter(self.embed.weight.detach().roll(1, 0).clone())  # a word and the next one

    def forward(self, token: Tensor, past: Any, at: Tensor) -> tuple[Tensor, Any]:
        x, after = self.embed(token), []
        for block, mine in zip(self.blocks, past, strict=True):
            x, kept = block(x, mine, at)
            after.append(kept)
        return self.head(self.norm(x)), after


def build() -> Any:
    model = Decoder().to(DEVICE, torch.bfloat16).requires_grad_(False).eval()
    batches = [torch.randint(0, END - 2 * TOKENS, (ROWS, 1), device=DEVICE) for _ in range(3)]
    places = torch.arange(TOKENS, device=DEVICE).split(1)

    def run(prompt: Tensor) -> Tensor:
        token, past, said = prompt, [None] * LAYERS, []
        for at in range(TOKENS):
            logits, past = model(token, past, places[at])
            token = logits[:, -1].argmax(-1, keepdim=True)
            said.append(token)
            if (token == END).all().item():
                break
        return torch.cat(said, 1)

    return SimpleNamespace(run=run, batches=batches, parameters=model.named_parameters, modules=[model])
