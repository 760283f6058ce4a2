"""Labelled programs of engines, of throughput on full batches, of hosts that prepare, and of compiled training.

They were labelled from their sources before anything looked at them. Labels: `labels.py`; `labelled.py score` counts
them apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labelled_sixth_engines import ENGINES, HALF, WAITS, Layer
from programs.labelled_sixth_hosts import HOSTS
from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

PLAIN = "AdamW was not made to be captured"


def compiled(layers: Sequence[nn.Module]) -> None:
    """Compile equal layers one by one, as their users do: one graph serves all. A CPU would take long for it."""
    if torch.get_default_device().type == "cuda":
        for layer in layers:
            layer.compile()


# -- throughput --------------------------------------------------------------------------------------------------------


def preferences_fitted(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pairs: int = 8, width: int = 1024
) -> Built:
    """Preferences: answers are liked or not, and logits are made of long questions that count for nothing."""
    length, asked, words, strength = 640, 512, 32000, 0.1
    texts = torch.randint(0, words, (2 * pairs, length))
    before = torch.full((2 * pairs,), -1300.0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
            self.layers = nn.Sequential(*(Layer(width, causal=True) for _ in range(3)))

        def forward(self, texts: Tensor) -> Tensor:
            return self.layers(self.table(texts))

    def likelihood(hidden: Tensor, texts: Tensor) -> Tensor:
        if fixed:
            hidden, texts = hidden[:, asked - 1 :], texts[:, asked - 1 :]
        logits = model.head(hidden[:, :-1]).float()  # same: linear_cross_entropy  # may: linear_cross_entropy
        chances = logits.log_softmax(-1)  # cause: linear_cross_entropy, main  # may: linear_cross_entropy
        each = chances.gather(-1, texts[:, 1:, None])[..., 0]  # same: linear_cross_entropy  # may: linear_cross_entropy
        return each[:, asked - length :].sum(1)

    model = Model().to(dtype)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-4, foreach=True)
    function = wrap(model)

    def step() -> Tensor:
        optimizer.zero_grad()
        change = likelihood(function(texts), texts) - before  # same: linear_cross_entropy  # may: linear_cross_entropy
        liked, other = change.view(2, pairs)
        loss = -F.logsigmoid(strength * (liked - other)).mean()
        loss.backward()  # same: linear_cross_entropy  # may: linear_cross_entropy
        optimizer.step()  # near: optimizer_unfused
        return loss.detach()

    return Built(step, parameters[1:])


def images_guided(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 8, width: int = 1024
) -> Built:
    """Guided diffusion: weights stay in float32, as the file had them, while noise is taken away."""
    patches, rounds, guidance = 256, 3, 4.0
    weights = dtype if fixed else torch.float32

    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.leave = nn.Linear(16, width), nn.Linear(width, 16)
            self.kinds, self.time = nn.Embedding(11, width), nn.Linear(64, width)
            self.layers = nn.Sequential(*(Layer(width) for _ in range(5)))

        def forward(self, x: Tensor, time: Tensor, kind: Tensor) -> Tensor:
            x = self.enter(x) + (self.kinds(kind) + self.time(time))[:, None]
            return self.leave(self.layers(x))  # cause: float32_inference, main

    denoise = wrap(Denoiser().to(weights))
    noise, kind = torch.randn(pictures, patches, 16), torch.arange(pictures) % 10
    both, waves = torch.cat((kind, torch.full_like(kind, 10))), torch.arange(1, 33) / 8
    levels = [1.0, 0.7, 0.3, 0.0]
    times = [torch.cat(((level * waves).sin(), (level * waves).cos())).expand(2 * pictures, -1) for level in levels]

    def sample() -> Tensor:
        x = noise
        for at in range(rounds):  # near: python_loop  # near: recurrence_unfused  # same: float32_inference
            given = x.repeat(2, 1, 1).to(weights), times[at].to(weights), both
            wanted, free = denoise(*given).float().chunk(2)  # same: float32_inference
            velocity = free + guidance * (wanted - free)
            x = x + (levels[at + 1] - levels[at]) * velocity
        return x

    return Built(sample)


def triples_embedded(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, things: int = 3_000_000, triples: int = 8192
) -> Built:
    """Knowledge graphs: a few thousand of some million things are seen a step, and all of them get a gradient."""
    width, relations, others = 128, 200, 64
    head, tail = torch.randint(0, things, (2, triples))
    relation, wrong = torch.randint(0, relations, (triples,)), torch.randint(0, things, (others,))

    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.things = nn.Embedding(things, width, sparse=fixed)  # same: embedding_gradient_dense
            self.relations = nn.Embedding(relations, width)

        def forward(self, head: Tensor, relation: Tensor, tail: Tensor, wrong: Tensor) -> Tensor:
            known = self.relations(relation)  # near: embedding_gradient_dense
            asked = self.things(head) * known  # cause: embedding_gradient_dense, main
            right = (asked * self.things(tail)).sum(-1)  # same: embedding_gradient_dense
            against = asked @ self.things(wrong).T  # same: embedding_gradient_dense
            return F.softplus(-right).mean() + F.softplus(against).mean()

    graph = Graph()
    parameters, function = list(graph.parameters()), wrap(graph)
    optimizer = torch.optim.SGD(parameters, lr=0.5)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = function(head, relation, tail, wrong)  # same: embedding_gradient_dense
        loss.backward()  # same: embedding_gradient_dense
        optimizer.step()  # same: embedding_gradient_dense  # may: host_sync
        return loss.detach()

    return Built(step, parameters)


# -- compiled ----------------------------------------------------------------------------------------------------------


def rates_by_depth(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 32, width: int = 512
) -> Built:
    """Fine-tuning in compiled layers: the deeper, the quicker, for which each tensor got a group of the optimizer."""
    depth, patches, rate, decay = 12, 196, 1e-4, 0.8

    class Tower(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.leave = nn.Linear(768, width), nn.Linear(width, 100)
            self.layers = nn.Sequential(*(Layer(width) for _ in range(depth)))

        def forward(self, x: Tensor) -> Tensor:
            return self.leave(self.layers(self.enter(x)).mean(1))

    def level(name: str) -> int:
        place = name.split(".")
        return int(place[1]) + 1 if place[0] == "layers" else (0 if place[0] == "enter" else depth + 1)

    model = Tower().to(dtype)
    compiled(list(model.layers))
    groups = dict[Any, dict[str, Any]]()
    for name, parameter in model.named_parameters():
        own = level(name), 0.05 if parameter.ndim > 1 else 0.0
        group = {"params": [], "lr": rate * decay ** (depth + 1 - own[0]), "weight_decay": own[1]}
        groups.setdefault(own if fixed else name, group)["params"].append(parameter)
    optimizer = torch.optim.AdamW(list(groups.values()), fused=True if fixed else None)
    x, kinds = torch.randn(pictures, patches, 768, dtype=dtype), torch.arange(pictures) % 100
    function = wrap(model)

    def step() -> Tensor:
        loss = F.cross_entropy(function(x).float(), kinds)  # near: python_loop  # near: linear_cross_entropy
        optimizer.zero_grad()  # near: gradient_zeroing
        loss.backward()
        optimizer.step()  # cause: optimizer_unfused, main  # may: parameter_loop
        return loss.detach()

    return Built(step, list(model.parameters()))


def ranges_calibrated(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 32, width: int = 768
) -> Built:
    """Calibration for 8 bits: between compiled layers the least and largest number are kept, as Python's numbers."""
    depth, length = 16, 256

    class Observer:
        def __init__(self) -> None:
            self.low: Any = torch.tensor(math.inf) if fixed else math.inf
            self.high: Any = torch.tensor(-math.inf) if fixed else -math.inf

        def seen(self, x: Tensor) -> Tensor:
            low, high = x.detach().float().aminmax()
            if fixed:
                self.low, self.high = torch.minimum(self.low, low), torch.maximum(self.high, high)
            else:
                self.low = min(self.low, low.item())  # cause: host_sync, main
                self.high = max(self.high, high.item())  # same: host_sync
            return x

    class Observed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
            self.observers = [Observer() for _ in range(depth)]

        def forward(self, x: Tensor) -> Tensor:
            for layer, observer in zip(self.layers, self.observers, strict=True):  # same: host_sync  # may: python_loop
                x = observer.seen(layer(x))  # same: host_sync
            return x

    model, x = Observed().to(dtype), torch.randn(texts, length, width, dtype=dtype)
    compiled(list(model.layers))
    function = wrap(model)

    def step() -> Tensor:
        said = function(x)  # same: host_sync
        ranges = [end for each in model.observers for end in (each.low, each.high)]
        return torch.stack(ranges) if fixed else torch.tensor(ranges, device=said.device)  # may: pageable_copy

    return Built(step)


# -- nothing to be found -----------------------------------------------------------------------------------------------


def parts_accumulated(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 16, width: int = 1024
) -> Built:
    """A wide model whose batch goes through in four parts: each of them fills the device, and nothing is read."""
    parts, length = 4, 512
    model = nn.Sequential(*(Layer(width, causal=True) for _ in range(4))).to(dtype)
    parameters, function = list(model.parameters()), wrap(model)
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)
    x, y = torch.randn(2, parts, texts, length, width, dtype=dtype)

    def step() -> Tensor:
        optimizer.zero_grad()  # near: gradient_zeroing
        total = torch.zeros((), device=x.device)
        for part, wanted in zip(x, y, strict=True):  # near: python_loop  # near: recurrence_unfused
            loss = F.mse_loss(function(part), wanted) / parts
            loss.backward()
            total += loss.detach()  # near: host_sync
        nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)  # near: parameter_loop
        optimizer.step()  # near: optimizer_unfused
        return total

    return Built(step, parameters)


def images_unmasked(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 48, width: int = 1024
) -> Built:
    """Pictures of words: each round, those that a wide model is surest of stay, as many as a schedule says."""
    places, words, rounds = 256, 1024, 4

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.out = nn.Embedding(words + 1, width), nn.Linear(width, words)
            self.layers = nn.Sequential(*(Layer(width) for _ in range(5)))
            nn.init.normal_(self.out.weight, std=0.2)

        def forward(self, text: Tensor) -> Tensor:
            return self.out(self.layers(self.table(text) + positions)).float()

    positions, empty = torch.randn(places, width, dtype=dtype), torch.full((pictures, places), words)
    empty[:, :2] = torch.randint(0, words, (pictures, 2))
    function = wrap(Model().to(dtype))

    def picture() -> Tensor:
        text = empty
        for at in range(rounds):  # near: python_loop  # near: recurrence_unfused
            chance, word = function(text).softmax(-1).max(-1)  # near: host_sync
            open_ = text == words
            keep = max(1, round(places * (1 - math.cos(math.pi / 2 * (at + 1) / rounds))))
            least = torch.where(open_, chance, 2.0).topk(keep, 1).values[:, -1:]
            text = torch.where(open_ & (chance >= least), word, text)  # near: host_sync
        return text

    return Built(picture)


def beams_propagated(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, beams: int = 24, side: int = 1024
) -> Built:
    """Optics: light goes from one screen of turbulent air to the next, by transforms of large fields."""
    screens, spread = 10, 0.02
    phases = torch.randn(screens, side, side).cumsum(-1).mul(0.05)
    air, waves = torch.polar(torch.ones_like(phases), phases), torch.fft.fftfreq(side)
    path = (waves[:, None].square() + waves.square()) * (math.pi * spread * side)
    transfer = torch.polar(torch.ones_like(path), -path)
    begin = torch.polar(torch.rand(beams, side, side), torch.zeros(beams, side, side))

    def propagated(field: Tensor) -> Tensor:
        for screen in air:  # near: python_loop  # near: recurrence_unfused
            field = torch.fft.ifft2(torch.fft.fft2(field * screen) * transfer)  # near: float32_inference
        return field.abs().square()

    function = wrap(propagated)
    return Built(lambda: function(begin)[:, ::8, ::8])


def passages_reranked(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, passages: int = 32, width: int = 768
) -> Built:
    """Reranking: passages were put together by length when they were read, and each length fills the device."""
    words, layers, lengths = 30000, 6, (512, 256, 192, 128)
    texts = [torch.randint(0, words, (passages * 512 // length, length)) for length in lengths]

    class Scorer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.score = nn.Embedding(words, width), nn.Linear(width, 1)
            self.layers = nn.Sequential(*(Layer(width) for _ in range(layers)))

        def forward(self, text: Tensor) -> Tensor:
            return self.score(self.layers(self.table(text))[:, 0]).float()[:, 0]

    function = wrap(Scorer().to(dtype))

    def ranked() -> Tensor:
        scores = [function(text) for text in texts]  # near: python_loop
        return torch.cat(scores).sort(descending=True).values  # near: host_sync

    return Built(ranked)


THROUGHPUT = (
    Labelled(preferences_fitted, "sixth", {"pairs": 1, "width": 8}, training=True, tolerance=5e-2),
    Labelled(images_guided, "sixth", {"pictures": 1, "width": 16}, tolerance=5e-2),
    Labelled(triples_embedded, "sixth", {"things": 90, "triples": 6}, training=True, tolerance=5e-2),
)
COMPILED = (
    Labelled(rates_by_depth, "sixth", {"pictures": 2, "width": 16}, Expected(PLAIN), training=True, tolerance=5e-2),
    Labelled(ranges_calibrated, "sixth", {"texts": 1, "width": 16}, Expected(WAITS), tolerance=5e-2),
)
NOTHING = (
    Labelled(parts_accumulated, "sixth", {"texts": 1, "width": 16}, Expected(PLAIN), training=True, tolerance=5e-2),
    Labelled(images_unmasked, "sixth", {"pictures": 1, "width": 16}),
    Labelled(beams_propagated, "sixth", {"beams": 2, "side": 16}, tolerance=5e-2),
    Labelled(passages_reranked, "sixth", {"passages": 1, "width": 16}, tolerance=5e-2),
)
SIXTH = (*ENGINES, *HOSTS, *THROUGHPUT, *COMPILED, *NOTHING)
