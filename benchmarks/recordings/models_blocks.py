"""Models of our own for models.py: each function gives the model, how it is called, and inputs for the call."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MixerBlock(nn.Module):
    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.tokens = nn.Sequential(nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches))
        self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norms[1](x))


def mixer(batch: int = 64, width: int = 512, depth: int = 3) -> Any:
    model = nn.Sequential(*(MixerBlock(196, width) for _ in range(depth)))
    return model, lambda m, x: m(x), [torch.randn(batch, 196, width)]


class Recommender(nn.Module):
    """Embedding bags, a bottom tower, dot products of all pairs, a top tower: the shape of DLRM."""

    def __init__(self, tables: int = 16, rows: int = 20000, width: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(
            nn.Linear(pairs + width, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 1)
        )
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1), persistent=False)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        low = self.bottom(dense)
        rows = torch.stack([low, *(table(ids[:, k]) for k, table in enumerate(self.tables))], 1)
        products = torch.bmm(rows, rows.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return torch.sigmoid(self.top(torch.cat((low, products), 1)))


def recommender(batch: int = 8192) -> Any:
    return (
        Recommender(),
        lambda m, dense, ids: m(dense, ids),
        [torch.rand(batch, 13), torch.randint(0, 20000, (batch, 16, 4))],
    )


class ResidualBlock(nn.Module):
    """A block of a diffusion U-Net: group norm, SiLU, convolution, the time step's scale and shift, attention."""

    def __init__(self, channels: int, time: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(32, channels) for _ in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(time, 2 * channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        scale, shift = self.time(F.silu(time))[:, :, None, None].chunk(2, 1)
        inner = self.convs[0](F.silu(self.norms[0](x)))
        x = x + self.convs[1](F.silu(self.norms[1](inner) * (1 + scale) + shift))
        batch, channels, height, width = x.shape
        q, k, v = self.qkv(self.norms[2](x)).view(batch, 3, 8, channels // 8, height * width).transpose(3, 4).unbind(1)
        seen = F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(x.shape)
        return x + self.out(seen)


class UNet(nn.Module):
    def __init__(self, channels: int = 256) -> None:
        super().__init__()
        self.into, self.down = (
            nn.Conv2d(4, channels, 3, padding=1),
            nn.Conv2d(channels, channels, 3, stride=2, padding=1),
        )
        self.blocks = nn.ModuleList(ResidualBlock(channels, 512) for _ in range(3))
        self.merge, self.outof = nn.Conv2d(2 * channels, channels, 1), nn.Conv2d(channels, 4, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        angles = time[:, None] * torch.exp(torch.arange(0, 256, device=x.device, dtype=x.dtype) * -0.036)
        embedded = torch.cat((angles.sin(), angles.cos()), 1)
        first = self.blocks[0](self.into(x), embedded)
        low = self.blocks[1](self.down(first), embedded)
        merged = self.merge(torch.cat((first, F.interpolate(low, scale_factor=2.0)), 1))
        return self.outof(F.silu(self.blocks[2](merged, embedded)))


def unet(batch: int = 4, size: int = 32) -> Any:
    return UNet(), lambda m, x, time: m(x, time), [torch.randn(batch, 4, size, size), torch.rand(batch)]


class RMSNorm(nn.Module):
    """As model code spells it out."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


class DecoderLayer(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList(RMSNorm(hidden) for _ in range(2))
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.gate, self.up = nn.Linear(hidden, 4 * hidden, bias=False), nn.Linear(hidden, 4 * hidden, bias=False)
        self.down = nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, past: tuple[Tensor, Tensor] | None) -> Tensor:
        shape = (*x.shape[:2], self.heads, x.shape[2] // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, -1))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        inner = self.norms[1](x)
        return x + self.down(F.silu(self.gate(inner)) * self.up(inner))


class Decoder(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(8192, hidden), RMSNorm(hidden)
        self.layers = nn.ModuleList(DecoderLayer(hidden, heads) for _ in range(layers))
        self.head = nn.Linear(hidden, 8192, bias=False)

    def forward(self, ids: Tensor, cos: Tensor, sin: Tensor, *past: Tensor) -> Tensor:
        x = self.embed(ids)
        for index, layer in enumerate(self.layers):
            x = layer(x, cos, sin, (past[2 * index], past[2 * index + 1]) if past else None)
        return self.head(self.norm(x))


def decoder(
    batch: int = 8, length: int = 512, cached: int = 0, layers: int = 2, hidden: int = 2048, heads: int = 16
) -> Any:
    size = hidden // heads
    past = [torch.randn(batch, heads, cached, size) for _ in range(2 * layers)] if cached else []
    angles = [torch.randn(length, size) for _ in range(2)]
    ids = torch.randint(0, 8192, (batch, length))
    return Decoder(layers, hidden, heads), lambda m, *given: m(*given), [ids, *angles, *past]


def tiny_mlp(batch: int = 64) -> Any:
    parts = ((nn.Linear(128, 128), nn.LayerNorm(128), nn.GELU()) for _ in range(8))
    return nn.Sequential(*itertools.chain(*parts)), lambda m, x: m(x), [torch.randn(batch, 128)]


class Products(nn.Module):
    """Products of two tensors of one shape, the first made before the second, after it, or long before, as models have
    them: what shapes do not tell is which is which."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wide = nn.ModuleList(nn.Linear(width, width) for _ in range(8))
        self.halves = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        one, two = self.wide[0](self.norms[0](x)), self.wide[1](self.norms[0](x))
        x = x + F.silu(one) * two
        one, two = self.wide[2](self.norms[1](x)), self.wide[3](self.norms[1](x))
        x = x + two * F.gelu(one)
        y = self.wide[4](self.norms[2](x))
        x = x + 0.5 * y * (1.0 + torch.tanh(0.79788456 * (y + 0.044715 * torch.pow(y, 3.0))))
        y = self.wide[5](self.norms[3](x))
        x = x + y * torch.sigmoid(1.702 * y)
        one, two = self.halves[0](self.norms[4](x)).chunk(2, -1)
        x = x + one * torch.sigmoid(two)
        two, one = self.halves[1](self.norms[5](x)).chunk(2, -1)
        x = x + torch.sigmoid(two) * one
        gate = torch.sigmoid(self.wide[6](x))
        kept = torch.tanh(self.wide[7](x))
        x = gate * x + (1 - gate) * kept
        return (x + kept) * (x - kept)


def products(batch: int = 16, length: int = 256, width: int = 512) -> Any:
    return nn.Sequential(Products(width), Products(width)), lambda m, x: m(x), [torch.randn(batch, length, width)]


class Mixed(nn.Module):
    """Running statistics, a residual sum, products, and a norm of our own, at widths that are all the same."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))
        self.products = Products(width)
        self.last = RMSNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.convolutions[0](x)))
        y = F.relu(self.norms[1](self.convolutions[1](y)) + x)
        return self.last(self.products(y.flatten(2).transpose(1, 2)))


def mixed(batch: int = 8, width: int = 64, size: int = 16) -> Any:
    return Mixed(width), lambda m, x: m(x), [torch.randn(batch, width, size, size)]
