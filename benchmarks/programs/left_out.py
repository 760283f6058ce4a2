"""Programs of families that no text, curve or share was chosen with: what is said of them is judged, never fitted.

Written as people write them; `by_hand` is what an expert would write instead. Sizes are those of a first version that
runs on one GPU, not chosen for what is found in them.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.program import Program, Step, unchanged

# -- reinforcement learning --------------------------------------------------------------------------------------------


def q_learning(wrap: Any = unchanged, at_once: bool = False) -> Step:
    """Deep Q-learning on a small network: a target network that follows slowly, a loss printed each step."""
    net, target = (
        nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 6)) for _ in "ab"
    )
    target.requires_grad_(False)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=at_once or None, foreach=None if at_once else False)
    now, then, reward = torch.randn(256, 64), torch.randn(256, 64), torch.randn(256)
    action, done = torch.randint(0, 6, (256,)), torch.rand(256) < 0.1
    function, losses = wrap(net), []

    def step() -> Tensor:
        value = function(now).gather(1, action[:, None]).squeeze(1)
        with torch.no_grad():
            best = target(then).max(1).values
            wanted = reward + 0.99 * best * (~done).float()
        loss = F.smooth_l1_loss(value, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            if at_once:
                torch._foreach_lerp_(list(target.parameters()), list(net.parameters()), 0.005)
            else:
                for old, new in zip(target.parameters(), net.parameters(), strict=True):
                    old.data.copy_(0.995 * old.data + 0.005 * new.data)
        if not at_once:
            losses.append(loss.item())
        return loss.detach()

    return step


def q_learning_at_once(wrap: Any = unchanged) -> Step:
    return q_learning(wrap, at_once=True)


# -- search ------------------------------------------------------------------------------------------------------------


def beam_search(wrap: Any = unchanged, rounds: int = 16, beams: int = 4, on_device: bool = False) -> Step:
    """Beam search over a recurrent decoder, with each beam's score and word asked for on the host."""
    words, width = 2000, 256
    embed, cell, head = nn.Embedding(words, width), nn.GRUCell(width, width), nn.Linear(width, words)
    for module in (embed, cell, head):
        module.requires_grad_(False)
    start = torch.zeros(beams, dtype=torch.long)

    def scores_of(words: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = cell(embed(words), state)
        return torch.log_softmax(head(state), -1), state

    function = wrap(scores_of)

    def step() -> Tensor:
        last, state, total = start, embed.weight.new_zeros(beams, width), embed.weight.new_zeros(beams)
        for _ in range(rounds):
            scores, state = function(last, state)
            best, flat = (total[:, None] + scores).flatten().topk(beams)
            if on_device:
                origin, last, total = flat // words, flat % words, best
                state = state[origin]
            else:
                chosen = [(flat[at].item() // words, flat[at].item() % words, best[at].item()) for at in range(beams)]
                state = torch.stack([state[origin] for origin, _, _ in chosen])
                last = torch.tensor([word for _, word, _ in chosen], device=start.device)
                total = torch.tensor([score for _, _, score in chosen], device=start.device)
        return total

    return step


def beam_search_on_device(wrap: Any = unchanged) -> Step:
    return beam_search(wrap, on_device=True)


# -- two networks against each other -----------------------------------------------------------------------------------


def adversarial(wrap: Any = unchanged, fused: bool = False) -> Step:
    """A small generator and a critic trained in turns, each with an Adam that goes tensor by tensor."""

    def net(*widths: int) -> nn.Sequential:
        parts: list[nn.Module] = []
        for narrow, wide in pairwise(widths):
            parts += [nn.Linear(narrow, wide), nn.LeakyReLU(0.2)]
        return nn.Sequential(*parts[:-1])

    generator, critic = net(64, 256, 512, 512, 784), net(784, 512, 512, 256, 1)
    options = {"fused": True} if fused else {"foreach": False}
    first = torch.optim.Adam(generator.parameters(), 2e-4, betas=(0.5, 0.999), **options)
    second = torch.optim.Adam(critic.parameters(), 2e-4, betas=(0.5, 0.999), **options)
    noise, real = torch.randn(128, 64), torch.randn(128, 784)
    make, judge = wrap(generator), wrap(critic)

    def step() -> Tensor:
        fake = make(noise)
        second.zero_grad()
        loss = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
        loss.backward()
        second.step()
        first.zero_grad()
        other = F.softplus(-judge(fake)).mean()
        other.backward()
        first.step()
        return loss.detach()

    return step


def adversarial_fused(wrap: Any = unchanged) -> Step:
    return adversarial(wrap, fused=True)


# -- equations ---------------------------------------------------------------------------------------------------------


def equation(wrap: Any = unchanged, fused: bool = False) -> Step:
    """A network that solves the heat equation: derivatives by autograd, twice, on a few thousand points."""
    parts: list[nn.Module] = [nn.Linear(2, 64), nn.Tanh()]
    for _ in range(4):
        parts += [nn.Linear(64, 64), nn.Tanh()]
    net = nn.Sequential(*parts, nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), 1e-3, **({"fused": True} if fused else {"foreach": False}))
    place, time = torch.rand(4096, 1, requires_grad=True), torch.rand(4096, 1, requires_grad=True)
    function = wrap(net)

    def step() -> Tensor:
        u = function(torch.cat((place, time), 1))
        by_time, by_place = torch.autograd.grad(u.sum(), (time, place), create_graph=True)
        (twice,) = torch.autograd.grad(by_place.sum(), place, create_graph=True)
        loss = (by_time - 0.1 * twice).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def equation_fused(wrap: Any = unchanged) -> Step:
    return equation(wrap, fused=True)


def equation_by_func(wrap: Any = unchanged) -> Step:
    """The same, with the inner derivatives by torch.func within what is compiled."""
    parts: list[nn.Module] = [nn.Linear(2, 64), nn.Tanh()]
    for _ in range(4):
        parts += [nn.Linear(64, 64), nn.Tanh()]
    net = nn.Sequential(*parts, nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), 1e-3, foreach=False)
    place, time = torch.rand(4096, requires_grad=True), torch.rand(4096, requires_grad=True)

    def value(place: Tensor, time: Tensor) -> Tensor:
        return net(torch.stack((place, time))[None]).squeeze()

    by_time = torch.func.vmap(torch.func.grad(value, 1))
    twice = torch.func.vmap(torch.func.grad(torch.func.grad(value, 0), 0))
    function = torch.compile(lambda place, time: (by_time(place, time) - 0.1 * twice(place, time)).pow(2).mean())

    def step() -> Tensor:
        loss = function(place.detach(), time.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


# -- bodies ------------------------------------------------------------------------------------------------------------


def bodies(wrap: Any = unchanged, count: int = 96, at_once: bool = False) -> Step:
    """Forces between bodies, one body at a time."""
    place, mass = torch.randn(count, 3), torch.rand(count)

    def force_on(one: Tensor, places: Tensor, masses: Tensor) -> Tensor:
        apart = places - one
        weight = masses * (apart.pow(2).sum(-1) + 1e-3).pow(-1.5)
        return (weight[:, None] * apart).sum(0)

    def forces(places: Tensor, masses: Tensor) -> Tensor:
        apart = places[None] - places[:, None]
        weight = masses[None] * (apart.pow(2).sum(-1) + 1e-3).pow(-1.5)
        return (weight[..., None] * apart).sum(1)

    function = wrap(forces if at_once else force_on)
    if at_once:
        return lambda: function(place, mass)
    return lambda: torch.stack([function(place[at], place, mass) for at in range(count)])


def bodies_at_once(wrap: Any = unchanged) -> Step:
    return bodies(wrap, at_once=True)


# -- recurrent training ------------------------------------------------------------------------------------------------


def recurrent_training(wrap: Any = unchanged, library: bool = False, length: int = 40) -> Step:
    """A classifier of sequences: a GRU cell called once a position, or the library's GRU."""
    cell, whole, head = nn.GRUCell(64, 128), nn.GRU(64, 128, batch_first=True), nn.Linear(128, 10)
    with torch.no_grad():
        for mine, other in zip(whole.parameters(), cell.parameters(), strict=True):
            mine.copy_(other)
    x, y = torch.randn(64, length, 64), torch.randint(0, 10, (64,))
    parameters = [*(whole if library else cell).parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, 1e-3)

    def forward(x: Tensor) -> Tensor:
        if library:
            return head(whole(x)[1][0])
        state = x.new_zeros(x.shape[0], 128)
        for at in range(length):
            state = cell(x[:, at], state)
        return head(state)

    function = wrap(forward)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(function(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def recurrent_by_library(wrap: Any = unchanged) -> Step:
    return recurrent_training(wrap, library=True)


# -- measures ----------------------------------------------------------------------------------------------------------


def thresholds(wrap: Any = unchanged, count: int = 64, at_once: bool = False) -> Step:
    """Precision at each of many thresholds, asked for one by one."""
    score, label = torch.rand(500_000), torch.rand(500_000) < 0.3

    def one(score: Tensor, label: Tensor, at: float) -> float:
        said = score > at
        return ((said & label).sum() / said.sum().clamp(min=1)).item()

    def every(score: Tensor, label: Tensor) -> Tensor:
        place = (score * count).long().clamp(max=count - 1)
        said = torch.bincount(place, minlength=count).flip(0).cumsum(0).flip(0)
        hit = torch.bincount(place[label], minlength=count).flip(0).cumsum(0).flip(0)
        return hit / said.clamp(min=1)

    function = wrap(every if at_once else one)
    if at_once:
        return lambda: function(score, label)
    return lambda: torch.tensor([function(score, label, at / count) for at in range(count)])


def thresholds_at_once(wrap: Any = unchanged) -> Step:
    return thresholds(wrap, at_once=True)


# -- transport ---------------------------------------------------------------------------------------------------------


def transport(wrap: Any = unchanged, rounds: int = 30) -> Step:
    """Sinkhorn's iterations in logarithms on a large cost."""
    cost = torch.rand(2048, 2048)

    def forward(cost: Tensor) -> Tensor:
        f, g = cost.new_zeros(cost.shape[0]), cost.new_zeros(cost.shape[1])
        for _ in range(rounds):
            f = -0.1 * torch.logsumexp((g[None] - cost) / 0.1 + math.log(1 / 2048), 1)
            g = -0.1 * torch.logsumexp((f[:, None] - cost) / 0.1 + math.log(1 / 2048), 0)
        return f

    function = wrap(forward)
    return lambda: function(cost)


# -- elementwise work --------------------------------------------------------------------------------------------------


def gated_mixer(wrap: Any = unchanged) -> Step:
    """A mixer whose activation, norm and gate are written out, in bfloat16, on long sequences."""
    width = 1024
    weights = [(torch.randn(width, 2 * width) * 0.02).bfloat16() for _ in range(4)]
    gains = [torch.ones(width, dtype=torch.bfloat16) for _ in range(4)]
    x = torch.randn(8, 2048, width, dtype=torch.bfloat16)

    def forward(x: Tensor) -> Tensor:
        for weight, gain in zip(weights, gains, strict=True):
            centred = x - x.mean(-1, keepdim=True)
            h = gain * centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
            value, gate = (h @ weight).chunk(2, -1)
            shaped = 0.5 * gate * (1 + torch.tanh(0.7978845608 * (gate + 0.044715 * gate**3)))
            x = x + value * shaped
        return x

    function = wrap(forward)
    return lambda: function(x)


# -- attention, trained ------------------------------------------------------------------------------------------------


def attention_training(wrap: Any = unchanged, library: bool = False) -> Step:
    """An encoder's attention layers with scores, softmax and dropout written out, trained."""
    width, heads, layers = 768, 12, 4
    qkv = [nn.Linear(width, 3 * width) for _ in range(layers)]
    out = [nn.Linear(width, width) for _ in range(layers)]
    model = nn.ModuleList([*qkv, *out]).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5, fused=True)
    x = torch.randn(8, 1024, width, dtype=torch.bfloat16)

    def forward(x: Tensor) -> Tensor:
        for first, last in zip(qkv, out, strict=True):
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in first(x).chunk(3, -1))
            if library:
                mixed = F.scaled_dot_product_attention(q, k, v)
            else:
                mixed = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), -1) @ v
            x = x + last(mixed.transpose(1, 2).flatten(2))
        return x

    function = wrap(forward)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = function(x).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def attention_training_by_library(wrap: Any = unchanged) -> Step:
    return attention_training(wrap, library=True)


# -- points ------------------------------------------------------------------------------------------------------------


def point_cloud(wrap: Any = unchanged, masked: bool = False) -> Step:
    """Points of a scan, kept by masks of which each changes the shape of what follows, scene after scene."""
    scenes = torch.randn(24, 20_000, 4)
    weight = torch.randn(4, 32)

    def one(points: Tensor) -> Tensor:
        if masked:
            near = points[:, :3].norm(dim=-1) < 2.0
            low = (points[:, 2] > -1.0) & (points[:, 2] < 1.5)
            kept = (near & low)[:, None]
            return torch.where(kept, torch.relu(points @ weight), float("-inf")).max(0).values
        points = points[points[:, :3].norm(dim=-1) < 2.0]
        points = points[points[:, 2] > -1.0]
        points = points[points[:, 2] < 1.5]
        return torch.relu(points @ weight).max(0).values

    function = wrap(one)
    return lambda: torch.stack([function(scene) for scene in scenes])


def point_cloud_masked(wrap: Any = unchanged) -> Step:
    return point_cloud(wrap, masked=True)


# -- batches that are copied -------------------------------------------------------------------------------------------


def copied_batch(wrap: Any = unchanged, pinned: bool = False) -> Step:
    """A batch in pageable memory copied to the device in front of each step; or pinned, and ahead of it."""
    device = torch.get_default_device()
    with torch.device("cpu"):
        raw = [torch.randn(256, 3, 128, 128) for _ in range(2)]
    if pinned and device.type == "cuda":
        raw = [batch.pin_memory() for batch in raw]
    model = nn.Sequential(
        *(part for at in range(4) for part in (nn.Conv2d(3 if at == 0 else 64, 64, 3, 2, 1), nn.ReLU()))
    )
    function = wrap(model.requires_grad_(False))
    return lambda: function(raw[0].to(device, non_blocking=pinned)).mean((2, 3))


def copied_batch_pinned(wrap: Any = unchanged) -> Step:
    return copied_batch(wrap, pinned=True)


# -- many small models -------------------------------------------------------------------------------------------------


def ensemble(wrap: Any = unchanged, members: int = 24, stacked: bool = False) -> Step:
    """An ensemble of small perceptrons, one after another."""
    first = torch.randn(members, 64, 256) * 0.1
    second = torch.randn(members, 256, 256) * 0.05
    third = torch.randn(members, 256, 8) * 0.05
    x = torch.randn(512, 64)

    def one(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return torch.tanh(torch.tanh(x @ a) @ b) @ c

    function = wrap(one)
    if stacked:
        return lambda: function(x[None], first, second, third).mean(0)
    return lambda: torch.stack([function(x, first[at], second[at], third[at]) for at in range(members)]).mean(0)


def ensemble_stacked(wrap: Any = unchanged) -> Step:
    return ensemble(wrap, stacked=True)


# -- precision ---------------------------------------------------------------------------------------------------------


def mixed_precision(wrap: Any = unchanged, cast: bool = False) -> Step:
    """Inference under autocast, which casts each float32 weight in each step; or weights cast once."""
    model = nn.Sequential(*(part for _ in range(10) for part in (nn.Linear(2048, 2048), nn.ReLU())))
    model, x = model.requires_grad_(False), torch.randn(64, 2048)
    if cast:
        model, x = model.to(torch.bfloat16), x.to(torch.bfloat16)
    function = wrap(model)
    kind = torch.get_default_device().type

    def step() -> Tensor:
        with torch.autocast(kind, torch.bfloat16, enabled=not cast, cache_enabled=False):
            return function(x)

    return step


def cast_once(wrap: Any = unchanged) -> Step:
    return mixed_precision(wrap, cast=True)


WAITS, GAPS, LOOPS = ("host_sync",), ("launch_gap", "tiny_kernels"), ("python_loop",)
CELLS = ("recurrence_unfused",)
OPTIMIZER = ("optimizer_unfused",)

LEFT_OUT = (
    Program(
        "q_learning",
        q_learning,
        {"at_once": ((*WAITS, *OPTIMIZER, "parameter_loop"), q_learning_at_once)},
        training=True,
        then_compiled=("at_once",),
    ),
    Program("beam_search", beam_search, {"on_device": (WAITS, beam_search_on_device)}),
    Program(
        "adversarial", adversarial, {"fused": (OPTIMIZER, adversarial_fused)}, training=True, then_compiled=("fused",)
    ),
    Program(
        "equation",
        equation,
        {"fused": (OPTIMIZER, equation_fused), "func": ((*GAPS, "memory_bound_chain"), equation_by_func)},
        training=True,
    ),
    Program("bodies", bodies, {"at_once": (LOOPS, bodies_at_once)}, capturable=True),
    Program(
        "recurrent_training",
        recurrent_training,
        {"library": (CELLS, recurrent_by_library)},
        training=True,
        then_compiled=("library",),
    ),
    Program("thresholds", thresholds, {"at_once": (WAITS, thresholds_at_once)}),
    Program("transport", transport, capturable=True),
    Program("gated_mixer", gated_mixer, capturable=True, tolerance=5e-2),
    Program(
        "attention_training",
        attention_training,
        {"library": (("attention_unfused",), attention_training_by_library)},
        then_compiled=("library",),
        training=True,
    ),
    Program("point_cloud", point_cloud, {"masked": (WAITS, point_cloud_masked)}),
    Program(
        "copied_batch",
        copied_batch,
        {"pinned": (("pageable_copy", "transfer_exposed"), copied_batch_pinned)},
        then_compiled=("pinned",),
    ),
    Program("ensemble", ensemble, {"stacked": (("small_products_apart",), ensemble_stacked)}, capturable=True),
    Program(
        "mixed_precision",
        mixed_precision,
        {"cast_once": (("weight_cast",), cast_once)},
        tolerance=5e-2,
        then_compiled=("cast_once",),
    ),
)
