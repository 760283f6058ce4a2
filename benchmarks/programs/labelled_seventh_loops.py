"""Loops and what is made anew in them, in filters, forests and trainers of several tasks: of `labelled_seventh.py`.

Labels: `labels.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labelled_seventh_parts import HALF, WAITS, Mlp, inverted
from programs.labels import Built, Expected, Labelled
from programs.program import unchanged


def adapters_merged(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 16, width: int = 2048
) -> Built:
    """Serving of a fine-tuning: each call of a layer adds its adapter to the weights, which never change."""
    rounds, layers, rank, words = 8, 5, min(32, width), 8000

    class Adapted(nn.Module):
        def __init__(self, enter: int, leave: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(leave, enter) / enter**0.5)
            self.a, self.b = nn.Parameter(torch.randn(rank, enter) / enter**0.5), nn.Parameter(torch.randn(leave, rank))
            self.scale, self.merged = 0.3, False

        def whole(self) -> Tensor:
            return self.weight + self.scale * (self.b @ self.a)  # same: loop_invariant

        def merge(self) -> None:
            self.weight.data, self.merged = self.whole().detach(), True

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.weight if self.merged else self.whole())  # cause: loop_invariant, main

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.out = nn.Embedding(words, width), nn.Linear(width, words)
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
            self.ups = nn.ModuleList(Adapted(width, 4 * width) for _ in range(layers))
            self.downs = nn.ModuleList(Adapted(4 * width, width) for _ in range(layers))

        def forward(self, state: Tensor, word: Tensor) -> tuple[Tensor, Tensor]:
            x = 0.5 * state + self.table(word)
            layers = zip(self.norms, self.ups, self.downs, strict=True)
            for norm, up, down in layers:  # near: python_loop  # same: loop_invariant
                x = x + down(F.gelu(up(norm(x))))  # same: loop_invariant
            return x, self.out(x)

    model = Model().to(dtype)
    for layer in [*model.ups, *model.downs] if fixed else []:
        layer.merge()
    function, first, begin = wrap(model), torch.arange(rows) % words, torch.randn(rows, width, dtype=dtype)

    def answer() -> Tensor:
        word, state, said = first, begin, []
        for _ in range(rounds):  # may: recurrence_unfused  # may: python_loop  # same: loop_invariant
            state, logits = function(state, word)  # same: loop_invariant
            word = logits.argmax(-1)
            said.append(logits[:, :16].float())
        return torch.stack(said)

    return Built(answer)


def positions_filtered(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, tracks: int = 20000, times: int = 64
) -> Built:
    """Tracking: a Kalman filter for each of many ships, whose place and speed are carried from sight to sight."""
    eye, zero = torch.eye(2), torch.zeros(2, 2)
    move = torch.cat((torch.cat((eye, 0.2 * eye), 1), torch.cat((zero, 0.98 * eye), 1)))
    look = torch.cat((eye, zero), 1)
    unsure, blur = 0.01 * torch.eye(4), 0.3 * eye
    sights, start = torch.randn(times, tracks, 2).cumsum(0), torch.zeros(tracks, 4)

    class Filter:
        def gain(self, spread: Tensor) -> tuple[Tensor, Tensor]:
            spread = move @ spread @ move.T + unsure
            gain = spread @ look.T @ inverted(look @ spread @ look.T + blur)
            return gain, spread - gain @ look @ spread

        def known(self) -> tuple[Tensor, Tensor]:
            """Return what each time keeps of the last state, and what it takes from a sight."""
            spread, gains = torch.eye(4), []
            for _ in range(times):
                gain, spread = self.gain(spread)
                gains.append(gain)
            every = torch.stack(gains)
            return move - every @ look @ move, every

        def by_halves(self, sights: Tensor) -> Tensor:
            keep, states, shift = self.keep, self.take @ sights.mT, 1
            while shift < times:  # near: python_loop
                states = torch.cat((states[:shift], states[shift:] + keep[shift:] @ states[:-shift]))
                keep = torch.cat((keep[:shift], keep[shift:] @ keep[:-shift]))
                shift *= 2
            return states.mT

        def __init__(self) -> None:
            self.keep, self.take = self.known()

        def filtered(self, sights: Tensor) -> Tensor:
            if fixed:
                return self.by_halves(sights)
            state, spread, states = start, torch.eye(4, device=sights.device).expand(tracks, 4, 4), []
            for sight in sights:  # cause: recurrence_unfused, main  # may: python_loop  # may: loop_invariant
                state = state @ move.T
                gain, spread = self.gain(spread)
                state = state + (gain @ (sight - state @ look.T)[..., None])[..., 0]
                states.append(state)
            return torch.stack(states)

    kalman = Filter()
    function = wrap(kalman.filtered)
    return Built(lambda: function(sights)[::4])  # same: recurrence_unfused  # may: loop_invariant


def tasks_reconciled(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 4096, width: int = 768
) -> Built:
    """Training of several tasks: gradients of two tasks that pull apart give up what they pull at, tensor by tensor."""
    tasks, depth, rate = 4, 6, 1e-2
    body = nn.Sequential(nn.Linear(64, width), *(Mlp(width, 2) for _ in range(depth)))
    model = nn.ModuleList((body, nn.Linear(width, tasks))).to(dtype)
    parameters, function = list(model.parameters()), wrap(body)
    x, y = torch.randn(rows, 64, dtype=dtype), torch.randn(rows, tasks)

    class Surgery:
        def held_back(self, mine: Sequence[Tensor], other: Sequence[Tensor]) -> list[Tensor]:
            pairs = list(zip(mine, other, strict=True))
            dot = sum((a.float() * b.float()).sum() for a, b in pairs)  # cause: parameter_loop, main
            length = sum(b.float().square().sum() for b in other)  # same: parameter_loop
            share = torch.clamp(dot / length, max=0.0)
            return [a - share * b for a, b in pairs]  # same: parameter_loop

        def flat(self, each: Sequence[Sequence[Tensor]]) -> list[Tensor]:
            every = torch.stack([torch.cat([one.flatten() for one in mine]) for mine in each]).float()
            total = torch.zeros_like(every[0])
            for at, mine in enumerate(every):  # near: parameter_loop
                for other in (*every[:at], *every[at + 1 :]):
                    mine = mine - torch.clamp((mine @ other) / (other @ other), max=0.0) * other
                total += mine
            parts = total.split([one.numel() for one in parameters])
            return [part.view_as(one).to(one.dtype) for part, one in zip(parts, parameters, strict=True)]

        def __call__(self, each: Sequence[Sequence[Tensor]]) -> list[Tensor]:
            if fixed:
                return self.flat(each)
            found = []
            for at, gradients in enumerate(each):  # same: parameter_loop
                mine = list(gradients)
                for other in (*each[:at], *each[at + 1 :]):
                    mine = self.held_back(mine, other)
                found.append(mine)
            return [sum(parts[1:], parts[0]) for parts in zip(*found, strict=True)]  # same: parameter_loop

    surgery = Surgery()
    optimizer = torch.optim.SGD(parameters, lr=rate, foreach=True)

    def step() -> Tensor:
        losses = (model[1](function(x)).float() - y).square().mean(0)
        each = [torch.autograd.grad(loss, parameters, retain_graph=True) for loss in losses]  # may: python_loop
        for parameter, gradient in zip(parameters, surgery(each), strict=True):  # same: parameter_loop
            parameter.grad = gradient
        optimizer.step()
        return losses.detach()

    return Built(step, parameters)


def forests_walked(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 16384, trees: int = 80
) -> Built:
    """Boosted trees on tables: each tree is walked down by itself, from its root to a leaf of each row."""
    columns, depth, width = 64, 6, 1024
    inner = 2**depth - 1

    class Tree(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("column", torch.randint(0, columns, (inner,)))
            self.register_buffer("limit", torch.randn(inner))
            self.register_buffer("leaf", torch.randn(inner + 1))

        def forward(self, x: Tensor) -> Tensor:
            node = torch.zeros(len(x), dtype=torch.long, device=x.device)
            for _ in range(depth):  # same: python_loop  # may: recurrence_unfused
                right = x.gather(1, self.column[node][:, None])[:, 0] > self.limit[node]
                node = 2 * node + 1 + right
            return self.leaf[node - inner]

    class Forest(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trees = nn.ModuleList(Tree() for _ in range(trees))
            names = ("column", "limit", "leaf")
            self.column, self.limit, self.leaf = (torch.cat([getattr(t, n) for t in self.trees]) for n in names)
            self.begin = torch.arange(trees)

        def at_once(self, x: Tensor) -> Tensor:
            node = torch.zeros(len(x), trees, dtype=torch.long, device=x.device)
            for _ in range(depth):  # near: python_loop  # near: recurrence_unfused
                place = node + inner * self.begin
                node = 2 * node + 1 + (x.gather(1, self.column[place]) > self.limit[place])
            return self.leaf[node - inner + (inner + 1) * self.begin]

        def forward(self, x: Tensor) -> Tensor:
            if fixed:
                return self.at_once(x)
            return torch.stack([tree(x) for tree in self.trees], 1)  # cause: python_loop, main

    forest = wrap(Forest())
    deep = nn.Sequential(nn.Linear(trees, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
    deep, x = deep.to(dtype), torch.randn(rows, columns)
    return Built(lambda: deep(forest(x).to(dtype)).float())  # same: python_loop  # may: recurrence_unfused


def trusts_read(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 64, width: int = 512
) -> Built:
    """Training on large batches: each tensor's rate follows from how long it and its gradient are, as numbers."""
    patches, depth, rate, momentum, trust, decay = 196, 8, 0.02, 0.9, 1.0, 1e-3

    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.over, self.within = nn.Linear(patches, patches), Mlp(width)

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.over(x.mT).mT
            return x + self.within(x)

    class Lars:
        def __init__(self, parameters: Sequence[Tensor]) -> None:
            self.parameters, self.speeds = list(parameters), [torch.zeros_like(each) for each in parameters]

        def trusted(self, parameter: Tensor, gradient: Tensor) -> float:
            long, steep = parameter.norm().item(), gradient.norm().item()  # cause: host_sync, main
            return trust * long / (steep + decay * long + 1e-6) if long > 0 else 1.0

        def one_by_one(self) -> None:
            pairs = zip(self.parameters, self.speeds, strict=True)
            for parameter, speed in pairs:  # cause: parameter_loop  # same: host_sync
                ratio = self.trusted(parameter, parameter.grad)  # same: host_sync  # may: parameter_loop
                speed.mul_(momentum).add_(parameter.grad + decay * parameter, alpha=ratio)
                parameter.add_(speed, alpha=-rate)

        def at_once(self) -> None:
            gradients = [each.grad for each in self.parameters]
            long, steep = (torch.stack(torch._foreach_norm(each)) for each in (self.parameters, gradients))
            ratios = torch.where(long > 0, trust * long / (steep + decay * long + 1e-6), 1.0)
            changes = torch._foreach_mul(torch._foreach_add(gradients, self.parameters, alpha=decay), list(ratios))
            torch._foreach_mul_(self.speeds, momentum)
            torch._foreach_add_(self.speeds, changes)
            torch._foreach_add_(self.parameters, self.speeds, alpha=-rate)

        @torch.no_grad()
        def step(self) -> None:
            (self.at_once if fixed else self.one_by_one)()  # same: host_sync  # same: parameter_loop

    layers = [nn.Linear(192, width), *(Mixer() for _ in range(depth)), nn.LayerNorm(width)]
    model = nn.ModuleList((nn.Sequential(*layers), nn.Linear(width, 100))).to(dtype)
    parameters, function = list(model.parameters()), wrap(model[0])
    optimizer, x = Lars(parameters), torch.randn(pictures, patches, 192, dtype=dtype)
    kinds = torch.arange(pictures) % 100

    def step() -> Tensor:
        loss = F.cross_entropy(model[1](function(x).mean(1)).float(), kinds)  # near: linear_cross_entropy
        model.zero_grad()  # near: gradient_zeroing
        loss.backward()
        optimizer.step()  # same: host_sync  # same: parameter_loop
        return loss.detach()

    return Built(step, parameters)


LOOPS = (
    Labelled(adapters_merged, "seventh", {"rows": 3, "width": 16}, tolerance=5e-2),
    Labelled(positions_filtered, "seventh", {"tracks": 5, "times": 20}),
    Labelled(tasks_reconciled, "seventh", {"rows": 6, "width": 16}, training=True, tolerance=5e-2),
    Labelled(forests_walked, "seventh", {"rows": 12, "trees": 5}, tolerance=5e-2),
    Labelled(trusts_read, "seventh", {"pictures": 2, "width": 16}, Expected(WAITS), training=True, tolerance=5e-2),
)
