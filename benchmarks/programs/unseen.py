"""Programs written after the estimates were, by an author who read none: what is said of them is judged, never fitted.

Each is slow for one reason or two, of families that `host.py`, `device.py` and `left_out.py` have not. `by_hand` takes
away that reason and nothing else. Sizes are those of a first version that runs on one GPU. Those whose device has the
work are in `unseen_device.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from programs.program import Program, Step, unchanged
from programs.unseen_device import UNSEEN_DEVICE

# -- linear equations --------------------------------------------------------------------------------------------------


def conjugate_gradient(wrap: Any = unchanged, count: int = 2048, on_device: bool = False) -> Step:
    """The weights of a Gaussian process by conjugate gradients: two numbers a round are asked for on the host."""
    place = torch.rand(count, 2)
    target = torch.sin(6 * place[:, 0]) + torch.cos(4 * place[:, 1]) + 0.1 * torch.randn(count)
    kernel = torch.exp(-(place[:, None] - place[None]).pow(2).sum(-1) / (2 * 0.1**2)) + 2.0 * torch.eye(count)
    enough = 1e-4 * target.norm().item()

    def solve(target: Tensor) -> Tensor:
        x, rest, direction = torch.zeros_like(target), target.clone(), target.clone()
        before = (rest @ rest).item()
        for _ in range(200):
            product = kernel @ direction
            length = before / (direction @ product).item()
            x = x + length * direction
            rest = rest - length * product
            after = (rest @ rest).item()
            if math.sqrt(after) < enough:
                break
            direction = rest + (after / before) * direction
            before = after
        return x

    def solve_on_device(target: Tensor) -> Tensor:
        x, rest, direction = torch.zeros_like(target), target.clone(), target.clone()
        before = rest @ rest
        for at in range(200):
            product = kernel @ direction
            length = before / (direction @ product)
            x = x + length * direction
            rest = rest - length * product
            after = rest @ rest
            if at % 8 == 7 and math.sqrt(after.item()) < enough:
                break
            direction = rest + (after / before) * direction
            before = after
        return x

    function = wrap(solve_on_device if on_device else solve)
    return lambda: function(target)


def conjugate_gradient_on_device(wrap: Any = unchanged, **sizes: int) -> Step:
    return conjugate_gradient(wrap, on_device=True, **sizes)


# -- differential equations --------------------------------------------------------------------------------------------


def adaptive_solver(wrap: Any = unchanged, batch: int = 8192, on_device: bool = False) -> Step:
    """A neural differential equation; after each step the host asks how wrong it was, and goes on or goes back."""
    field = nn.Sequential(nn.Linear(128, 512), nn.Tanh(), nn.Linear(512, 128)).requires_grad_(False)
    field[0].weight.mul_(4.0)
    field[2].weight.mul_(6.0)
    start, end = torch.randn(batch, 128), 1.0 - 1e-6
    function = wrap(field)

    def tried(y: Tensor, slope: Tensor, h: Any) -> tuple[Tensor, Tensor, Tensor]:
        second = function(y + 0.5 * h * slope)
        third = function(y + 0.75 * h * second)
        after = y + h * (2 / 9 * slope + 1 / 3 * second + 4 / 9 * third)
        last = function(after)
        wrong = h * (-5 / 72 * slope + 1 / 12 * second + 1 / 9 * third - 1 / 8 * last)
        allowed = 1e-4 + 1e-4 * torch.maximum(y.abs(), after.abs())
        return after, last, (wrong / allowed).pow(2).mean().sqrt()

    def step() -> Tensor:
        time, h, y, slope = 0.0, 0.1, start, function(start)
        while time < end:
            h = min(h, 1.0 - time)
            after, last, wrong = tried(y, slope, h)
            ratio = wrong.item()
            if ratio <= 1.0:
                time, y, slope = time + h, after, last
            h *= min(5.0, max(0.2, 0.9 * max(ratio, 1e-9) ** (-1 / 3)))
        return y

    def step_on_device() -> Tensor:
        time, h, y, slope = start.new_zeros(()), start.new_full((), 0.1), start, function(start)
        while True:
            for _ in range(4):
                h = torch.minimum(h, 1.0 - time)
                after, last, ratio = tried(y, slope, h)
                good = ratio <= 1.0
                time = torch.where(good, time + h, time)
                y, slope = torch.where(good, after, y), torch.where(good, last, slope)
                h = h * (0.9 * ratio.clamp(min=1e-9) ** (-1 / 3)).clamp(0.2, 5.0)
            if time.item() >= end:
                return y

    return step_on_device if on_device else step


def adaptive_solver_on_device(wrap: Any = unchanged, **sizes: int) -> Step:
    return adaptive_solver(wrap, on_device=True, **sizes)


# -- clusters ----------------------------------------------------------------------------------------------------------


def k_means(wrap: Any = unchanged, count: int = 20_000, clusters: int = 32, at_once: bool = False) -> Step:
    """Rounds of Lloyd's algorithm, whose new centres are taken one cluster after another."""
    centres = torch.randn(clusters, 64) * 3
    points = centres[torch.randint(0, clusters, (count,))] + torch.randn(count, 64)
    first = points[:clusters].clone()

    def each(points: Tensor, centres: Tensor) -> Tensor:
        nearest = torch.cdist(points, centres).argmin(1)
        moved = []
        for at in range(clusters):
            members = points[nearest == at]
            moved.append(members.mean(0) if len(members) else centres[at])
        return torch.stack(moved)

    def every(points: Tensor, centres: Tensor) -> Tensor:
        nearest = torch.cdist(points, centres).argmin(1)
        members = torch.bincount(nearest, minlength=clusters)[:, None]
        total = torch.zeros_like(centres).index_add_(0, nearest, points)
        return torch.where(members > 0, total / members.clamp(min=1), centres)

    function = wrap(every if at_once else each)

    def step() -> Tensor:
        moved = first
        for _ in range(4):
            moved = function(points, moved)
        return moved

    return step


def k_means_at_once(wrap: Any = unchanged, **sizes: int) -> Step:
    return k_means(wrap, at_once=True, **sizes)


# -- pairs that belong together ----------------------------------------------------------------------------------------


def contrastive(wrap: Any = unchanged, count: int = 48, at_once: bool = False) -> Step:
    """A supervised contrastive loss, one sample after another, under a small encoder."""
    encoder = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.SGD(encoder.parameters(), 0.05)
    x, labels, places = torch.randn(count, 128), torch.randint(0, 8, (count,)), torch.arange(count)

    def one(z: Tensor, at: Tensor, itself: Tensor, alike: Tensor) -> Tensor:
        share = torch.log_softmax((z @ at / 0.1).masked_fill(itself, -1e9), -1)
        return -(share * alike).sum() / alike.sum().clamp(min=1)

    def every(z: Tensor) -> Tensor:
        itself = places[:, None] == places
        alike = (labels[:, None] == labels) & ~itself
        share = torch.log_softmax((z @ z.T / 0.1).masked_fill(itself, -1e9), -1)
        return (-(share * alike).sum(1) / alike.sum(1).clamp(min=1)).mean()

    function = wrap(every if at_once else one)

    def loss_of(z: Tensor) -> Tensor:
        if at_once:
            return function(z)
        losses = []
        for at in range(count):
            itself = places == at
            losses.append(function(z, z[at], itself, (labels == labels[at]) & ~itself))
        return torch.stack(losses).mean()

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(F.normalize(encoder(x), dim=1))
        loss.backward()
        optimizer.step()
        return encoder[0].weight.grad

    return step


def contrastive_at_once(wrap: Any = unchanged, **sizes: int) -> Step:
    return contrastive(wrap, at_once=True, **sizes)


# -- an optimizer of one's own -----------------------------------------------------------------------------------------


def ratios_asked(parameters: Sequence[Tensor], moves: Sequence[Tensor]) -> None:
    for parameter, move in zip(parameters, moves, strict=True):
        weight, gradient = parameter.norm().item(), parameter.grad.norm().item()
        ratio = 0.01 * weight / (gradient + 1e-9) if weight > 0 and gradient > 0 else 1.0
        move.mul_(0.9).add_(parameter.grad, alpha=0.1 * ratio)
        parameter.sub_(move)


def ratios_kept(parameters: Sequence[Tensor], moves: Sequence[Tensor]) -> None:
    for parameter, move in zip(parameters, moves, strict=True):
        weight, gradient = parameter.norm(), parameter.grad.norm()
        ratio = torch.where((weight > 0) & (gradient > 0), 0.01 * weight / (gradient + 1e-9), 1.0)
        move.mul_(0.9).add_(parameter.grad * (0.1 * ratio))
        parameter.sub_(move)


def ratios_of_lists(parameters: Sequence[Tensor], moves: Sequence[Tensor]) -> None:
    gradients = [parameter.grad for parameter in parameters]
    weight, gradient = torch.stack(torch._foreach_norm(parameters)), torch.stack(torch._foreach_norm(gradients))
    ratio = torch.where((weight > 0) & (gradient > 0), 0.01 * weight / (gradient + 1e-9), 1.0)
    torch._foreach_mul_(moves, 0.9)
    torch._foreach_add_(moves, torch._foreach_mul(gradients, (0.1 * ratio).unbind()))
    torch._foreach_sub_(parameters, moves)


def trust_ratios(
    wrap: Any = unchanged, batch: int = 64, update: Callable[[Sequence[Tensor], Sequence[Tensor]], None] = ratios_asked
) -> Step:
    """A convolutional network whose layers are moved by as much as their norms allow, which the host asks for."""
    parts: list[nn.Module] = []
    for at in range(10):
        parts += [nn.Conv2d(64 if at else 3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    model = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    parameters = list(model.parameters())
    moves = [torch.zeros_like(parameter) for parameter in parameters]
    x, y = torch.randn(batch, 3, 16, 16), torch.randint(0, 10, (batch,))
    function = wrap(model)

    def step() -> Tensor:
        model.zero_grad()
        loss = F.cross_entropy(function(x), y)
        loss.backward()
        with torch.no_grad():
            update(parameters, moves)
        return moves[0]

    return step


def trust_ratios_on_device(wrap: Any = unchanged, **sizes: int) -> Step:
    return trust_ratios(wrap, update=ratios_kept, **sizes)


def trust_ratios_of_lists(wrap: Any = unchanged, **sizes: int) -> Step:
    return trust_ratios(wrap, update=ratios_of_lists, **sizes)


# -- one picture at a time ---------------------------------------------------------------------------------------------


class Inverted(nn.Module):
    """Widen, filter each channel, narrow: each convolution with a BatchNorm of its own."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        wide = 4 * width
        shapes = [(width, wide, 1, 1, 1), (wide, wide, 3, stride, wide), (wide, out, 1, 1, 1)]
        self.layers = nn.ModuleList(
            nn.Conv2d(before, after, size, step, size // 2, groups=groups, bias=False)
            for before, after, size, step, groups in shapes
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(after, momentum=None) for _, after, *_ in shapes)
        self.same = width == out and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu6(self.norms[0](self.layers[0](x)))
        h = F.relu6(self.norms[1](self.layers[1](h)))
        h = self.norms[2](self.layers[2](h))
        return x + h if self.same else h

    def fold(self) -> None:
        for at, norm in enumerate(self.norms):
            self.layers[at] = fuse_conv_bn_eval(self.layers[at], norm)
            self.norms[at] = nn.Identity()


def mobile(wrap: Any = unchanged, side: int = 112, folded: bool = False) -> Step:
    """A network for telephones, given one picture at a time, with BatchNorms as they were trained."""
    widths = [32, 32, 32, 64, 64, 64, 64, 96, 96, 96, 160, 160, 160]
    blocks = [Inverted(before, after, 1 if before == after else 2) for before, after in pairwise(widths)]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(160, 1000))
    model = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), *blocks, *head).requires_grad_(False)
    model(torch.randn(8, 3, side, side))  # so that the norms have seen something
    model.eval()
    if folded:
        for block in blocks:
            block.fold()
    x, function = torch.randn(1, 3, side, side), wrap(model)
    return lambda: function(x)


def mobile_folded(wrap: Any = unchanged, **sizes: int) -> Step:
    return mobile(wrap, folded=True, **sizes)


# -- a policy and its surroundings -------------------------------------------------------------------------------------


def pushed(state: Sequence[float], right: int) -> list[float]:
    """A pole on a cart, a fiftieth of a second later."""
    place, speed, angle, turn = state
    force = (10.0 if right else -10.0) + 0.05 * turn * turn * math.sin(angle)
    spin = (9.8 * math.sin(angle) - math.cos(angle) * force / 1.1) / (0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1))
    gain = force / 1.1 - 0.05 * spin * math.cos(angle) / 1.1
    return [place + 0.02 * speed, speed + 0.02 * gain, angle + 0.02 * turn, turn + 0.02 * spin]


def rollout(wrap: Any = unchanged, count: int = 8, length: int = 16, at_once: bool = False) -> Step:
    """Several carts with poles, simulated on the host; the policy is asked for one cart at a time."""
    device = torch.get_default_device()
    layers = [nn.Linear(before, after, bias=False) for before, after in ((4, 64), (64, 64), (64, 2))]
    policy = nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])
    function, begun = wrap(policy.requires_grad_(False)), (torch.rand(count, 4) - 0.5).tolist()

    def actions(states: list[list[float]]) -> list[int]:
        if at_once:
            return function(torch.tensor(states, device=device)).argmax(-1).tolist()
        return [int(function(torch.tensor(state, device=device)).argmax().item()) for state in states]

    def step() -> Tensor:
        states = begun
        for _ in range(length):
            states = [pushed(state, right) for state, right in zip(states, actions(states), strict=True)]
        return torch.tensor(states)

    return step


def rollout_at_once(wrap: Any = unchanged, **sizes: int) -> Step:
    return rollout(wrap, at_once=True, **sizes)


# -- text --------------------------------------------------------------------------------------------------------------


class TextFilters(nn.Module):
    """Words, filters over three to five of them, the largest answer of each, and a class."""

    def __init__(self, words: int, width: int = 128, filters: int = 256) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.filters = nn.ModuleList(nn.Conv1d(width, filters, size) for size in (3, 4, 5))
        self.head = nn.Linear(3 * filters, 20)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids).transpose(1, 2)
        return self.head(torch.cat([F.relu(layer(x)).amax(2) for layer in self.filters], 1))


def text_filters(wrap: Any = unchanged, count: int = 128, length: int = 160, once: bool = False) -> Step:
    """A classifier of texts that splits them into words and looks these up in front of each step; or once for all."""
    device, words = torch.get_default_device(), 5000
    spelled = [f"w{at:x}".translate(str.maketrans("0123456789", "ghijklmnop")) for at in range(words)]
    known = {word: at + 1 for at, word in enumerate(spelled[: words - 500])}
    batches = []
    for _ in range(4):
        lines = torch.randint(0, words, (count, length)).tolist()
        batches.append([", ".join(spelled[at].capitalize() for at in line) + "." for line in lines])
    model, turn = TextFilters(words).requires_grad_(False), [0]
    function = wrap(model)

    def ids_of(texts: Sequence[str]) -> Tensor:
        rows = []
        for text in texts:
            row = [known.get(word, 0) for word in re.findall(r"[a-z]+", text.lower())][:length]
            rows.append(row + [0] * (length - len(row)))
        return torch.tensor(rows, device=device)

    kept = [ids_of(texts) for texts in batches] if once else []

    def step() -> Tensor:
        at = turn[0] % len(batches)
        turn[0] += 1
        return function(kept[at] if once else ids_of(batches[at]))

    return step


def text_filters_once(wrap: Any = unchanged, **sizes: int) -> Step:
    return text_filters(wrap, once=True, **sizes)


# -- noise, taken away -------------------------------------------------------------------------------------------------


class Denoiser(nn.Module):
    def __init__(self, width: int = 96, depth: int = 8) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(depth))
        self.times = nn.ModuleList(nn.Linear(64, width) for _ in range(depth))
        self.register_buffer("rates", torch.exp(torch.linspace(0, -6, 32)), persistent=False)

    def forward(self, x: Tensor, when: Tensor) -> Tensor:
        turn = when[:, None] * self.rates
        spread = torch.cat((turn.sin(), turn.cos()), 1)
        h = self.enter(x)
        for layer, norm, time in zip(self.layers, self.norms, self.times, strict=True):
            h = h + layer(F.silu(norm(h) + time(spread)[:, :, None, None]))
        return self.leave(h)


def denoising(wrap: Any = unchanged, batch: int = 16, tables: bool = False, lists: bool = False) -> Step:
    """A diffusion model's training: noise levels are looked up on the host, weights averaged one by one."""
    device = torch.get_default_device()
    model = Denoiser()
    parameters = list(model.parameters())
    average = [torch.zeros_like(parameter) for parameter in parameters]
    optimizer = torch.optim.AdamW(parameters, 1e-4, fused=True)
    pictures, noise = torch.randn(batch, 3, 32, 32), torch.randn(batch, 3, 32, 32)
    when = torch.randint(0, 1000, (batch,))
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, device=device if tables else "cpu"), 0)
    signal, noisy = kept.sqrt(), (1 - kept).sqrt()
    function = wrap(model)

    def level(table: Tensor) -> Tensor:
        if tables:
            return table[when][:, None, None, None]
        return table.gather(0, when.cpu())[:, None, None, None].to(device)

    def step() -> Tensor:
        optimizer.zero_grad()
        mixed = level(signal) * pictures + level(noisy) * noise
        loss = F.mse_loss(function(mixed, when), noise)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            if lists:
                torch._foreach_lerp_(average, parameters, 0.1)
            else:
                for old, new in zip(average, parameters, strict=True):
                    old.mul_(0.9).add_(new, alpha=0.1)
        return torch.stack((model.enter.weight.grad, average[0]))

    return step


def denoising_tables(wrap: Any = unchanged, **sizes: int) -> Step:
    return denoising(wrap, tables=True, **sizes)


def denoising_lists(wrap: Any = unchanged, **sizes: int) -> Step:
    return denoising(wrap, lists=True, **sizes)


WAITS, GAPS = ("host_sync",), ("launch_gap", "tiny_kernels")

UNSEEN = (
    Program(
        "conjugate_gradient",
        conjugate_gradient,
        {"on_device": (WAITS, conjugate_gradient_on_device)},
        then_compiled=("on_device",),
    ),
    Program("adaptive_solver", adaptive_solver, {"on_device": (WAITS, adaptive_solver_on_device)}),
    Program("k_means", k_means, {"at_once": ((*WAITS, *GAPS), k_means_at_once)}),
    Program(
        "contrastive",
        contrastive,
        {"at_once": ((*GAPS, "small_products_apart"), contrastive_at_once)},
        training=True,
        then_compiled=("at_once",),
    ),
    Program(
        "trust_ratios",
        trust_ratios,
        {"on_device": (WAITS, trust_ratios_on_device), "lists": ((*WAITS, "parameter_loop"), trust_ratios_of_lists)},
        training=True,
        tolerance=5e-2,
        then_compiled=("lists",),
    ),
    Program("mobile", mobile, {"folded": (("batch_norm_evaluated",), mobile_folded)}, capturable=True, tolerance=5e-2),
    Program("rollout", rollout, {"at_once": ((*WAITS, *GAPS), rollout_at_once)}),
    Program(
        "text_filters", text_filters, {"once": (("first_launch_late",), text_filters_once)}, then_compiled=("once",)
    ),
    Program(
        "denoising",
        denoising,
        {"tables_on_device": (WAITS, denoising_tables), "average_at_once": (("parameter_loop",), denoising_lists)},
        training=True,
        then_compiled=("average_at_once",),
    ),
    *UNSEEN_DEVICE,
)
