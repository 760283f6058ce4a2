"""Programs of the second part that was held back: products."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.causes.parts import B, D, H, applied, grouped_as_products, over, precise, up_to, widened
from benchmarks.causes.program import Step, program, size

# -- misaligned --------------------------------------------------------------------------------------------------------


class Clicks(nn.Module):
    """Embeddings and dense features side by side, then a few layers; `more` columns of zeros where there are any."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(width, width // 2), nn.ReLU(), nn.Linear(width // 2, 8))
        self.more: Tensor | None = None

    def forward(self, embedded: Tensor, dense: Tensor) -> Tensor:
        parts = [embedded, dense] if self.more is None else [embedded, dense, self.more]
        return self.rest(self.first(torch.cat(parts, 1))).sigmoid()


@program
def clicks_odd_features(fixed: bool) -> Step:
    """A click model whose features count 3,475."""
    rows, embedded, dense = size(16384), size(3328), size(147, 11)
    model = Clicks(embedded + dense, size(2048)).to(H)
    inputs = torch.randn(rows, embedded, dtype=H), torch.randn(rows, dense, dtype=H)
    if fixed:
        wide = up_to(embedded + dense)
        model.first = widened(model.first, wide, model.first.out_features)
        model.more = torch.zeros(rows, wide - embedded - dense, dtype=H)
    return applied(model, *inputs)


class Sage(nn.Module):
    """What a node has and the mean of its neighbours, a product each."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own, self.others = nn.Linear(width, width), nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, neighbours: Tensor) -> Tensor:
        return F.relu(self.own(x) + self.others(x[neighbours].mean(1)))


class Citations(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Sage(width) for _ in range(3))

    def forward(self, x: Tensor, neighbours: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, neighbours)
        return x


@program
def citations_odd_nodes() -> Step:
    """A graph of 19,717 nodes: rows of the products, whose widths are even."""
    nodes, width = size(19717, 101), size(1024)
    neighbours = torch.randint(nodes, (nodes, 8))
    return applied(Citations(width).to(B), torch.randn(nodes, width, dtype=B), neighbours)


# -- TF32 --------------------------------------------------------------------------------------------------------------


class Field(nn.Module):
    """Colour and density at points of space, from sines of their places."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("rates", torch.randn(3, 32))
        layers: list[nn.Module] = [nn.Linear(64, width), nn.ReLU()]
        for _ in range(6):
            layers += [nn.Linear(width, width), nn.ReLU()]
        self.layers, self.out = nn.Sequential(*layers), nn.Linear(width, 4)

    def forward(self, places: Tensor) -> Tensor:
        angles = (places[..., None] * self.rates).sum(1)
        return self.out(self.layers(torch.cat([angles.sin(), angles.cos()], -1)))


@program
def radiance_highest(fixed: bool) -> Step:
    """A radiance field at 131,072 points in float32 at the highest precision."""
    step = applied(Field(size(256)), torch.rand(size(131072), 3))
    return precise("high" if fixed else "highest", step)


@program
def tracks_kalman() -> Step:
    """Kalman filters of many tracks, twelve values each, at the highest precision."""
    tracks, state, seen = size(49152), 12, 3
    moves = torch.eye(state) + 0.05 * torch.randn(tracks, state, state)
    spread = torch.randn(tracks, state, state)
    spread = spread @ spread.mT / state + torch.eye(state)
    noise = 0.1 * torch.eye(state)

    def filtered(means: Tensor, spread: Tensor, moves: Tensor, found: Tensor) -> tuple[Tensor, Tensor]:
        means = torch.bmm(moves, means)
        spread = torch.baddbmm(noise, torch.bmm(moves, spread), moves.mT)
        for at in range(seen):
            gain = spread[:, :, at : at + 1] / (spread[:, at : at + 1, at : at + 1] + 0.5)
            means = means + gain * (found[:, at : at + 1] - means[:, at : at + 1])
            spread = torch.baddbmm(spread, gain, spread[:, at : at + 1], alpha=-1)
        return means, spread

    means, found = torch.randn(tracks, state, 1), torch.randn(tracks, seen, 1)
    return precise("highest", over(filtered, means, spread, moves, found))


# -- float64 -----------------------------------------------------------------------------------------------------------


@program
def spectra_double_window(fixed: bool) -> Step:
    """Log-mel spectra of speech whose window is in float64."""
    length = size(512)
    window = torch.hann_window(length, dtype=torch.float32 if fixed else torch.float64)
    mel = torch.rand(length // 2 + 1, 80)

    def spectra(sound: Tensor) -> Tensor:
        frames = sound.unfold(-1, length, length // 4)
        power = torch.fft.rfft(frames * window).abs().square()
        return (power.float() @ mel).clamp_min(1e-5).log10()

    return over(spectra, torch.randn(size(32, 2), size(160000)))


@program
def orbits_in_double() -> Step:
    """Bodies under their gravity, whose state is kept in float64: two steps of a leapfrog."""
    bodies, step = size(4096), 1e-3
    mass = torch.rand(bodies, dtype=D) + 0.5

    def pull(places: Tensor) -> Tensor:
        apart = places[None] - places[:, None]
        near = apart.square().sum(-1).add_(1e-4).pow_(-1.5)
        return (apart * (near * mass)[..., None]).sum(1) / bodies

    def leapt(places: Tensor, speeds: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(2):
            places = places + 0.5 * step * speeds
            speeds = speeds + step * pull(places)
            places = places + 0.5 * step * speeds
        return places, speeds

    return over(leapt, torch.randn(bodies, 3, dtype=D), torch.randn(bodies, 3, dtype=D))


# -- grouped convolutions ----------------------------------------------------------------------------------------------


class Placed(nn.Module):
    """A long grouped convolution that tells where a frame stands, added, then two products."""

    def __init__(self, width: int, fixed: bool) -> None:
        super().__init__()
        self.fixed = fixed
        self.conv = nn.Conv1d(width, width, 127, padding=63, groups=16)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        turned = x.transpose(1, 2)
        placed = grouped_as_products(self.conv, turned) if self.fixed else self.conv(turned)
        x = self.norm(x + F.gelu(placed).transpose(1, 2))
        return x + self.down(F.gelu(self.up(x)))


@program
def brain_waves_grouped(fixed: bool) -> Step:
    """Brain waves through a convolution of 127 samples in 16 groups of 64 channels."""
    width = size(1024, 64)
    return applied(Placed(width, fixed).to(H), torch.randn(size(4, 2), size(500), width, dtype=H))


class Conformed(nn.Module):
    """The convolution module of a conformer: gated, each channel by itself, then mixed."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.weight = nn.Parameter(torch.randn(width, 1, 31) / 31**0.5)

    def forward(self, x: Tensor) -> Tensor:
        h = F.glu(self.into(self.norm(x)), -1).transpose(1, 2).contiguous()
        h = F.conv1d(h, self.weight, padding="same", groups=h.shape[1])
        return x + self.out(F.silu(self.after(h.transpose(1, 2))))


@program
def conformer_each_channel() -> Step:
    """Three convolution modules of a conformer: as many groups as channels."""
    width = size(512)
    model = nn.Sequential(*(Conformed(width) for _ in range(3))).to(H)
    return applied(model, torch.randn(size(16, 2), size(1000), width, dtype=H))


# -- small products ----------------------------------------------------------------------------------------------------


class Members(nn.Module):
    """Many small networks of one shape, each with inputs of its own."""

    def __init__(self, members: int, widths: list[int], fixed: bool) -> None:
        super().__init__()
        self.fixed = fixed
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for inputs, outputs in pairwise(widths):
            weight, bias = torch.randn(members, inputs, outputs) / inputs**0.5, torch.randn(members, outputs)
            self.weights.extend([weight] if fixed else [one.clone() for one in weight])
            self.biases.extend([bias] if fixed else [one.clone() for one in bias])
        self.members, self.depth = members, len(widths) - 1

    def forward(self, x: Tensor) -> Tensor:
        if self.fixed:
            for at, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
                x = torch.baddbmm(bias[:, None], x, weight)
                x = F.silu(x) if at < self.depth - 1 else x
            return x
        return torch.stack([self.alone(number, x[number]) for number in range(self.members)])

    def alone(self, number: int, x: Tensor) -> Tensor:
        for at in range(self.depth):
            place = at * self.members + number
            x = torch.addmm(self.biases[place], x, self.weights[place])
            x = F.silu(x) if at < self.depth - 1 else x
        return x


@program
def dynamics_member_by_member(fixed: bool) -> Step:
    """An ensemble of 40 small models of a robot's dynamics, one after another."""
    members, width = size(40, 5), size(256)
    model = Members(members, [size(64), width, width, width, size(64)], fixed)
    return applied(model, torch.randn(members, size(512), size(64)))


class Settling(nn.Module):
    """A layer that is applied to what it gave until that has settled."""

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        self.given, self.norm, self.steps = nn.Linear(width, width), nn.LayerNorm(width), steps
        self.weight = nn.Parameter(0.5 * torch.randn(width, width) / width**0.5)

    def forward(self, x: Tensor) -> Tensor:
        given = self.given(x)
        z = given.tanh()
        for _ in range(self.steps):
            z = torch.addmm(given, z, self.weight).tanh_()
        return self.norm(z)


@program
def settling_layer() -> Step:
    """A deep equilibrium layer of 48 rounds: equal small products, each of what the one before gave."""
    return applied(Settling(size(768), 48).to(B), torch.randn(size(512), size(768), dtype=B))
