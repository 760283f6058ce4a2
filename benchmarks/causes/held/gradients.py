"""What a training step does besides forward and backward: updates, averages, clipping, scaling, casts of weights."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.causes.parts import (
    B,
    H,
    adamw,
    hidden,
    linears,
    other,
    over,
    residuals,
    rows,
    square,
    trained,
    transformer,
)
from benchmarks.causes.program import Step, program, size

# -- the update --------------------------------------------------------------------------------------------------------


@program(training=True)
def optimizer_adamw_default(fixed: bool) -> Step:
    """AdamW as it is made when nothing is said: over lists on a GPU."""
    model = linears(28)
    updates = torch.optim.AdamW(model.parameters(), fused=True) if fixed else torch.optim.AdamW(model.parameters())
    return trained(model, rows(), optimizer=updates)


@program(training=True)
def optimizer_sgd_lists(fixed: bool) -> Step:
    """SGD with Nesterov's momentum over lists."""
    model = linears(32, 768)
    options = {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4}
    updates = torch.optim.SGD(model.parameters(), **options, **({"fused": True} if fixed else {"foreach": True}))
    return trained(model, rows(width=768), optimizer=updates)


@program(training=True)
def optimizer_adam_loop(fixed: bool) -> Step:
    """Adam with bfloat16 weights, a parameter at a time."""
    model = transformer(layers=3).to(B)
    updates = torch.optim.Adam(model.parameters(), 1e-4, **({"fused": True} if fixed else {"foreach": False}))
    return trained(model, hidden(1, 512), optimizer=updates)


@program(training=True)
def optimizer_sgd_fused() -> Step:
    """SGD with momentum in one kernel for many parameters."""
    model = linears(40, 768)
    return trained(
        model, rows(width=768), optimizer=torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, fused=True)
    )


class Lion(torch.optim.Optimizer):
    """The sign of an average of gradients, over lists; PyTorch has none of its own."""

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            weights = group["params"]
            gradients = [p.grad for p in weights]
            averages = [self.state[p].setdefault("average", torch.zeros_like(p)) for p in weights]
            signs = torch._foreach_lerp(averages, gradients, 0.1)
            torch._foreach_sign_(signs)
            torch._foreach_mul_(weights, 1 - 1e-5)
            torch._foreach_add_(weights, signs, alpha=-1e-4)
            torch._foreach_lerp_(averages, gradients, 0.01)


@program(training=True)
def optimizer_own() -> Step:
    """An optimizer written by hand over lists: there is no fused one to ask for."""
    model = linears()
    return trained(model, rows(), optimizer=Lion(model.parameters(), {}))


# -- loops over parameters ---------------------------------------------------------------------------------------------


@program(training=True)
def loop_clip(fixed: bool) -> Step:
    """Clipping by hand: a norm and a product for each gradient."""
    model = linears(32)

    @torch.no_grad()
    def between() -> None:
        gradients = [p.grad for p in model.parameters()]
        if fixed:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1, foreach=True)
            return
        total = torch.stack([gradient.norm() for gradient in gradients]).norm()
        share = (0.1 / (total + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(share)

    return trained(model, rows(), between=between)


@program(training=True)
def loop_target(fixed: bool) -> Step:
    """A second network follows the first slowly, a parameter at a time, as in reinforcement learning."""
    model = linears(40, 768)
    target = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def behind() -> list[Tensor]:
        slow, fast = list(target.parameters()), list(model.parameters())
        if fixed:
            torch._foreach_mul_(slow, 0.995)
            torch._foreach_add_(slow, fast, alpha=0.005)
        else:
            for one, two in zip(slow, fast, strict=True):
                one.data.copy_(0.005 * two.data + 0.995 * one.data)
        return slow

    def loss(x: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = target(x)
        return F.mse_loss(model(x), wanted + x)

    return trained(model, rows(width=768), loss=loss, behind=behind)


@program(training=True)
def loop_decay(fixed: bool) -> Step:
    """Weights decayed by hand before each update, one after another."""
    model = linears(32)

    @torch.no_grad()
    def between() -> None:
        if fixed:
            torch._foreach_mul_(list(model.parameters()), 1 - 1e-4)
        else:
            for weight in model.parameters():
                weight.mul_(1 - 1e-4)

    return trained(model, rows(), between=between)


@program(training=True)
def loop_lists_clip() -> Step:
    """Clipping over lists already."""
    model = linears(32)

    def between() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 0.1, foreach=True)

    return trained(model, rows(), between=between)


@program(training=True)
def loop_three_tables() -> Step:
    """A loop over three large tensors: three kernels, each as long as it must be."""
    tables = nn.ParameterList(nn.Parameter(torch.randn(size(1024), size(16384))) for _ in range(3))
    average = [p.detach().clone() for p in tables]

    @torch.no_grad()
    def behind() -> list[Tensor]:
        for kept, weight in zip(average, tables, strict=True):
            kept.lerp_(weight, 0.01)
        return average

    def loss(x: Tensor) -> Tensor:
        return square(torch.relu(x @ tables[0]) @ tables[1].t() + torch.relu(x) @ tables[2] @ tables[1].t())

    return trained(tables, rows(), loss=loss, behind=behind)


# -- gradients that are zeroed -----------------------------------------------------------------------------------------


@program(training=True)
def zeroed_by_model(fixed: bool) -> Step:
    """The model writes zeros into each gradient."""
    model = linears(40, 768)
    return trained(model, rows(width=768), clear=lambda: model.zero_grad(set_to_none=fixed))


@program(training=True)
def zeroed_by_hand(fixed: bool) -> Step:
    """New zeros for each gradient in front of the backward."""
    model = linears(24)

    def clear() -> None:
        for p in model.parameters():
            p.grad = None if fixed else torch.zeros_like(p)

    return trained(model, rows(), clear=clear)


@program(training=True)
def zeroed_for_four() -> Step:
    """Set to None once for four small batches, whose gradients are then added up."""
    model = linears(16)
    updates = adamw(model.parameters())

    def step(x: Tensor) -> None:
        updates.zero_grad(set_to_none=True)
        for part in x.chunk(4):
            square(model(part)).backward()
        updates.step()

    return over(step, rows(8192))


@program(training=True)
def zeroed_flat() -> Step:
    """All gradients are views of one buffer, zeroed by one call, as collectives want them."""
    model = linears(24)
    weights = list(model.parameters())
    flat = torch.zeros(sum(p.numel() for p in weights))

    def clear() -> None:
        flat.zero_()
        at = 0
        for p in weights:
            p.grad = flat[at : at + p.numel()].view_as(p)
            at += p.numel()

    return trained(model, rows(4096), clear=clear)


# -- a scaler of gradients ---------------------------------------------------------------------------------------------


@program(training=True)
def scaler_lists(fixed: bool) -> Step:
    """float16 autocast, a scaler, AdamW over lists: the host waits, and each gradient is unscaled."""
    model, inputs = linears(24), rows(2048)
    updates = adamw(model.parameters(), **({} if fixed else {"fused": False, "foreach": True}))
    scaler = torch.amp.GradScaler(inputs.device.type)

    def step(x: Tensor) -> tuple[Tensor, list[Tensor]]:
        updates.zero_grad(set_to_none=True)
        with torch.autocast(x.device.type, H):
            out = model(x)
        value = square(out)
        scaler.scale(value).backward()
        scaler.step(updates)
        scaler.update()
        return value.detach(), list(model.parameters())

    return over(step, inputs)


@program(training=True)
def scaler_own(fixed: bool) -> Step:
    """A loss scaled by hand in bfloat16, gradients divided in a loop, and the host asks whether all are finite."""
    model = linears(24).to(B)
    updates = adamw(model.parameters())

    def step(x: Tensor) -> Tensor:
        updates.zero_grad(set_to_none=True)
        value = square(model(x))
        if fixed:
            value.backward()
            updates.step()
            return value.detach()
        (value * 1024.0).backward()
        finite = torch.ones((), dtype=torch.bool, device=x.device)
        for p in model.parameters():
            p.grad.div_(1024.0)
            finite = finite & p.grad.isfinite().all()
        if finite.item():
            updates.step()
        return value.detach()

    return over(step, rows(dtype=B))


@program(training=True)
def scaler_disabled() -> Step:
    """A scaler that is switched off, in bfloat16."""
    model, inputs = linears(24).to(B), rows(dtype=B)
    updates = adamw(model.parameters())
    scaler = torch.amp.GradScaler(inputs.device.type, enabled=False)

    def step(x: Tensor) -> Tensor:
        updates.zero_grad(set_to_none=True)
        value = square(model(x))
        scaler.scale(value).backward()
        scaler.step(updates)
        scaler.update()
        return value.detach()

    return over(step, inputs)


@program(training=True)
def scaler_clip_only() -> Step:
    """Clipping in bfloat16 without a scaler."""
    model = linears(24).to(B)
    return trained(
        model, rows(dtype=B), between=lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    )


# -- weights cast in every step ----------------------------------------------------------------------------------------


class Casting(nn.Linear):
    """A layer that brings its weight to what comes in."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))


@program
def cast_in_forward(fixed: bool) -> Step:
    """float32 weights, brought to the input's float16 in each forward."""
    model = nn.Sequential(*(Casting(size(2048), size(2048)) for _ in range(8)))
    return over(model.to(H if fixed else torch.float32).eval(), rows(1024, 2048, H))


@program(training=True)
def cast_teacher(fixed: bool) -> Step:
    """A frozen float32 teacher under autocast beside a student in bfloat16."""
    teacher, student = linears(16, 2048).requires_grad_(False), linears(4, 2048).to(B)
    if fixed:
        teacher.to(B)

    def loss(x: Tensor) -> Tensor:
        with torch.no_grad(), torch.autocast(x.device.type, B):
            wanted = teacher(x)
        return F.mse_loss(student(x).float(), wanted.float())

    return trained(student, rows(512, 2048, B), loss=loss)


@program
def cast_once() -> Step:
    """float32 weights were cast when the model was loaded; both are kept."""
    model = residuals(size(1024))
    masters = [p.detach().clone() for p in model.parameters()]
    model.to(B)
    return over(lambda x: (model(x), len(masters))[0], rows(8192, dtype=B))


@program(training=True)
def cast_logits() -> Step:
    """bfloat16 throughout; the logits are brought to float32 for the loss."""
    width, words = size(1024), size(32768)
    body, head = residuals(width, 1).to(B), nn.Linear(width, words, bias=False).to(B)
    model = nn.Sequential(body, head)
    wanted = torch.randint(0, words, (size(4096),))
    return trained(
        model, rows(4096, dtype=B), other(wanted), loss=lambda x, labels: F.cross_entropy(model(x).float(), labels)
    )
