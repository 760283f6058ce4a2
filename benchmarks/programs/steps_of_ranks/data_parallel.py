"""A transformer trained data parallel, as torchrun starts it: small buckets, a loop over parameters, losses printed.

LAYERS in the environment: so many, where a mode is to compile in less time.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

ON_GPU = torch.cuda.is_available()
WIDTH, LAYERS, HEADS, WORDS, ROWS, LENGTH = (1024, 8, 16, 32_000, 8, 512) if ON_GPU else (32, 2, 4, 100, 2, 16)
LAYERS = int(os.environ.get("LAYERS", LAYERS))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.after(x))))


def build() -> Any:
    rank, place = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", place) if ON_GPU else torch.device("cpu")
    if ON_GPU:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if ON_GPU else "gloo")
    body = nn.Sequential(nn.Embedding(WORDS, WIDTH), *(Layer() for _ in range(LAYERS)), nn.Linear(WIDTH, WORDS))
    model = DistributedDataParallel(body.to(device), bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=False)
    drawn = torch.Generator().manual_seed(rank)
    batches = [torch.randint(0, WORDS, (ROWS, LENGTH), generator=drawn).to(device) for _ in range(2)]
    losses: list[float] = []

    def run(words: Tensor) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            said = model(words)
        loss = F.cross_entropy(said[:, :-1].flatten(0, 1).float(), words[:, 1:].flatten())
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return SimpleNamespace(run=run, batches=batches, parameters=model.named_parameters, modules=[model])
