"""Loops over rows, chunks, samples, pairs and parameters in the shapes of large libraries: of `labelled_fifth.py`.

Labels: `labels.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

HALF = torch.bfloat16
WAITS = "asks the device for a number"
BREAKS = "what follows depends on a number that the device has"


def perceptron(width: int, layers: int, dtype: torch.dtype) -> nn.Sequential:
    return nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(width, width), nn.GELU()))).to(dtype)


def adapters_apart(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, requests: int = 48, width: int = 1024
) -> Built:
    """Serving of many fine-tunings: each request's adapter is taken out of a bank and applied by itself."""
    rank, adapters = 16, 32
    chosen = [(7 * at + 3) % adapters for at in range(requests)]
    slots = torch.tensor(chosen)

    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(width, width)
            self.down = nn.Parameter(torch.randn(adapters, width, rank) * width**-0.5)
            self.up = nn.Parameter(torch.randn(adapters, rank, width) * rank**-0.5)

        def change(self, slot: int, row: Tensor) -> Tensor:
            return 0.5 * (row @ self.down[slot] @ self.up[slot])  # same: python_loop

        def forward(self, x: Tensor) -> Tensor:
            said = self.base(x)
            if fixed:
                return said + 0.5 * torch.bmm(torch.bmm(x[:, None], self.down[slots]), self.up[slots])[:, 0]
            for row, slot in enumerate(chosen):  # cause: python_loop, main
                said[row] += self.change(slot, x[row])
            return said

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.wide, self.back = nn.LayerNorm(width), Adapted(), Adapted()

        def forward(self, x: Tensor) -> Tensor:
            return x + self.back(F.gelu(self.wide(self.norm(x))))  # same: python_loop

    model, x = nn.Sequential(*(Block() for _ in range(3))).to(dtype), torch.randn(requests, width, dtype=dtype)
    function = wrap(model)
    return Built(lambda: function(x))


def pictures_rendered(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rays: int = 16384, chunk: int = 256
) -> Built:
    """Radiance fields: a picture's rays are rendered in chunks far smaller than the memory has room for."""
    samples, width, octaves = 32, 64, 6
    chunk = rays if fixed else chunk

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.body = nn.Linear(6 * octaves, width), perceptron(width, 3, dtype)
            self.density, self.colour = nn.Linear(width, 1), nn.Linear(width, 3)
            self.register_buffer("waves", 2.0 ** torch.arange(octaves))

        def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
            angles = (points[..., None] * self.waves).flatten(-2)
            x = self.body(F.relu(self.enter(torch.cat((angles.sin(), angles.cos()), -1).to(dtype))))
            return self.density(x).float().squeeze(-1), torch.sigmoid(self.colour(x).float())

    class Renderer:
        def __init__(self, field: Callable[..., Any]) -> None:
            self.field, self.depths = field, torch.linspace(0.1, 4, samples)

        def render(self, bundle: Tensor) -> Tensor:
            origin, toward = bundle.unbind(1)
            density, colour = self.field(origin[:, None] + toward[:, None] * self.depths[:, None])
            alpha = 1 - torch.exp(-F.relu(density) * 4 / samples)
            through = F.pad((1 - alpha).cumprod(1)[:, :-1], (1, 0), value=1.0)  # near: recurrence_unfused
            return ((alpha * through)[..., None] * colour).sum(1)

    def chunks(bundle: Tensor) -> Iterator[Tensor]:
        for begin in range(0, rays, chunk):  # may: python_loop
            yield bundle[begin : begin + chunk]

    renderer, bundle = Renderer(wrap(Field().to(dtype))), torch.randn(rays, 2, 3)

    def picture() -> Tensor:
        parts = [renderer.render(part) for part in chunks(bundle)]  # cause: python_loop, main
        return torch.cat(parts)

    return Built(picture)


def gradients_private(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, samples: int = 40, width: int = 256
) -> Built:
    """Private training: each sample's gradient is made and clipped by itself before they are added up."""
    limit = 0.5
    model = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 10))
    names, parameters = zip(*model.to(dtype).named_parameters(), strict=True)
    optimizer = torch.optim.SGD(parameters, lr=0.1, foreach=True)
    x, y = torch.randn(samples, width, dtype=dtype), torch.arange(samples) % 10

    def loss_of(given: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, given, (row[None],)).float(), label[None])

    def share(norms: Tensor) -> Tensor:
        return (limit / (norms + 1e-6)).clamp(max=1)

    each_gradient = wrap(vmap(grad(loss_of), (None, 0, 0))) if fixed else wrap(loss_of)

    def gathered() -> list[Tensor]:
        if fixed:
            given = {name: each.detach() for name, each in zip(names, parameters, strict=True)}
            every = [each.float() for each in each_gradient(given, x, y).values()]  # near: python_loop
            shares = share(torch.stack([each.flatten(1).norm(dim=1) for each in every]).norm(dim=0))
            return [torch.einsum("n,n...->...", shares, each) for each in every]
        given = dict(zip(names, parameters, strict=True))
        total = [torch.zeros_like(each, dtype=torch.float32) for each in parameters]
        for row, label in zip(x, y, strict=True):  # cause: python_loop, main
            mine = torch.autograd.grad(each_gradient(given, row, label), parameters)
            factor = share(torch.stack([each.float().norm() for each in mine]).norm())
            for into, each in zip(total, mine, strict=True):  # may: parameter_loop
                into += factor * each.float()
        return total

    def step() -> Tensor:
        for parameter, found in zip(parameters, gathered(), strict=True):  # same: python_loop  # may: parameter_loop
            parameter.grad = (found / samples).to(dtype)
        optimizer.step()  # near: optimizer_unfused
        return parameters[-1].detach().float()

    return Built(step, parameters)


def features_crossed(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, users: int = 4096, fields: int = 20
) -> Built:
    """Click prediction: what each pair of fields says together, weighted by a number of its own, pair by pair."""
    width, each = 32, 500
    ids, begins = torch.randint(0, each, (users, fields)), each * torch.arange(fields)

    class Crosses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.Parameter(torch.randn(fields, fields))

        def forward(self, x: Tensor) -> Tensor:
            if fixed:
                return (torch.bmm(x, x.transpose(1, 2)) * self.weights.triu(1)).sum((1, 2))
            pairs = zip(combinations(x.unbind(1), 2), combinations(range(fields), 2), strict=True)
            return sum((a * b).sum(1) * self.weights[at] for (a, b), at in pairs)  # cause: python_loop, main

    class Clicks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.crosses = nn.Embedding(each * fields, width), Crosses()
            self.enter, self.deep = nn.Linear(fields * width, 256), perceptron(256, 2, dtype)

        def forward(self, ids: Tensor) -> Tensor:
            x = self.table(ids + begins)
            deep = self.deep(F.relu(self.enter(x.flatten(1)))).mean(1)
            return torch.sigmoid(self.crosses(x) / fields + deep)  # same: python_loop

    function = wrap(Clicks().to(dtype))
    return Built(lambda: function(ids))


def clipped_by_units(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, layers: int = 24, width: int = 256
) -> Built:
    """Adaptive clipping: the gradient of each unit is held against its weights, a tensor at a time."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

        def forward(self, x: Tensor) -> Tensor:
            return x + F.silu(self.linear(self.norm(x)))

    model = nn.Sequential(*(Residual() for _ in range(layers))).to(dtype)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, foreach=True)
    x, y, function = torch.randn(512, width, dtype=dtype), torch.randn(512, width, dtype=dtype), wrap(model)

    def clipped(weight: Tensor, gradient: Tensor) -> Tensor:
        limit = weight.norm(dim=-1, keepdim=True).clamp(min=1e-3).mul(1e-2)
        norm = gradient.norm(dim=-1, keepdim=True)
        return torch.where(norm < limit, gradient, gradient * (limit / norm.clamp(min=1e-6)))

    @torch.no_grad()
    def clip() -> None:
        if not fixed:
            for each in parameters:  # cause: parameter_loop, main
                each.grad.copy_(clipped(each, each.grad))
            return
        alike = dict[torch.Size, list[Tensor]]()
        for each in parameters:  # near: parameter_loop
            alike.setdefault(each.shape, []).append(each)
        for group in alike.values():  # near: parameter_loop
            gradients = [each.grad for each in group]
            torch._foreach_copy_(gradients, list(clipped(torch.stack(group), torch.stack(gradients)).unbind()))

    def step() -> Tensor:
        optimizer.zero_grad()  # near: gradient_zeroing
        loss = F.mse_loss(function(x), y)
        loss.backward()
        clip()  # same: parameter_loop
        optimizer.step()  # near: optimizer_unfused
        return loss.detach()

    return Built(step, parameters)


def keys_queued(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, layers: int = 30, width: int = 256
) -> Built:
    """Momentum contrast: a slow copy follows its encoder tensor by tensor; the queue's place lies on the device."""
    rows, slots = 256, 4096

    class Contrast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quick, self.slow = perceptron(width, layers, dtype), perceptron(width, layers, dtype)
            self.slow.load_state_dict(self.quick.state_dict())
            self.slow.requires_grad_(False)
            self.register_buffer("queue", F.normalize(torch.randn(width, slots, dtype=dtype), dim=0))
            self.register_buffer("place", torch.zeros(1, dtype=torch.long))

        @torch.no_grad()
        def follow(self) -> None:
            if fixed:
                torch._foreach_lerp_(list(self.slow.parameters()), list(self.quick.parameters()), 0.01)
                return
            pairs = zip(self.slow.parameters(), self.quick.parameters(), strict=True)
            for slow, quick in pairs:  # cause: parameter_loop, main
                slow.data = slow.data * 0.99 + quick.data * 0.01

        @torch.no_grad()
        def enqueue(self, keys: Tensor) -> None:
            at = int(self.place)  # cause: host_sync, stays
            self.queue[:, at : at + rows] = keys.T
            self.place[0] = (at + rows) % slots  # near: host_sync  # near: pageable_copy

        def forward(self, one: Tensor, two: Tensor) -> Tensor:
            mine = F.normalize(self.quick(one), dim=1)
            with torch.no_grad():
                self.follow()  # same: parameter_loop
                keys = F.normalize(self.slow(two), dim=1)
            near, far = (mine * keys).sum(1, keepdim=True), mine @ self.queue.clone()
            self.enqueue(keys)  # same: host_sync
            first = torch.zeros(rows, dtype=torch.long, device=one.device)
            return F.cross_entropy(torch.cat((near, far), 1).float() / 0.2, first)  # near: linear_cross_entropy

    model = Contrast()
    parameters = list(model.quick.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.03, foreach=True)
    one, two = torch.randn(2, rows, width, dtype=dtype)
    function = wrap(model)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = function(one, two)  # same: parameter_loop  # same: host_sync
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Built(step, list(model.parameters()))


LOOPS = (
    Labelled(adapters_apart, "fifth", {"requests": 5, "width": 24}, tolerance=5e-2),
    Labelled(pictures_rendered, "fifth", {"rays": 24, "chunk": 8}, tolerance=5e-2),
    Labelled(gradients_private, "fifth", {"samples": 6, "width": 16}, training=True, tolerance=5e-2),
    Labelled(features_crossed, "fifth", {"users": 5, "fields": 4}, tolerance=5e-2),
    Labelled(clipped_by_units, "fifth", {"layers": 3, "width": 16}, training=True, tolerance=5e-2),
    Labelled(keys_queued, "fifth", {"layers": 2, "width": 16}, Expected(WAITS, BREAKS, BREAKS), training=True),
)
