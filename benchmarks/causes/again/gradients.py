"""Programs of the second part that was held back: gradients."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.causes.parts import (
    B,
    H,
    Layers,
    adamw,
    applied,
    hidden,
    linears,
    over,
    residuals,
    rows,
    square,
    trained,
    transformer,
)
from benchmarks.causes.program import Step, program, size

# -- optimizer ---------------------------------------------------------------------------------------------------------


@program(training=True)
def nesterov_one_by_one(fixed: bool) -> Step:
    """SGD with Nesterov's momentum and decay, a loop over 48 parameters."""
    model = linears(24)
    way = {"fused": True} if fixed else {"foreach": False}
    updates = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4, **way)
    return trained(model, rows(1024), optimizer=updates)


@program(training=True)
def largest_of_squares(fixed: bool) -> Step:
    """Adam with AMSGrad over lists of tensors, that also has one kernel for it."""
    model = residuals(size(768), 4)
    way = {"fused": True} if fixed else {"foreach": True}
    updates = torch.optim.Adam(model.parameters(), lr=3e-4, amsgrad=True, **way)
    return trained(model, rows(2048, 768), optimizer=updates)


@program(training=True)
def root_mean_squares() -> Step:
    """RMSprop with momentum over lists of tensors: it has no fused form."""
    model = linears(16)
    updates = torch.optim.RMSprop(model.parameters(), lr=1e-4, momentum=0.9, foreach=True)
    return trained(model, rows(1024), optimizer=updates)


# -- parameter_loop ----------------------------------------------------------------------------------------------------


@program(training=True)
def slow_weights(fixed: bool) -> Step:
    """Lookahead: slow weights go half the way to the fast ones, which begin again from there."""
    model = linears(24)
    fast = list(model.parameters())
    slow = [p.detach().clone() for p in fast]

    @torch.no_grad()
    def pull() -> list[Tensor]:
        if fixed:
            torch._foreach_lerp_(slow, fast, 0.5)
            torch._foreach_copy_(fast, slow)
        else:
            for kept, p in zip(slow, fast, strict=True):
                kept.add_(p.sub(kept), alpha=0.5)
                p.copy_(kept)
        return slow

    return trained(model, rows(1024), behind=pull)


@program(training=True)
def gradients_clamped_one_by_one(fixed: bool) -> Step:
    """Each gradient is kept within bounds by itself, and shrunk a little."""
    model = linears(32, 768)
    parameters = list(model.parameters())

    def bound() -> None:
        if fixed:
            grads = [p.grad for p in parameters]
            torch._foreach_clamp_min_(grads, -1e-4)
            torch._foreach_clamp_max_(grads, 1e-4)
            torch._foreach_mul_(grads, 0.9)
            return
        for p in parameters:
            p.grad.clamp_(-1e-4, 1e-4)
            p.grad *= 0.9

    return trained(model, rows(1024, 768), between=bound)


class Tables(nn.Module):
    """Sums of rows of three tables, and a product behind them."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(count, width) for _ in range(3))
        self.mix = nn.Linear(width, width)

    def forward(self, ids: Tensor) -> Tensor:
        first, second, third = (table(ids) for table in self.tables)
        return self.mix(first + second + third)


@program(training=True)
def three_large_tables_averaged() -> Step:
    """The running mean of three large tables, one `lerp_` each: as many bytes in any spelling."""
    model = Tables(size(200_000, 100), size(128))
    tables = [table.weight for table in model.tables]
    means = [weight.detach().clone() for weight in tables]

    @torch.no_grad()
    def average() -> list[Tensor]:
        for mean, weight in zip(means, tables, strict=True):
            mean.lerp_(weight, 0.01)
        return means

    ids = torch.randint(0, size(200_000, 100), (size(16384),))
    return trained(model, ids, behind=average)


# -- zero_grad ---------------------------------------------------------------------------------------------------------


@program(training=True)
def zeros_before_each_step(fixed: bool) -> Step:
    """Gradients are filled with zeros, to which the backward pass then adds."""
    model = residuals(size(1024), 3)
    updates = adamw(model.parameters())
    clear = lambda: updates.zero_grad(set_to_none=fixed)  # noqa: E731
    return trained(model, rows(2048), optimizer=updates, clear=clear)


@program(training=True)
def model_zeroed(fixed: bool) -> Step:
    """The module's own `zero_grad`, told to keep its gradients' memory."""
    model = linears(24)
    return trained(model, rows(1024), clear=lambda: model.zero_grad(set_to_none=fixed))


@program(training=True)
def gradients_in_one_buffer() -> Step:
    """Gradients are views of one buffer, as one message would send them: zeroed, scaled down and kept there."""
    model = residuals(size(1024), 3)
    parameters = list(model.parameters())
    buffer = torch.zeros(sum(p.numel() for p in parameters))
    for p, part in zip(parameters, buffer.split([p.numel() for p in parameters]), strict=True):
        p.grad = part.view_as(p)

    def bound() -> None:
        buffer.mul_((1.0 / (buffer.norm() + 1e-6)).clamp(max=1.0))

    return trained(model, rows(4096), clear=lambda: buffer.zero_(), between=bound)


# -- grad_scaler -------------------------------------------------------------------------------------------------------


def attended_in_bfloat16(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q.to(B), k.to(B), v.to(B)).to(q.dtype)


@program(training=True)
def scaled_with_bfloat16(fixed: bool) -> Step:
    """Losses are scaled and gradients unscaled, though nothing has less range than float32."""
    model = transformer(attended_in_bfloat16).train()
    parameters = list(model.parameters())
    updates, scaler = adamw(parameters), torch.amp.GradScaler(enabled=not fixed)

    def step(x: Tensor) -> Any:
        updates.zero_grad(set_to_none=True)
        loss = square(model(x))
        scaler.scale(loss).backward()
        scaler.unscale_(updates)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        scaler.step(updates)
        scaler.update()
        return loss.detach(), parameters, [p.grad for p in parameters]

    return over(step, hidden(1, dtype=torch.float32), compiles=False)


@program(training=True)
def scaled_with_half() -> Step:
    """Half precision needs the scale, and the fused optimizer unscales by itself."""
    model = residuals(size(1024), 4).train()
    parameters = list(model.parameters())
    updates, scaler = adamw(parameters), torch.amp.GradScaler(init_scale=1024.0)

    def step(x: Tensor) -> Any:
        updates.zero_grad(set_to_none=True)
        with torch.autocast(x.device.type, dtype=H):
            loss = square(model(x))
        scaler.scale(loss).backward()
        scaler.step(updates)
        scaler.update()
        return loss.detach(), parameters

    return over(step, rows(8192), compiles=False)


# -- weights_cast ------------------------------------------------------------------------------------------------------


@program
def few_rows_under_autocast(fixed: bool) -> Step:
    """Inference of a few rows under autocast: all weights are cast for each batch."""
    model = residuals(size(2048), 3).eval()
    if fixed:
        for layer in model.modules():
            if isinstance(layer, nn.Linear):
                layer.to(B)

    def step(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, dtype=B):
            return model(x)

    return over(step, rows(512, 2048))


class Cast(nn.Module):
    """A gated product whose float32 weights follow the type of what comes in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = (nn.Parameter(torch.randn(width, width) * width**-0.5) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.einsum("bi,oi->bo", x, self.gate.type_as(x))
        up = torch.einsum("bi,oi->bo", x, self.up.type_as(x))
        return x + torch.einsum("bi,oi->bo", F.silu(gate) * up, self.down.type_as(x)) * 0.5


@program
def weights_follow_inputs(fixed: bool) -> Step:
    """Float32 weights are cast by hand to the type of their inputs, for each batch."""
    model = nn.Sequential(*(Cast(size(3072)) for _ in range(3)))
    return applied(model.to(B) if fixed else model, rows(512, 3072, B))


class Graph(nn.Module):
    """Nodes gather from their neighbours by a dense matrix that comes with each batch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: Tensor, near: Tensor) -> Tensor:
        return x + F.gelu(near @ self.mix(self.norm(x)))


@program
def neighbours_cast() -> Step:
    """A square matrix of float32 is cast in each step: an input that is another each time, and no parameter."""
    model = Layers([Graph(size(1024)) for _ in range(3)]).to(B).eval()
    near = torch.rand(size(4096), size(4096)) / size(4096)
    step = lambda x, weights: model(x, weights.to(B))  # noqa: E731
    return over(step, rows(4096, dtype=B), near)
