"""What a training step does besides forward and backward: updates, averages, clipping, scaling, casts of weights."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.causes.parts import B, H, adamw, hidden, linears, over, residuals, rows, square, trained, transformer
from benchmarks.causes.program import Step, program, size

# -- the update --------------------------------------------------------------------------------------------------------


@program(training=True)
def optimizer_adamw_loop(fixed: bool) -> Step:
    """AdamW, a parameter at a time."""
    model = linears()
    return trained(
        model, rows(), optimizer=adamw(model.parameters(), **({} if fixed else {"fused": False, "foreach": False}))
    )


@program(training=True)
def optimizer_adam_lists(fixed: bool) -> Step:
    """Adam with weight decay over lists of parameters."""
    model = linears(32, 768)
    choice = {"fused": True} if fixed else {"foreach": True}
    return trained(model, rows(width=768), optimizer=torch.optim.Adam(model.parameters(), weight_decay=1e-2, **choice))


@program(training=True)
def optimizer_sgd_loop(fixed: bool) -> Step:
    """SGD with momentum, a parameter at a time."""
    model = linears(40, 768)
    choice = {"fused": True} if fixed else {"foreach": False}
    return trained(model, rows(width=768), optimizer=torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, **choice))


@program(training=True)
def optimizer_fused() -> Step:
    """AdamW in one kernel for many parameters."""
    model = linears()
    return trained(model, rows(), optimizer=torch.optim.AdamW(model.parameters(), fused=True))


@program(training=True)
def optimizer_rmsprop() -> Step:
    """RMSprop over lists: it has no fused step."""
    model = linears()
    return trained(model, rows(), optimizer=torch.optim.RMSprop(model.parameters(), 1e-4, foreach=True))


# -- loops over parameters ---------------------------------------------------------------------------------------------


@program(training=True)
def loop_average(fixed: bool) -> Step:
    """An exponential average of the weights, two small kernels a parameter."""
    model = linears(32)
    average = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def behind() -> list[Tensor]:
        if fixed:
            torch._foreach_lerp_(average, list(model.parameters()), 0.01)
        else:
            for kept, weight in zip(average, model.parameters(), strict=True):
                kept.mul_(0.99).add_(weight, alpha=0.01)
        return average

    return trained(model, rows(), behind=behind)


@program(training=True)
def loop_unscale(fixed: bool) -> Step:
    """Gradients divided by the number of samples, one after another."""
    model = linears(32)

    def between() -> None:
        gradients = [p.grad for p in model.parameters()]
        if fixed:
            torch._foreach_div_(gradients, 16.0)
        else:
            for gradient in gradients:
                gradient.div_(16.0)

    return trained(model, rows(), between=between)


@program(training=True)
def loop_clamp(fixed: bool) -> Step:
    """A critic's weights clamped after each update, one after another."""
    model = linears(40, 768)

    @torch.no_grad()
    def behind() -> None:
        if fixed:
            torch._foreach_clamp_max_(list(model.parameters()), 0.02)
            torch._foreach_clamp_min_(list(model.parameters()), -0.02)
        else:
            for weight in model.parameters():
                weight.clamp_(-0.02, 0.02)

    return trained(model, rows(width=768), behind=behind)


@program(training=True)
def loop_lists_average() -> Step:
    """The average of the weights over lists already."""
    model = linears(32)
    average = [p.detach().clone() for p in model.parameters()]

    def behind() -> list[Tensor]:
        torch._foreach_lerp_(average, [p.detach() for p in model.parameters()], 0.01)
        return average

    return trained(model, rows(), behind=behind)


@program
def loop_activations() -> Step:
    """The same small operator on maps of a pyramid, each made from the one before."""
    levels = 8

    def call(x: Tensor) -> list[Tensor]:
        found = []
        for _ in range(levels):
            x = F.avg_pool2d(x, 2)
            x = x.mul(1.5)
            found.append(x)
        return found

    side = size(1024, 256)
    return over(call, torch.randn(4, 16, side, side, dtype=H))


# -- gradients that are zeroed -----------------------------------------------------------------------------------------


@program(training=True)
def zeroed_by_optimizer(fixed: bool) -> Step:
    """The optimizer writes zeros, the backward adds to them."""
    model = linears(32)
    updates = adamw(model.parameters())
    return trained(model, rows(), optimizer=updates, clear=partial(updates.zero_grad, set_to_none=fixed))


@program(training=True)
def zeroed_by_loop(fixed: bool) -> Step:
    """Each gradient is zeroed in a loop."""
    model = linears(32, 768)

    def clear() -> None:
        for p in model.parameters():
            if fixed:
                p.grad = None
            elif p.grad is not None:
                p.grad.zero_()

    return trained(model, rows(width=768), clear=clear)


@program(training=True)
def zeroed_not() -> Step:
    """Gradients are set to None."""
    model = linears(32)
    return trained(model, rows())


@program(training=True)
def zeroed_accumulators() -> Step:
    """Zeros that sums by index are added to: no gradients."""
    width, nodes = size(256), size(65536)
    model = residuals(width, 1).to(B)
    to = torch.randint(0, nodes, (4 * nodes,))

    def loss(x: Tensor) -> Tensor:
        sums = torch.zeros(nodes, width, dtype=B, device=x.device)
        return square(model(sums.index_add_(0, to, x)))

    return trained(model, torch.randn(4 * nodes, width, dtype=B), loss=loss)


# -- a scaler of gradients ---------------------------------------------------------------------------------------------


@program(training=True)
def scaler_bfloat16(fixed: bool) -> Step:
    """A scaler, unscaling and clipping under autocast to bfloat16, which has float32's range."""
    model = linears(24)
    inputs = rows()
    updates = adamw(model.parameters())
    scaler = torch.amp.GradScaler(inputs.device.type, enabled=not fixed)

    def step(x: Tensor) -> Tensor:
        updates.zero_grad(set_to_none=True)
        with torch.autocast(x.device.type, B):
            out = model(x)
        value = square(out)
        scaler.scale(value).backward()
        scaler.unscale_(updates)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        scaler.step(updates)
        scaler.update()
        return value.detach()

    return over(step, inputs)


@program(training=True)
def scaler_left_over(fixed: bool) -> Step:
    """A scaler in float32: autocast is gone, the scaler stayed."""
    model, inputs = linears(32, 768), rows(width=768)
    updates = adamw(model.parameters())
    scaler = torch.amp.GradScaler(inputs.device.type, enabled=not fixed)

    def step(x: Tensor) -> Tensor:
        updates.zero_grad(set_to_none=True)
        value = square(model(x))
        scaler.scale(value).backward()
        scaler.unscale_(updates)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        scaler.step(updates)
        scaler.update()
        return value.detach()

    return over(step, inputs)


@program(training=True)
def scaler_fused() -> Step:
    """float16 autocast with a scaler that the fused update takes into itself: as it should be."""
    model, inputs = linears(16), rows(4096)
    updates = adamw(model.parameters())
    scaler = torch.amp.GradScaler(inputs.device.type)

    def step(x: Tensor) -> Tensor:
        updates.zero_grad(set_to_none=True)
        with torch.autocast(x.device.type, H):
            out = model(x)
        value = square(out)
        scaler.scale(value).backward()
        scaler.step(updates)
        scaler.update()
        return value.detach()

    return over(step, inputs)


@program(training=True)
def scaler_accumulated() -> Step:
    """The loss divided by the number of small batches: one scalar, no scaler."""
    model = linears(16).to(B)
    updates = adamw(model.parameters())

    def step(x: Tensor) -> Tensor:
        updates.zero_grad(set_to_none=True)
        for part in x.chunk(4):
            (square(model(part)) / 4).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        updates.step()
        return x.new_zeros(())

    return over(step, rows(8192, dtype=B))


# -- weights cast in every step ----------------------------------------------------------------------------------------


@program
def cast_autocast_inference(fixed: bool) -> Step:
    """Inference under autocast with float32 weights."""
    model = transformer(layers=3).eval()
    if fixed:
        for layer in model.modules():
            if isinstance(layer, nn.Linear):
                layer.to(B)

    def call(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, B):
            return model(x)

    return over(call, hidden(2, 512, dtype=torch.float32))


@program(training=True)
def cast_small_batches(fixed: bool) -> Step:
    """Autocast is entered for each of four small batches: each casts all weights anew."""
    model = linears(12, 2048)
    updates = adamw(model.parameters())

    def step(x: Tensor) -> list[Tensor]:
        updates.zero_grad(set_to_none=True)
        if fixed:
            with torch.autocast(x.device.type, B):
                losses = [square(model(part)) / 4 for part in x.chunk(4)]
            sum(losses).backward()
        else:
            for part in x.chunk(4):
                with torch.autocast(x.device.type, B):
                    loss = square(model(part)) / 4
                loss.backward()
        updates.step()
        return list(model.parameters())

    return over(step, rows(2048, 2048))


@program(training=True)
def cast_autocast_training(fixed: bool) -> Step:
    """Training under autocast; or bfloat16 weights beside float32 ones that the optimizer updates."""
    model = linears(12, 2048)
    masters = [p.detach().clone() for p in model.parameters()]
    updates = adamw(masters if fixed else model.parameters())
    if fixed:
        model.to(B)
    weights = list(model.parameters())

    def step(x: Tensor) -> Tensor:
        if not fixed:
            updates.zero_grad(set_to_none=True)
            with torch.autocast(x.device.type, B):
                loss = square(model(x))
            loss.backward()
            updates.step()
            return loss.detach()
        model.zero_grad(set_to_none=True)
        loss = square(model(x.to(B)))
        loss.backward()
        for master, weight in zip(masters, weights, strict=True):
            master.grad = weight.grad.float()
        updates.step()
        with torch.no_grad():
            torch._foreach_copy_(weights, masters)
        return loss.detach()

    return over(step, rows(2048, 2048))


@program
def cast_inputs() -> Step:
    """float32 inputs are cast to the weights' bfloat16: activations, which change."""
    model = residuals(size(1024)).to(B)
    return over(lambda x: model(x.to(B)), rows(8192))


@program
def cast_kept_recurrent() -> Step:
    """A layer applied 96 times under one autocast, which keeps its cast weight: one small cast a step."""
    cell = nn.Linear(size(512), size(512))

    def call(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, B):
            state = x
            for _ in range(96):
                state = torch.tanh(cell(state))
        return state

    return over(call, torch.randn(size(16384), size(512), dtype=B))
