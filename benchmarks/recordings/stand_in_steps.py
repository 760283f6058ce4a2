"""Steps of plain torch that stand_in.py records: training with several losses and optimizers, and research code.

Each function of TRAINING and INFERENCE builds small tensors and gives the step. Optimizers take their lists (`foreach`)
where they would on a GPU, or one tensor after the other where that is what is to be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

Step = Callable[[], Any]


def trained(
    model: nn.Module,
    loss: Callable[[nn.Module], Tensor],
    optimizer: Callable[..., optim.Optimizer],
    *,
    clip: float | None = None,
    autocast: torch.dtype | None = None,
    average: float | None = None,
) -> Step:
    """A training step; with `average`, weights are averaged over steps by hand."""
    updates = optimizer(model.parameters())
    shadow = [weight.detach().clone() for weight in model.parameters()]

    def step() -> None:
        updates.zero_grad(set_to_none=True)
        with torch.autocast("cpu", autocast, enabled=autocast is not None):
            value = loss(model)
        value.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip, foreach=True)
        updates.step()
        if average is not None:
            with torch.no_grad():
                for kept, weight in zip(shadow, model.parameters(), strict=True):
                    kept.mul_(average).add_(weight, alpha=1 - average)

    return step


def mlp(*widths: int, activation: type[nn.Module] = nn.GELU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for given, wanted in pairwise(widths):
        layers += [nn.Linear(given, wanted), activation()]
    return nn.Sequential(*layers[:-1])


# -- losses ------------------------------------------------------------------------------------------------------------


def diffusion() -> Step:
    """Denoising with preconditioned inputs and weighted errors; Adam's larger second moments, averaged weights."""
    layers = (nn.Conv2d(3, 64, 3, padding=1), nn.GroupNorm(8, 64), nn.SiLU(), nn.Conv2d(64, 3, 3, padding=1))
    images, spread = torch.randn(8, 3, 32, 32), 0.5

    def loss(model: nn.Module) -> Tensor:
        sigma = (torch.randn(8, 1, 1, 1) * 1.2 - 1.2).exp()
        both = sigma**2 + spread**2
        noisy = images + torch.randn_like(images) * sigma
        denoised = spread**2 / both * noisy + sigma * spread / both.sqrt() * model(noisy / both.sqrt())
        return (both / (sigma * spread) ** 2 * (denoised - images) ** 2).sum().mul(1 / 8)

    return trained(
        nn.Sequential(*layers), loss, partial(optim.Adam, lr=1e-3, amsgrad=True, foreach=True), average=0.999
    )


def classification() -> Step:
    """Label smoothing, focal loss, distillation and an entropy of one product."""
    inputs, labels, teacher = torch.randn(512, 256), torch.randint(0, 100, (512,)), torch.randn(512, 100)

    def loss(model: nn.Module) -> Tensor:
        out = model(inputs)
        each = F.cross_entropy(out, labels, reduction="none")
        focal = (0.25 * (1 - torch.exp(-each)) ** 2 * each).mean()
        told = F.kl_div(F.log_softmax(out / 4, -1), F.softmax(teacher / 4, -1), reduction="batchmean") * 16
        chances = out.softmax(-1)
        entropy = -(chances * torch.log(chances + 1e-8)).sum(-1).mean()
        return F.cross_entropy(out, labels, label_smoothing=0.1) + focal + told - 0.01 * entropy

    return trained(mlp(256, 512, 100), loss, partial(optim.SGD, lr=0.1, momentum=0.9, nesterov=True, foreach=False))


def contrast() -> Step:
    """Triplets, InfoNCE in both directions, and a correlation that is to be the identity."""
    first, second, other = (torch.randn(256, 256) for _ in range(3))

    def loss(model: nn.Module) -> Tensor:
        a, b, c = model(first), model(second), model(other)
        alike = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).t() / 0.07
        places = torch.arange(256)
        both_ways = (F.cross_entropy(alike, places) + F.cross_entropy(alike.t(), places)) / 2
        scaled = [(one - one.mean(0)) / (one.std(0) + 1e-5) for one in (a, b)]
        together = scaled[0].t() @ scaled[1] / 256
        apart = (together.diagonal() - 1).pow(2).sum() + 0.005 * together.pow(2).sum()
        return F.triplet_margin_loss(a, b, c, swap=True) + both_ways + apart + F.relu(1 - a.var(0).sqrt()).mean()

    return trained(mlp(256, 256, 128), loss, partial(optim.Adagrad, lr=0.01, foreach=True))


def segmentation() -> Step:
    """Dice, Tversky and Huber's losses, and total variation, of an image's channels."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.InstanceNorm2d(16, affine=True), nn.Hardswish(), nn.Conv2d(16, 5, 1)
    )
    images, labels, wanted = torch.randn(4, 3, 64, 64), torch.randint(0, 5, (4, 64, 64)), torch.randn(4, 5, 64, 64)

    def loss(model: nn.Module) -> Tensor:
        out = model(images)
        chances, truth = out.softmax(1), F.one_hot(labels, 5).permute(0, 3, 1, 2).float()
        shared = (chances * truth).sum((2, 3))
        dice = 1 - ((2 * shared + 1) / (chances.sum((2, 3)) + truth.sum((2, 3)) + 1)).mean()
        wrong, missed = (chances * (1 - truth)).sum(), ((1 - chances) * truth).sum()
        tversky = 1 - (shared.sum() + 1) / (shared.sum() + 0.7 * missed + 0.3 * wrong + 1)
        weighed = F.binary_cross_entropy_with_logits(out, truth, pos_weight=torch.full((5, 1, 1), 2.0))
        rough = (out[:, :, 1:] - out[:, :, :-1]).abs().mean() + (out[..., 1:] - out[..., :-1]).abs().mean()
        return dice + tversky + weighed + rough + F.huber_loss(out, wanted, delta=0.5)

    return trained(model, loss, partial(optim.RMSprop, lr=0.01, momentum=0.9, centered=True, foreach=True))


def boxes() -> Step:
    """Overlaps of boxes, with the penalty for what encloses both."""
    inputs, given = torch.randn(2048, 256), torch.rand(2048, 4)

    def corners(box: Tensor) -> Tensor:
        x, y, width, height = box.unbind(-1)
        return torch.stack([x - 0.5 * width, y - 0.5 * height, x + 0.5 * width, y + 0.5 * height], -1)

    def area(low: Tensor, high: Tensor) -> Tensor:
        return (high - low).clamp(min=0).prod(-1)

    def loss(model: nn.Module) -> Tensor:
        out = model(inputs).sigmoid()
        a, b = corners(out), corners(given)
        shared = area(torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:]))
        union = area(a[:, :2], a[:, 2:]) + area(b[:, :2], b[:, 2:]) - shared
        around = area(torch.min(a[:, :2], b[:, :2]), torch.max(a[:, 2:], b[:, 2:]))
        return (1 - shared / union + (around - union) / (around + 1e-7)).mean() + F.l1_loss(out, given)

    return trained(mlp(256, 256, 4, activation=nn.Mish), loss, partial(optim.Adadelta, foreach=True))


def policy() -> Step:
    """Proximal policy optimization: clipped ratios, advantages by a loop over time, clipped gradients."""
    time, runs = 16, 128
    seen, acts, old = torch.randn(time * runs, 64), torch.randint(0, 8, (time * runs,)), -torch.rand(time * runs)
    rewards, goes_on, values = torch.randn(time, runs), (torch.rand(time, runs) < 0.9).float(), torch.randn(17, runs)

    def loss(model: nn.Module) -> Tensor:
        since, found = torch.zeros(runs), []
        for at in reversed(range(time)):
            error = rewards[at] + 0.99 * values[at + 1] * goes_on[at] - values[at]
            since = error + 0.94 * goes_on[at] * since
            found.append(since)
        advantage = torch.stack(found[::-1]).flatten()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        out = model(seen)
        chosen = out[:, :8].log_softmax(-1)
        ratio = (chosen.gather(1, acts[:, None]).squeeze(1) - old).exp()
        clipped = torch.max(-advantage * ratio, -advantage * torch.clamp(ratio, 0.8, 1.2)).mean()
        value = 0.5 * (out[:, 8] - values[:-1].flatten()).pow(2).mean()
        return clipped + value + 0.01 * (chosen.exp() * chosen).sum(-1).mean()

    return trained(
        mlp(64, 128, 9, activation=nn.Tanh), loss, partial(optim.Adam, lr=3e-4, eps=1e-5, foreach=True), clip=0.5
    )


# -- optimizers --------------------------------------------------------------------------------------------------------


class Lion(optim.Optimizer):
    """Signs of averaged gradients, one weight after the other."""

    def __init__(self, weights: Any, lr: float = 1e-4) -> None:
        super().__init__(weights, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                mean = self.state[weight].setdefault("mean", torch.zeros_like(weight))
                weight.mul_(1 - group["lr"] * 0.1)
                weight.add_(mean.clone().mul_(0.9).add_(weight.grad, alpha=0.1).sign_(), alpha=-group["lr"])
                mean.mul_(0.99).add_(weight.grad, alpha=0.01)


LISTED = (
    partial(optim.SGD, momentum=0.9, dampening=0.1, weight_decay=1e-4),
    optim.RMSprop,
    optim.Rprop,
    partial(optim.NAdam, decoupled_weight_decay=True, weight_decay=0.1),
    partial(optim.RAdam, weight_decay=0.1),
    partial(optim.Adamax, weight_decay=0.1),
)
LOOPED = (partial(optim.Adam, amsgrad=True), partial(optim.RMSprop, centered=True), optim.ASGD, optim.Adadelta)


def regression(optimizer: Callable[..., optim.Optimizer], **options: Any) -> Step:
    model = nn.Sequential(nn.Linear(256, 512), nn.LayerNorm(512), nn.Hardswish(), nn.Linear(512, 256))
    inputs, wanted = torch.randn(256, 256), torch.randn(256, 256)
    return trained(model, lambda model: F.smooth_l1_loss(model(inputs), wanted), optimizer, **options)


def optimizers_of_lists() -> Step:
    steps = [regression(partial(one, lr=1e-3, foreach=True)) for one in LISTED]
    return lambda: [step() for step in steps]


def optimizers_by_loop() -> Step:
    steps = [regression(partial(one, lr=1e-3, foreach=False)) for one in LOOPED]
    steps.append(regression(Lion, autocast=torch.bfloat16, clip=1.0))
    return lambda: [step() for step in steps]


# -- what else there is ------------------------------------------------------------------------------------------------


def activations() -> Step:
    """Many of one tensor, gated ones, and a layer norm of what they give."""
    plain = (
        F.mish, F.hardswish, F.softplus, F.elu, F.selu, F.hardsigmoid, F.hardtanh, F.relu6, F.softsign, F.tanhshrink,
        partial(F.celu, alpha=0.5), partial(F.softshrink, lambd=0.3), partial(F.hardshrink, lambd=0.3),
    )  # fmt: skip
    model = nn.ModuleDict({"first": nn.Linear(256, 512), "last": nn.Linear(256, 256), "norm": nn.LayerNorm(256)})
    inputs = torch.randn(512, 256)

    def loss(model: Any) -> Tensor:
        hidden = model["first"](inputs)
        total = sum(one(hidden) for one in plain) + hidden * torch.sigmoid(1.7 * hidden) + torch.exp(-(hidden**2))
        value, gate = total.chunk(2, -1)
        gated = F.glu(total, -1) + value * F.gelu(gate) + value * F.silu(gate) + value * torch.relu(gate) ** 2
        return model["norm"](model["last"](gated)).pow(2).mean()

    return trained(model, loss, partial(optim.NAdam, lr=1e-3, foreach=False))


def norms() -> Step:
    """Batch, instance and group norm, and by hand: of responses, of channels, of pixels."""
    convolve, joined = nn.Conv2d(8, 32, 3, padding=1), (nn.BatchNorm2d(32), nn.InstanceNorm2d(32), nn.GroupNorm(4, 32))
    model, images = nn.ModuleList((convolve, *joined)), torch.randn(4, 8, 32, 32)
    scale, shift = torch.randn(1, 32, 1, 1), torch.randn(1, 32, 1, 1)

    def loss(model: Any) -> Tensor:
        first = model[0](images)
        out = model[1](first) + model[2](first) + model[3](first)
        length = torch.norm(out, p=2, dim=(2, 3), keepdim=True)
        out = scale * (out * (length / (length.mean(1, keepdim=True) + 1e-6))) + shift + out
        away = out - out.mean(1, keepdim=True)
        out = scale * (away / torch.sqrt(away.pow(2).mean(1, keepdim=True) + 1e-6)) + shift
        return (out * torch.rsqrt(out.square().mean(1, keepdim=True) + 1e-8)).tanh().pow(2).mean()

    return trained(model, loss, partial(optim.Adamax, lr=1e-3, foreach=False))


def sampling() -> Step:
    """The next token: penalties for repeating, the likeliest fifty, the likeliest nine tenths, and a draw."""
    scores, before = torch.randn(16, 8192), torch.randint(0, 8192, (16, 64))

    def step() -> Tensor:
        said = torch.gather(scores, 1, before)
        out = scores.scatter(1, before, torch.where(said < 0, said * 1.2, said / 1.2)) / 0.8
        out = out.masked_fill(out < torch.topk(out, 50)[0][..., -1, None], -torch.inf)
        falling, places = torch.sort(out, descending=True)
        unlikely = falling.softmax(-1).cumsum(-1) > 0.9
        unlikely[..., 1:] = unlikely[..., :-1].clone()
        unlikely[..., 0] = False
        chances = out.masked_fill(unlikely.scatter(1, places, unlikely), -torch.inf).softmax(-1)
        return (chances / torch.empty_like(chances).exponential_(1)).argmax(-1)

    return step


def bodies() -> Step:
    """Two steps of bodies that attract each other in a box."""
    places, speeds, masses = torch.randn(512, 3), torch.randn(512, 3), torch.rand(512)

    def pulled(places: Tensor) -> Tensor:
        away = places[None] - places[:, None]
        weight = ((away * away).sum(-1) + 0.01) ** -1.5
        return (away * (masses[None] * weight)[..., None]).sum(1)

    def step() -> Tensor:
        now, speed = places, speeds
        for _ in range(2):
            half = speed + 0.005 * pulled(now)
            now = now + 0.01 * half
            now, speed = now - 10 * torch.round(now / 10), half + 0.005 * pulled(now)
        return speed * torch.sqrt(1.0 / (speed**2).mean())

    return step


TRAINING = (
    diffusion,
    classification,
    contrast,
    segmentation,
    boxes,
    policy,
    optimizers_of_lists,
    optimizers_by_loop,
    activations,
    norms,
)
INFERENCE = (sampling, bodies)
