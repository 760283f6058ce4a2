"""Waits for the device, and for the host, in routers, samplers and trainers: of `labelled_seventh.py`.

Labels: `labels.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labelled_seventh_parts import COPIES, HALF, WAITS, Mlp, SelfAttention, tower
from programs.labels import Built, Expected, Labelled
from programs.program import unchanged


def depths_routed(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = HALF,
    texts: int = 20,
    width: int = 1024,
    length: int = 512,
) -> Built:
    """Mixture of depths: all words attend, and an eighth of each text, rated highest, goes through the rest."""
    layers, keep = 12, length // 8

    class Routed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.mlp = SelfAttention(width, causal=True).to(dtype), Mlp(width).to(dtype)
            self.rate = nn.Parameter(torch.randn(width) / width**0.5)

        def rest(self, x: Tensor, rating: Tensor) -> Tensor:
            return x + rating.sigmoid()[..., None].to(x.dtype) * self.mlp(x)

        def by_place(self, x: Tensor, rating: Tensor) -> Tensor:
            rating, place = rating.topk(keep, 1)
            place = place[..., None].expand(-1, -1, width)
            return x.scatter(1, place, self.rest(x.gather(1, place), rating))  # near: host_sync

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.attention(x)
            rating = x.float() @ self.rate
            if fixed:
                return self.by_place(x, rating)
            chosen = rating >= rating.topk(keep, 1).values[:, -1:]
            x[chosen] = self.rest(x[chosen], rating[chosen])  # cause: host_sync, main
            return x

    function = wrap(nn.Sequential(*(Routed() for _ in range(layers))))
    x = torch.randn(texts, length, width, dtype=dtype)
    return Built(lambda: function(x).float().mean(1))  # same: host_sync


def voxels_made(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = HALF,
    clouds: int = 16,
    points: int = 24000,
    side: int = 256,
) -> Built:
    """Laser scans: what falls into one pillar is averaged, for which the pillars of each scan are looked for."""
    wide = 32
    place = (torch.randn(clouds, points, 2) * side / 8 + side / 2).clamp(0, side - 1).long()
    keys, sights = place[..., 0] * side + place[..., 1], torch.randn(clouds, points, 9, dtype=dtype)

    def summed(said: Tensor, keys: Tensor, many: int) -> Tensor:
        total = torch.zeros(many, wide + 1, device=said.device)
        return total.index_add_(0, keys, F.pad(said.float(), (0, 1), value=1.0))

    class Pillars(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read = nn.Sequential(nn.Linear(9, wide), nn.ReLU())

        def one(self, said: Tensor, keys: Tensor) -> Tensor:
            pillars, back = torch.unique(keys, return_inverse=True)  # cause: host_sync, main
            total = summed(said, back, len(pillars))
            canvas = torch.zeros(side * side, wide, device=said.device)
            canvas[pillars] = total[:, :-1] / total[:, -1:]
            return canvas

        def forward(self, sights: Tensor, keys: Tensor) -> Tensor:
            said = self.read(sights)
            if fixed:
                places = keys + side * side * torch.arange(clouds, device=keys.device)[:, None]
                total = summed(said.flatten(0, 1), places.flatten(), clouds * side * side)
                seen = total[:, :-1] / total[:, -1:].clamp(min=1)
            else:
                each = zip(said, keys, strict=True)
                seen = torch.cat([self.one(*pair) for pair in each])  # same: host_sync  # may: python_loop
            return seen.to(dtype).view(clouds, side, side, wide).permute(0, 3, 1, 2)  # near: host_sync

    pillars = wrap(Pillars().to(dtype))
    back = nn.Sequential(nn.Conv2d(wide, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU())
    detect = nn.Sequential(back, nn.Conv2d(64, 7, 1)).to(dtype)
    return Built(lambda: detect(pillars(sights, keys)).float())  # same: host_sync  # may: python_loop


def echoes_fitted(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, voxels: int = 65536, rounds: int = 16
) -> Built:
    """Relaxation maps: two decays a voxel by Levenberg and Marquardt; a round that makes things worse is undone."""
    times = torch.linspace(0.05, 2.0, 32)
    truth = torch.rand(voxels, 4) + torch.tensor([1.0, 0.5, 0.5, 3.0])
    eye = torch.eye(4)

    def curve(guess: Tensor) -> tuple[Tensor, Tensor]:
        big, slow, small, fast = guess[..., None].unbind(1)
        one, two = (-slow * times).exp(), (-fast * times).exp()
        slopes = torch.stack((one, -times * big * one, two, -times * small * two), -1)
        return big * one + small * two, slopes

    signal = curve(truth)[0] + 0.01 * torch.randn(voxels, len(times))
    start = torch.tensor([1.2, 0.7, 1.0, 3.6]).expand(voxels, -1)

    def moved(guess: Tensor, damping: Any) -> Tensor:
        said, slopes = curve(guess)
        normal = slopes.mT @ slopes
        pull = slopes.mT @ (signal - said)[..., None]
        change = torch.linalg.solve_ex(normal + damping * eye, pull).result
        return (guess + change[..., 0]).clamp(0.01, 10)

    def cost_of(guess: Tensor) -> Tensor:
        return (curve(guess)[0] - signal).square().sum()

    propose = wrap(moved)

    def on_host() -> Tensor:
        guess, damping, cost = start, 1.0, cost_of(start).item()  # same: host_sync
        for _ in range(rounds):  # may: python_loop  # may: recurrence_unfused
            tried = propose(guess, damping)
            now = cost_of(tried).item()  # cause: host_sync, main
            if now < cost:
                guess, cost, damping = tried, now, damping / 4
            else:
                damping = damping * 2
        return guess

    def on_device() -> Tensor:
        guess, damping, cost = start, torch.ones_like(times[0]), cost_of(start)
        for _ in range(rounds):  # may: python_loop  # may: recurrence_unfused
            tried = propose(guess, damping)
            now = cost_of(tried)  # near: host_sync
            better = now < cost
            guess, cost = torch.where(better, tried, guess), torch.where(better, now, cost)
            damping = torch.where(better, damping / 4, damping * 2)
        return guess

    return Built(on_device if fixed else on_host)


def forgeries_judged(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 512, wide: int = 96
) -> Built:
    """Adversarial training: how much the judge's pictures are disturbed follows from how sure it was of real ones."""
    batches, latent, goal, speed = 4, 64, 0.6, 0.02

    def down(enter: int, leave: int) -> list[nn.Module]:
        return [nn.Conv2d(enter, leave, 4, 2, 1), nn.LeakyReLU(0.2)]

    def up(enter: int, leave: int) -> list[nn.Module]:
        return [nn.ConvTranspose2d(enter, leave, 4, 2, 1), nn.ReLU()]

    begin = [nn.Linear(latent, 4 * wide * 16), nn.Unflatten(1, (4 * wide, 4, 4)), nn.ReLU()]
    end = [nn.ConvTranspose2d(wide, 3, 4, 2, 1), nn.Tanh()]
    forger = nn.Sequential(*begin, *up(4 * wide, 2 * wide), *up(2 * wide, wide), *end).to(dtype)
    layers = [*down(3, wide), *down(wide, 2 * wide), *down(2 * wide, 4 * wide)]
    judge = nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * wide * 16, 1)).to(dtype)
    makers, critics = list(forger.parameters()), list(judge.parameters())
    make_optimizer = torch.optim.Adam(makers, 2e-4, (0.5, 0.99), fused=True)
    judge_optimizer = torch.optim.Adam(critics, 2e-4, (0.5, 0.99), fused=True)
    real = torch.rand(batches, pictures, 3, 32, 32, dtype=dtype)
    noise = torch.randn(batches, pictures, latent, dtype=dtype)
    shifts, forge, judged = torch.randn(batches, pictures, 3, 1, 1, dtype=dtype), wrap(forger), wrap(judge)

    @dataclass
    class Disturbance:
        strength: Any
        turn: int = 0

        def follow(self, sure: Tensor) -> None:
            if fixed:
                self.strength = (self.strength + speed * (sure - goal).sign()).clamp(0, 1)
            else:
                step = speed if sure.item() > goal else -speed  # cause: host_sync, main
                self.strength = min(1.0, max(0.0, self.strength + step))

        def __call__(self, picture: Tensor) -> Tensor:
            shifted = picture + self.strength * shifts[self.turn]
            return shifted.flip(-1) * (1 - 0.5 * self.strength) + 0.5 * self.strength * shifted

    disturb = Disturbance(torch.tensor(0.5, dtype=dtype) if fixed else 0.5)

    def step() -> Tensor:
        at = disturb.turn = (disturb.turn + 1) % batches
        made = forge(noise[at])
        judge_optimizer.zero_grad()  # near: gradient_zeroing
        right, wrong = judged(disturb(real[at])), judged(disturb(made.detach()))
        judge_loss = F.softplus(-right).mean() + F.softplus(wrong).mean()
        judge_loss.backward()
        judge_optimizer.step()  # near: optimizer_unfused
        disturb.follow((right > 0).to(dtype).mean())  # same: host_sync
        make_optimizer.zero_grad()  # near: gradient_zeroing
        make_loss = F.softplus(-judged(disturb(made))).mean()
        make_loss.backward()
        make_optimizer.step()  # near: optimizer_unfused
        losses = judge_loss.detach().float(), make_loss.detach().float()
        if fixed:
            return torch.stack(losses)
        logged = [loss.item() for loss in losses]  # same: host_sync
        return torch.tensor(logged)

    return Built(step, [*makers, *critics])


def answers_rewarded(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = HALF,
    pairs: int = 16,
    width: int = 1024,
    length: int = 256,
) -> Built:
    """A reward model: of each pair of answers, where they part and where they end is looked for in their words."""
    words, pad, asked = 32000, 0, length // 4
    texts = torch.randint(1, words, (2, pairs, length))
    texts[1, :, :asked] = texts[0, :, :asked]
    ends = torch.randint(asked + 4, length + 1, (2, pairs, 1))
    texts[torch.arange(length) >= ends] = pad

    class Rewards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.layers = nn.Embedding(words, width), tower(width, 4, causal=True)
            self.reward = nn.Linear(width, 1, bias=False)

        def forward(self, texts: Tensor) -> Tensor:
            return self.reward(self.layers(self.table(texts)))[..., 0].float()

    def end_of(text: Tensor) -> int:
        found = (text == pad).nonzero()  # same: host_sync
        return int(found[0].item()) if len(found) else length  # same: host_sync

    def loss_of(liked: Tensor, other: Tensor, texts: Tensor) -> Tensor:
        begin = int((texts[0] != texts[1]).nonzero()[0].item())  # cause: host_sync, main
        end = max(end_of(texts[0]), end_of(texts[1]))  # same: host_sync
        return -F.logsigmoid(liked[begin:end] - other[begin:end]).mean()

    def loss_of_all(liked: Tensor, other: Tensor) -> Tensor:
        place = torch.arange(length, device=texts.device)
        begin = (texts[0] != texts[1]).int().argmax(1)
        end = torch.where(texts != pad, place + 1, 0).amax((0, 2))
        counted = (place >= begin[:, None]) & (place < end[:, None])
        each = -F.logsigmoid(liked - other).where(counted, 0.0)
        return (each.sum(1) / counted.sum(1)).mean()  # near: host_sync

    model = Rewards().to(dtype)
    parameters, function = list(model.parameters()), wrap(model)
    optimizer = torch.optim.SGD(parameters, lr=1e-3, foreach=True)

    def step() -> Tensor:
        liked, other = function(texts.flatten(0, 1)).view(2, pairs, length)
        if fixed:
            loss = loss_of_all(liked, other)
        else:
            each = zip(liked, other, texts.unbind(1), strict=True)
            loss = torch.stack([loss_of(*one) for one in each]).mean()  # same: host_sync  # may: python_loop
        optimizer.zero_grad()
        loss.backward()  # may: python_loop
        optimizer.step()
        return loss.detach()

    return Built(step, parameters[1:])


def layers_streamed(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, words: int = 8192, width: int = 1024
) -> Built:
    """A model larger than the device: weights lie in the host's memory and come layer by layer."""
    layers, device = 8, torch.get_default_device()

    def kept(rows: int, columns: int) -> Tensor:
        weight = (torch.randn(rows, columns, dtype=dtype) / columns**0.5).cpu()
        return weight.pin_memory() if fixed and device.type == "cuda" else weight

    class Offloaded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width, dtype=dtype)
            self.kept = {"up": kept(4 * width, width), "down": kept(width, 4 * width)}

        def fetched(self, name: str) -> Tensor:
            kept = self.kept[name]
            return kept.to(device, non_blocking=fixed)  # cause: pageable_copy, main  # cause: transfer_exposed, stays

        def forward(self, x: Tensor) -> Tensor:
            y = F.gelu(F.linear(self.norm(x), self.fetched("up")))  # same: pageable_copy  # same: transfer_exposed
            return x + F.linear(y, self.fetched("down"))  # same: pageable_copy  # same: transfer_exposed

    function, x = wrap(nn.Sequential(*(Offloaded() for _ in range(layers)))), torch.randn(words, width, dtype=dtype)
    return Built(lambda: function(x)[::8].float())  # same: pageable_copy  # same: transfer_exposed


def replays_drawn(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = HALF,
    batch: int = 2048,
    width: int = 1024,
    room: int = 16384,
) -> Built:
    """Reinforcement: what surprised is replayed more often, drawn through a tree of sums that Python keeps."""
    actions, turns, discount = 16, 4, 0.97
    seen, after = torch.randn(2, room, 64, dtype=dtype)
    acted, reward = torch.randint(0, actions, (room, 1)), torch.randn(room)
    draws = (torch.arange(batch) + torch.rand(turns, batch)).double() / batch
    listed, device = draws.tolist(), seen.device

    class Tree:
        def __init__(self) -> None:
            self.sums = [0.0] * room + [1.0] * room
            for at in range(room - 1, 0, -1):
                self.sums[at] = self.sums[2 * at] + self.sums[2 * at + 1]

        def put(self, place: int, value: float) -> None:
            at = place + room
            self.sums[at] = value
            while at > 1:
                at //= 2
                self.sums[at] = self.sums[2 * at] + self.sums[2 * at + 1]

        def find(self, mass: float) -> int:
            at = 1
            while at < room:
                at *= 2
                if mass >= self.sums[at]:
                    mass -= self.sums[at]
                    at += 1
            return at - room

    layers = [nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, actions)]
    network = nn.Sequential(*layers).to(dtype)
    parameters, function = list(network.parameters()), wrap(network)
    optimizer = torch.optim.SGD(parameters, lr=1e-3, foreach=True)
    tree, worth, turn = Tree(), torch.ones(room, dtype=torch.float64), [0]

    def drawn(at: int) -> Tensor:
        if fixed:
            sums = worth.cumsum(0)
            return torch.searchsorted(sums, draws[at] * sums[-1], right=True)
        places = [tree.find(mass * tree.sums[1]) for mass in listed[at]]  # cause: step_begins_late, main
        return torch.tensor(places, device=device)  # same: step_begins_late  # may: pageable_copy

    def surprised(places: Tensor, errors: Tensor) -> None:
        if fixed:
            worth[places] = errors.double() + 0.01  # near: host_sync
            return
        pairs = zip(places.tolist(), errors.tolist(), strict=True)  # cause: host_sync
        for place, error in pairs:  # same: step_begins_late
            tree.put(place, error + 0.01)  # same: step_begins_late

    def step() -> Tensor:
        at, turn[0] = turn[0], (turn[0] + 1) % turns
        places = drawn(at)  # same: step_begins_late  # may: pageable_copy
        with torch.no_grad():
            wanted = reward[places] + discount * function(after[places]).float().amax(1)
        error = function(seen[places]).float().gather(1, acted[places])[:, 0] - wanted
        loss = F.smooth_l1_loss(error, torch.zeros_like(error))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        surprised(places, error.detach().abs())  # same: host_sync  # same: step_begins_late
        return loss.detach()

    return Built(step, parameters)


WAITING = (
    Labelled(depths_routed, "seventh", {"texts": 2, "width": 16, "length": 32}, Expected(WAITS), tolerance=5e-2),
    Labelled(voxels_made, "seventh", {"clouds": 2, "points": 90, "side": 16}, Expected(WAITS), tolerance=5e-2),
    Labelled(echoes_fitted, "seventh", {"voxels": 9, "rounds": 8}, Expected(WAITS)),
    Labelled(forgeries_judged, "seventh", {"pictures": 2, "wide": 4}, Expected(WAITS), training=True, tolerance=5e-2),
    Labelled(
        answers_rewarded,
        "seventh",
        {"pairs": 3, "width": 16, "length": 24},
        Expected(WAITS),
        training=True,
        tolerance=5e-2,
    ),
    Labelled(layers_streamed, "seventh", {"words": 16, "width": 16}, Expected(COPIES)),
    Labelled(
        replays_drawn, "seventh", {"batch": 8, "width": 16, "room": 64}, Expected(WAITS), training=True, tolerance=5e-2
    ),
)
