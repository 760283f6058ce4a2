"""Train a sparse encoder (SPLADE): queries against documents, by the largest score of each word over tokens."""

from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

ON_GPU = torch.cuda.is_available()
DEVICE, HALF = ("cuda", torch.bfloat16) if ON_GPU else ("cpu", torch.float32)
DOCUMENTS, TOKENS, WIDTH, WORDS, LAYERS = (32, 256, 768, 30_522, 4) if ON_GPU else (4, 8, 32, 99, 1)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, WIDTH // 32, 4 * WIDTH, 0.0, F.gelu, batch_first=True)
        self.words = nn.Embedding(WORDS, WIDTH)
        self.body = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words, mask):
        logits = self.head(self.body(self.words(words)))
        return torch.max(torch.log1p(torch.relu(logits)) * mask.unsqueeze(-1), dim=1).values


def build():
    torch.manual_seed(0)
    model = Encoder().to(DEVICE, HALF)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=ON_GPU)
    batches = [
        (
            torch.randint(0, WORDS, (DOCUMENTS, TOKENS), device=DEVICE),
            (torch.rand(DOCUMENTS, TOKENS, device=DEVICE) < 0.9).long(),
        )
        for _ in range(2)
    ]
    same = torch.arange(DOCUMENTS // 2, device=DEVICE)

    def run(batch):
        scores = model(*batch).float()
        loss = F.cross_entropy(scores[::2] @ scores[1::2].t(), same) + 1e-3 * scores.sum(1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return SimpleNamespace(run=run, batches=batches, parameters=model.named_parameters, modules=[model])
