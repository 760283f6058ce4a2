"""Train a language model with a large vocabulary."""

from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

ON_GPU = torch.cuda.is_available()
DEVICE, HALF = ("cuda", torch.bfloat16) if ON_GPU else ("cpu", torch.float32)
ROWS, TOKENS, WIDTH, WORDS, LAYERS = (4, 2048, 1024, 50_257, 4) if ON_GPU else (2, 8, 32, 99, 1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.behind = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        heads = self.qkv(self.before(x)).view(*x.shape[:2], 3, WIDTH // 32, 32).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.behind(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words, labels):
        hidden = self.norm(self.blocks(self.words(words)))
        logits = self.head(hidden).float()
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def build():
    torch.manual_seed(0)
    model = Model().to(DEVICE, HALF)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=ON_GPU)
    batches = [torch.randint(0, WORDS, (ROWS, TOKENS + 1), device=DEVICE) for _ in range(2)]

    def run(batch):
        loss = model(batch[:, :-1], batch[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return SimpleNamespace(run=run, batches=batches, parameters=model.named_parameters, modules=[model])
