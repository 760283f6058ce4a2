"""Work that need not be in the step, and work that looks so."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.causes.parts import LAST, B, H, attended, hidden, images, over, residuals, rows, sdpa, trained
from benchmarks.causes.program import Step, program, size

# -- with it -----------------------------------------------------------------------------------------------------------


class Quantised(nn.Module):
    """8-bit weights and a scale a row, brought to the input's type in each forward."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (width, width), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(width, 1).div(2000).to(B))
        self.kept: Tensor | None = None

    def full(self) -> Tensor:
        return self.weight.to(self.scale.dtype) * self.scale

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.full() if self.kept is None else self.kept)


@program
def invariant_dequantised(fixed: bool) -> Step:
    """All weights are dequantised in each step."""
    layers = nn.Sequential(*(Quantised(size(2048)) for _ in range(8)))
    if fixed:
        for layer in layers:
            layer.kept = layer.full()
    return over(layers, rows(1024, 2048, B))


@program
def invariant_rotary(fixed: bool) -> Step:
    """Rotary tables of 0, 1, 2 … made anew in each layer of each step."""
    head, places = size(1024, 64) // 16, size(1024)

    def tables(like: Tensor) -> tuple[Tensor, Tensor]:
        rates = 1.0 / 10_000.0 ** (torch.arange(0, head, 2, device=like.device).float() / head)
        angles = torch.outer(torch.arange(places, device=like.device).float(), rates)
        both = torch.cat((angles, angles), dim=-1)[None, None].expand(size(8, 2), 16, places, head)
        return both.cos().to(B), both.sin().to(B)

    def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        low, high = x.chunk(2, -1)
        return x * cos + torch.cat((-high, low), -1) * sin

    kept = tables(torch.empty(0))

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        cos, sin = kept if fixed else tables(q)
        return sdpa(turned(q, cos, sin), turned(k, cos, sin), v, is_causal=True)

    return attended(attend)


@program
def invariant_bias_table(fixed: bool) -> Step:
    """A bias of relative places looked up in a table of parameters, in inference."""
    places = size(1024)
    table = nn.Parameter(torch.randn(2 * places - 1, 16).to(B))
    index = torch.arange(places)[:, None] - torch.arange(places)[None] + places - 1

    def bias() -> Tensor:
        return table[index.view(-1)].view(places, places, 16).permute(2, 0, 1).contiguous()[None]

    kept = bias().detach()
    return attended(lambda q, k, v: sdpa(q, k, v, attn_mask=kept if fixed else bias()))


class Adapted(nn.Module):
    """A weight and a product of two thin ones, added up in each forward."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.down, self.up = nn.Parameter(torch.randn(16, width) / 32), nn.Parameter(torch.randn(width, 16) / 32)
        self.kept: Tensor | None = None

    def merged(self) -> Tensor:
        return self.weight + 0.5 * (self.up @ self.down)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.merged() if self.kept is None else self.kept)


@program
def invariant_adapters(fixed: bool) -> Step:
    """Adapters of low rank are merged into their weights in each step."""
    layers = nn.Sequential(*(Adapted(size(2048)) for _ in range(6))).to(B)
    if fixed:
        for layer in layers:
            layer.kept = layer.merged().detach()
    return over(layers, rows(1024, 2048, B))


# -- near misses -------------------------------------------------------------------------------------------------------


class Standardised(nn.Conv2d):
    """A convolution whose weight is standardised in each forward."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight
        var, mean = torch.var_mean(weight, (1, 2, 3), keepdim=True, unbiased=False)
        return self._conv_forward(
            x, ((weight - mean) * torch.rsqrt(var + 1e-5)).contiguous(memory_format=LAST), self.bias
        )


@program(training=True)
def invariant_not_trained() -> Step:
    """Weight standardisation in training: weights change in each step."""
    channels = size(256, 8)
    model = nn.Sequential(*(Standardised(channels, channels, 3, padding=1) for _ in range(4))).to(B)
    return trained(model.to(memory_format=LAST), images(8, 256, 28, B).to(memory_format=LAST))


@program
def invariant_not_noise() -> Step:
    """Noise that depends on no input, and is another in each step."""
    body = residuals(size(1024), 2).to(H)

    def call(x: Tensor) -> tuple[int, ...]:
        noise = torch.randn(x.shape, device=x.device, dtype=x.dtype)
        return tuple(body(x + 0.1 * noise).shape)

    return over(call, rows(8192, dtype=H))


@program
def invariant_not_computed() -> Step:
    """The tables were computed once, and are read."""
    width = size(1024, 64)
    places, body = torch.randn(size(1024), width, dtype=B), residuals(width, 2).to(B)
    return over(lambda x: body(x + places), hidden())
