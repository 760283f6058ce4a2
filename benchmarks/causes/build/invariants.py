"""Work that need not be in the step, and work that looks so."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.causes.parts import LAST, B, H, attended, hidden, images, over, residuals, rows, sdpa
from benchmarks.causes.program import Step, program, size

# -- with it -----------------------------------------------------------------------------------------------------------


class Standardised(nn.Conv2d):
    """A convolution whose weight is standardised in each forward."""

    def standard(self) -> Tensor:
        weight = self.weight.float()
        mean, var = weight.mean((1, 2, 3), keepdim=True), weight.var((1, 2, 3), keepdim=True, unbiased=False)
        return ((weight - mean) * torch.rsqrt(var + 1e-5)).to(self.weight.dtype).contiguous(memory_format=LAST)

    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(x, self.standard(), self.bias)


@program
def invariant_standardised(fixed: bool) -> Step:
    """Weight standardisation in inference."""
    channels = size(512, 8)
    model = nn.Sequential(*(Standardised(channels, channels, 3, padding=1) for _ in range(4))).to(H).eval()
    model.to(memory_format=LAST)
    if fixed:
        ready = []
        for layer in model:
            options = {"device": layer.weight.device, "dtype": H}
            plain = nn.utils.skip_init(nn.Conv2d, channels, channels, 3, padding=1, **options)
            plain.weight, plain.bias = nn.Parameter(layer.standard()), layer.bias
            ready.append(plain)
        model = nn.Sequential(*ready)
    return over(model, images(8, 512, 28).to(memory_format=LAST))


@program
def invariant_mask(fixed: bool) -> Step:
    """A causal mask for the whole batch, made anew in each step."""
    batch, places = size(8, 2), size(1024)

    def made(like: Tensor) -> Tensor:
        mask = torch.full((places, places), torch.finfo(B).min, device=like.device, dtype=B)
        mask = torch.triu(mask, diagonal=1)
        return mask[None, None].expand(batch, 1, places, places).clone()

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return sdpa(q, k, v, attn_mask=kept if fixed else made(q))

    kept = made(torch.empty(0))
    return attended(attend)


class Normed(nn.Module):
    """A layer whose weight is a direction and a length, multiplied out in each forward."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.direction, self.length = nn.Parameter(torch.randn(width, width) / 32), nn.Parameter(torch.ones(width, 1))

    def weight(self) -> Tensor:
        return self.direction * (self.length / self.direction.norm(dim=1, keepdim=True))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight())


@program
def invariant_weight_norm(fixed: bool) -> Step:
    """Weight normalisation in inference."""
    model = nn.Sequential(*(Normed(size(2048)) for _ in range(6))).to(B)
    weights = [layer.weight().clone() for layer in model]

    def call(x: Tensor) -> Tensor:
        for weight in weights:
            x = F.linear(x, weight)
        return x

    return over(call if fixed else model, rows(1024, 2048, B))


@program
def invariant_sinusoids(fixed: bool) -> Step:
    """Sines and cosines of all places, made anew in each step."""
    width, places = size(1024, 64), size(4096)
    body = residuals(width, 1).to(B)

    def made(like: Tensor) -> Tensor:
        at = torch.arange(places, device=like.device, dtype=torch.float32)[:, None]
        rates = torch.exp(torch.arange(0, width, 2, device=like.device) * (-9.21 / width))
        table = torch.zeros(places, width, device=like.device)
        table[:, 0::2], table[:, 1::2] = torch.sin(at * rates), torch.cos(at * rates)
        return table.to(B)

    kept = made(torch.empty(0))
    return over(lambda x: body(x + (kept if fixed else made(x))), hidden(1, 4096)[:1])


# -- near misses -------------------------------------------------------------------------------------------------------


@program
def invariant_not_places() -> Step:
    """Rotary tables of places that move on by one in each step."""
    head, places = 64, size(1024)
    at = torch.arange(places)
    rates = 10_000.0 ** (-torch.arange(0, head // 2).float() / (head // 2))

    def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        low, high = x.chunk(2, -1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        angles = at[:, None] * rates
        cos, sin = angles.cos().to(q.dtype), angles.sin().to(q.dtype)
        cos, sin = cos[:, : q.shape[-1] // 2], sin[:, : q.shape[-1] // 2]
        return sdpa(turned(q, cos, sin), turned(k, cos, sin), v, is_causal=True)

    inner = attended(attend)

    def step() -> Tensor:
        at.add_(1)
        return inner()

    return step


@program
def invariant_not_padding() -> Step:
    """A mask made of the token ids of the batch."""
    places = size(1024)
    table = torch.randn(size(8192), size(1024, 64), dtype=B)
    ids = torch.randint(0, size(8192), (size(8, 2), places))
    ahead, masks = torch.ones(places, places, dtype=torch.bool).tril(), []
    step = attended(lambda q, k, v: sdpa(q, k, v, attn_mask=masks[-1]))

    def call(ids: Tensor) -> Tensor:
        there = ids.ne(0)
        masks[:] = [there[:, None, None, :] & ahead]
        return step() + table[ids].mean()

    return over(call, ids)


@program
def invariant_not_dynamic() -> Step:
    """Weights that a small network makes of the input."""
    width = size(512)
    maker, body = nn.Linear(width, width * 16).to(B), residuals(width, 2).to(B)

    def call(x: Tensor) -> Tensor:
        low = maker(x.mean(1)).unflatten(-1, (width, 16))
        weight = low @ low.transpose(1, 2) / width
        return body(torch.bmm(x, weight))

    return over(call, torch.randn(size(32, 2), size(512), width, dtype=B))
