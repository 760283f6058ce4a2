"""Steps whose heads over a vocabulary can be computed in strips: a sparse encoder, language models, a distillation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HALF = torch.bfloat16
Step = Callable[[], Any]


def _body(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.LayerNorm(width))


def _stepped(loss_of: Callable[[], Tensor], *modules: nn.Module) -> Step:
    optimizer = torch.optim.SGD([p for m in modules for p in m.parameters()], lr=1e-3, foreach=True)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def sparse_encoder(small: bool, words: int = 30_522) -> Step:
    """Train a sparse encoder: queries against documents, by the largest score of each word over tokens."""
    documents, tokens, width = (4, 8, 16) if small else (32, 256, 768)
    words = 99 if small else words
    body, head = _body(width).to(HALF), nn.Linear(width, words).to(HALF)
    x = torch.randn(documents, tokens, width, dtype=HALF)
    mask = (torch.rand(documents, tokens) < 0.9).long()

    def loss_of() -> Tensor:
        logits = head(body(x))
        scores = torch.max(torch.log1p(torch.relu(logits)) * mask.unsqueeze(-1), dim=1).values
        queries, found = scores[::2].float(), scores[1::2].float()
        return (
            F.cross_entropy(queries @ found.t(), torch.arange(len(queries), device=x.device))
            + 1e-3 * scores.float().sum(1).mean()
        )

    return _stepped(loss_of, body, head)


def sparse_encoder_wide(small: bool) -> Step:
    """The same with a vocabulary of many languages."""
    return sparse_encoder(small, 128_256)


def sparse_encoding(small: bool) -> Step:
    """Encode documents: no gradients, and the mask added before the maximum."""
    documents, tokens, width, words = (4, 8, 16, 99) if small else (32, 256, 768, 30_522)
    body, head = _body(width).to(HALF), nn.Linear(width, words).to(HALF)
    x = torch.randn(documents, tokens, width, dtype=HALF)
    mask = (torch.rand(documents, tokens) < 0.9).unsqueeze(-1)

    @torch.no_grad()
    def step() -> Tensor:
        return (torch.log1p(torch.relu(head(body(x)))) * mask).amax(dim=1)

    return step


def language_model(small: bool, smoothing: float = 0.0) -> Step:
    """Train a language model on labels of which a third are left out."""
    rows, width, words = (32, 16, 99) if small else (4096, 1024, 50_257)
    body, head = _body(width).to(HALF), nn.Linear(width, words, bias=False).to(HALF)
    x, labels = torch.randn(rows, width, dtype=HALF), torch.randint(0, words, (rows,))
    labels[::3] = -100
    return _stepped(lambda: F.cross_entropy(head(body(x)).float(), labels, label_smoothing=smoothing), body, head)


def smoothed_language_model(small: bool) -> Step:
    """The same with smoothed labels."""
    return language_model(small, 0.1)


def distilled(small: bool) -> Step:
    """Train a student against a teacher's logits."""
    rows, width, words = (32, 16, 99) if small else (4096, 1024, 32_000)
    body, head = _body(width).to(HALF), nn.Linear(width, words, bias=False).to(HALF)
    teacher, other = nn.Linear(width, words, bias=False).to(HALF), torch.randn(rows, width, dtype=HALF)
    x = torch.randn(rows, width, dtype=HALF)

    def loss_of() -> Tensor:
        with torch.no_grad():
            wanted = F.log_softmax(teacher(other).float(), -1)
        return F.kl_div(F.log_softmax(head(body(x)).float(), -1), wanted, reduction="batchmean", log_target=True)

    return _stepped(loss_of, body, head)


def preferences(small: bool) -> Step:
    """Train on pairs of answers: a loss of sums of their words' log-probabilities."""
    pairs, length, width, words = (2, 8, 16, 99) if small else (4, 512, 1024, 32_000)
    body, head = _body(width).to(HALF), nn.Linear(width, words, bias=False).to(HALF)
    x, chosen = torch.randn(2 * pairs, length, width, dtype=HALF), torch.randint(0, words, (2 * pairs, length))
    answer = (torch.arange(length) >= length // 4).expand(2 * pairs, length)
    reference = torch.randn(2 * pairs)

    def loss_of() -> Tensor:
        logps = F.log_softmax(head(body(x)).float(), -1)
        of_words = torch.gather(logps, 2, chosen.unsqueeze(2)).squeeze(2)
        sums = (of_words * answer).sum(-1) - reference
        return -F.logsigmoid(0.1 * (sums[:pairs] - sums[pairs:])).mean()

    return _stepped(loss_of, body, head)


def feed_forward(small: bool) -> Step:
    """Run feed-forward layers without gradients: bias with an activation, and a residual sum."""
    rows, width = (8, 16) if small else (8192, 2048)
    up, down = nn.Linear(width, 4 * width).to(HALF), nn.Linear(4 * width, width, bias=False).to(HALF)
    x = torch.randn(rows, width, dtype=HALF)

    @torch.no_grad()
    def step() -> Tensor:
        return down(F.gelu(up(x), approximate="tanh")) + x

    return step


def soft_capped(small: bool) -> Step:
    """Attend as models with a soft cap do: scores through tanh, a causal mask added, without gradients."""
    batch, heads, length, width = (1, 2, 16, 8) if small else (4, 16, 2048, 128)
    q, k, v = (torch.randn(batch, heads, length, width, dtype=HALF) for _ in range(3))
    mask = torch.full((1, 1, length, length), -torch.inf, dtype=HALF).triu(1)

    @torch.no_grad()
    def step() -> Tensor:
        scores = torch.matmul(q, k.transpose(2, 3)) * width**-0.5
        scores = torch.tanh(scores / 50.0) * 50.0 + mask
        return torch.matmul(scores.softmax(-1), v)

    return step


def quantised_decode(small: bool) -> Step:
    """Decode with weights of 8 bits that are dequantised in each layer."""
    rows, width, layers = (4, 64, 2) if small else (16, 4096, 4)
    x, codes, scales = torch.randn(rows, width, dtype=HALF), [], []
    for _ in range(layers):
        codes += [torch.randint(-127, 128, n, dtype=torch.int8) for n in ((3 * width, width), (width, 3 * width))]
        scales += [torch.full((n, 1), 1 / 73 / width**0.5, dtype=HALF) for n in (3 * width, width)]

    @torch.no_grad()
    def step() -> Tensor:
        y = x
        for code, scale in zip(codes, scales, strict=True):
            y = F.linear(y, code.to(HALF) * scale)
        return y

    return step


STEPS: dict[str, Callable[[bool], Step]] = {
    each.__name__: each
    for each in (
        sparse_encoder,
        sparse_encoding,
        language_model,
        smoothed_language_model,
        distilled,
        preferences,
        feed_forward,
        sparse_encoder_wide,
        soft_capped,
        quantised_decode,
    )
}


def step_of(name: str, device: str) -> tuple[Step, str]:
    """Return a step, small on a CPU, and what it is."""
    torch.manual_seed(0)
    with torch.device(device):
        return STEPS[name](device == "cpu"), STEPS[name].__doc__ or ""
