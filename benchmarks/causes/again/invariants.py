"""Programs of the second part that was held back: invariants."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from benchmarks.causes.parts import B, Layer, Layers, applied, over, trained
from benchmarks.causes.program import Step, program, size

# -- with it -----------------------------------------------------------------------------------------------------------


class Bounded(nn.Module):
    """Rows of a weight whose absolute values sum up to at most a bound."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.bound = nn.Parameter(torch.rand(outputs) * 10)

    def forward(self, weight: Tensor) -> Tensor:
        longest = F.softplus(self.bound) / weight.abs().sum(1)
        return weight * longest.clamp(max=1.0)[:, None]


class Surface(nn.Module):
    """How far points lie from the surface of a shape, which a code describes."""

    def __init__(self, code: int, width: int) -> None:
        super().__init__()
        widths = [code + 3, *([width] * 7), 1]
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(widths))
        for layer in self.layers:
            parametrize.register_parametrization(layer, "weight", Bounded(layer.out_features))

    def forward(self, points: Tensor, code: Tensor) -> Tensor:
        x = torch.hstack([code.expand(len(points), -1), points])
        for layer in self.layers[:-1]:
            x = layer(x).tanh_()
        return self.layers[-1](x).squeeze(-1)


@program
def shapes_with_bounded_rows(fixed: bool) -> Step:
    """A surface of a shape by layers of a bounded Lipschitz constant, whose weights are a parametrisation."""
    code = size(253, 13)
    model = Surface(code, size(512))
    if fixed:
        for layer in model.layers:
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    return applied(model, torch.rand(size(16384), 3) * 2 - 1, torch.randn(1, code))


def waves(samples: int, bins: int, like: Tensor) -> Tensor:
    """Cosines and sines of frequencies a fraction of a semitone apart, each under a bell of its own width."""
    time = torch.arange(samples, device=like.device, dtype=like.dtype) - samples / 2
    pitch = torch.arange(bins, device=like.device, dtype=like.dtype)
    frequency = 0.002 * torch.exp2(pitch * (7 / bins))
    bells = torch.exp(-((time[:, None] * frequency / 6) ** 2))
    bells /= bells.sum(0, keepdim=True)
    phase = torch.outer(time, frequency).mul_(2 * math.pi)
    return torch.cat([phase.cos() * bells, phase.sin() * bells], 1)


class Chords(nn.Module):
    """What is played at each moment, from the loudness of tones."""

    def __init__(self, samples: int, bins: int) -> None:
        super().__init__()
        self.samples, self.bins = samples, bins
        self.rest = nn.Sequential(nn.Linear(bins, bins), nn.ELU(), nn.Linear(bins, 24))
        self.held: Tensor | None = None

    def forward(self, sound: Tensor) -> Tensor:
        frames = sound.unfold(-1, self.samples, self.samples // 4)
        bases = waves(self.samples, self.bins, sound) if self.held is None else self.held
        real, imaginary = (frames @ bases).chunk(2, -1)
        return self.rest(torch.hypot(real, imaginary).clamp_(min=1e-4).log_())


@program
def chords_by_constant_q(fixed: bool) -> Step:
    """Sound times waves of a constant Q, which are computed anew for each batch."""
    samples, bins = size(2048), size(512)
    model, sound = Chords(samples, bins), torch.randn(size(32, 2), size(262144))
    if fixed:
        model.held = waves(samples, bins, sound)
    return applied(model, sound)


class Hypercomplex(nn.Module):
    """A linear layer whose weight is a sum of Kronecker products: rules of an algebra times blocks."""

    def __init__(self, inputs: int, outputs: int, parts: int = 8) -> None:
        super().__init__()
        self.rules = nn.Parameter(torch.randn(parts, parts, parts) / parts)
        self.blocks = nn.Parameter(torch.randn(parts, outputs // parts, inputs // parts) / inputs**0.5)
        self.bias = nn.Parameter(torch.randn(outputs) / 10)
        self.held: Tensor | None = None

    def weight(self) -> Tensor:
        products = torch.einsum("nij,nkl->ikjl", self.rules, self.blocks)
        return products.reshape(self.bias.numel(), -1)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight() if self.held is None else self.held, self.bias)


class Mixed(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.first, self.second = Hypercomplex(width, 4 * width), Hypercomplex(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.silu(self.first(self.norm(x))))


@program
def sentences_in_hypercomplex_layers(fixed: bool) -> Step:
    """An encoder of sentences whose weights are sums of Kronecker products of parameters."""
    width = size(1024, 64)
    model = Layers([Mixed(width) for _ in range(3)]).to(B)
    if fixed:
        for layer in model.modules():
            if isinstance(layer, Hypercomplex):
                layer.held = layer.weight()
    return applied(model, torch.randn(size(64, 4), size(64, 8), width, dtype=B))


# -- near misses -------------------------------------------------------------------------------------------------------


class Residues(nn.Module):
    """Layers over the residues of chains, with a bias for how far apart two of them are in the sequence."""

    def __init__(self, width: int, heads: int, reach: int = 32) -> None:
        super().__init__()
        self.reach = reach
        self.near = nn.Parameter(torch.randn(heads, 2 * reach + 1))
        self.layers = Layers([Layer(width, heads, F.scaled_dot_product_attention) for _ in range(3)])

    def forward(self, x: Tensor, number: Tensor) -> Tensor:
        apart = (number.unsqueeze(1) - number.unsqueeze(2)).clamp_(-self.reach, self.reach).add_(self.reach)
        bias = self.near[:, apart].transpose(0, 1)  # batch, heads, residues, residues
        return self.layers(x, bias)


@program
def residues_by_their_numbers() -> Step:
    """Proteins with a bias by the distance of residues, whose numbers jump where a chain ends or something lacks."""
    batch, count, width = size(4, 2), size(1024), size(512, 64)
    gaps = torch.where(torch.rand(batch, count) < 0.01, 200, 1)
    model = Residues(width, 8).to(B).eval()
    return over(lambda x, number: model(x, number), torch.randn(batch, count, width, dtype=B), gaps.cumsum(1))


class Ternary(nn.Linear):
    """A linear layer that computes with weights of three values, and is trained as if it had its own."""

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight.detach().abs().mean().clamp_(min=1e-5)
        rounded = (self.weight.detach() / scale).round_().clamp_(-1, 1).mul_(scale)
        return F.linear(x, self.weight + (rounded - self.weight).detach(), self.bias)


class Coarse(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.gate = nn.LayerNorm(width), Ternary(width, 4 * width)
        self.down = Ternary(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.relu(self.gate(self.norm(x))).square())


@program(training=True)
def three_values_a_weight() -> Step:
    """A training step of layers whose weights are rounded to three values in each pass."""
    width = size(1024)
    return trained(Layers([Coarse(width) for _ in range(2)]), torch.randn(size(16, 2), size(256), width))
