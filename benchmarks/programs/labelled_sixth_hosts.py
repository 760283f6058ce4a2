"""Loops and waits of preparation, decoding and simulation: of `labelled_sixth.py`.

Labels: `labels.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labelled_sixth_engines import COPIES, HALF, WAITS, Layer
from programs.labels import Built, Expected, Labelled
from programs.program import unchanged


def frames_stabilised(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, frames: int = 96, side: int = 256
) -> Built:
    """Shaky video: each frame is turned and shifted against its own motion, then objects are looked for in all."""
    clip, motion = torch.rand(frames, 3, side, side), 0.05 * torch.randn(frames, 3).cumsum(0)

    class Stabiliser:
        def __init__(self, radius: int = 4) -> None:
            self.radius = radius

        def smoothed(self, path: Tensor) -> Tensor:
            padded = F.pad(path.T[None], (self.radius, self.radius), mode="replicate")
            return F.avg_pool1d(padded, 2 * self.radius + 1, 1)[0].T

        def warped(self, pictures: Tensor, change: Tensor) -> Tensor:
            turn, right, down = change.unbind(-1)
            top = torch.stack((turn.cos(), -turn.sin(), right), -1)
            theta = torch.stack((top, torch.stack((turn.sin(), turn.cos(), down), -1)), -2)
            grid = F.affine_grid(theta, list(pictures.shape), align_corners=False)
            return F.grid_sample(pictures, grid, padding_mode="border", align_corners=False)  # same: python_loop

        def __call__(self, clip: Tensor, path: Tensor) -> Tensor:
            change = self.smoothed(path) - path
            if fixed:
                return self.warped(clip, change)
            steady = []
            for frame, how in zip(clip.split(1), change.split(1), strict=True):  # cause: python_loop, main
                steady.append(self.warped(frame, how))
            return torch.cat(steady)

    layers = [nn.Conv2d(3, 32, 4, 4), nn.ReLU(), nn.Conv2d(32, 128, 3, padding=1), nn.ReLU(), nn.Conv2d(128, 6, 1)]
    detect, steadied = wrap(nn.Sequential(*layers).to(dtype)), Stabiliser()

    def step() -> Tensor:
        steady = steadied(clip, motion)  # same: python_loop
        return detect(steady.to(dtype)).float().amax((2, 3))

    return Built(step)


def speech_collapsed(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, talks: int = 48, frames: int = 400
) -> Built:
    """Speech to letters: the best letter of each frame is taken, then repeats and blanks go, a recording at a time."""
    width, letters, blank = 512, 64, 0

    class Listener(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter = nn.Conv1d(80, width, 3, padding=1)
            self.layers = nn.Sequential(*(Layer(width) for _ in range(4)))
            self.out = nn.Linear(width, letters)

        def forward(self, mel: Tensor) -> Tensor:
            return self.out(self.layers(F.gelu(self.enter(mel)).transpose(1, 2)))

    class Greedy:
        def collapsed(self, path: Tensor) -> Tensor:
            letters = torch.unique_consecutive(path)  # same: host_sync
            return letters[letters != blank]  # same: host_sync

        def at_once(self, paths: Tensor) -> Tensor:
            keep = (paths != F.pad(paths[:, :-1], (1, 0), value=blank)) & (paths != blank)
            place = torch.where(keep, keep.cumsum(1) - 1, frames)
            text = torch.full((talks, frames + 1), blank, device=paths.device)
            return text.scatter_(1, place, paths)[:, :frames]  # near: host_sync

        def __call__(self, logits: Tensor) -> Tensor:
            paths = logits.argmax(-1)
            if fixed:
                return self.at_once(paths)
            texts = [self.collapsed(path) for path in paths]  # cause: host_sync, main  # may: python_loop
            return torch.stack(
                [F.pad(text, (0, frames - len(text)), value=blank) for text in texts]
            )  # may: python_loop

    listen, greedy = wrap(Listener().to(dtype)), Greedy()
    mel = torch.randn(talks, 80, frames, dtype=dtype)
    return Built(lambda: greedy(listen(mel)))  # same: host_sync  # may: python_loop


def columns_binned(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 16384, columns: int = 240
) -> Built:
    """Tables: each column's numbers fall between its own quantiles, which have a learned vector each."""
    bins, width, hidden = 32, 16, 1024

    class Quantiles(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("edges", torch.randn(columns, bins).sort(1).values)
            self.vectors = nn.Parameter(torch.randn(columns, bins + 1, width))

        def one(self, at: int, column: Tensor) -> Tensor:
            return F.embedding(torch.bucketize(column, self.edges[at]), self.vectors[at])  # same: python_loop

        def forward(self, x: Tensor) -> Tensor:
            if fixed:
                place = torch.searchsorted(self.edges, x) + begins
                return F.embedding(place.T, self.vectors.flatten(0, 1)).flatten(1)
            return torch.cat([self.one(at, column) for at, column in enumerate(x)], 1)  # cause: python_loop, main

    begins = (bins + 1) * torch.arange(columns)[:, None]
    deep = nn.Sequential(nn.Linear(columns * width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
    model, x = nn.Sequential(Quantiles(), deep, nn.Linear(hidden, 2)), torch.randn(columns, rows)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    function = wrap(model)
    return Built(lambda: function(x).float())  # same: python_loop


def tiles_augmented(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 48, side: int = 192
) -> Built:
    """Satellite pictures: flips, turns and brightness are applied by the training loop, and floats are sent."""
    device, batches = torch.get_default_device(), 4
    chance, classes = random.Random(7), 12
    every = torch.randint(0, 256, (batches, pictures, 3, side, side), dtype=torch.uint8).cpu()
    every = every.pin_memory() if device.type == "cuda" else every
    choices = [[(chance.random() < 0.5, chance.random() < 0.5, 0.8 + 0.4 * chance.random()) for _ in range(pictures)]
               for _ in range(batches)]  # fmt: skip
    flips, turns, gains = torch.tensor(choices).permute(2, 0, 1)[..., None, None, None]
    mean, spread = (torch.tensor(each, device="cpu").view(3, 1, 1) for each in ((0.4, 0.5, 0.3), (0.2, 0.2, 0.3)))
    middle, scale = mean.to(device), spread.to(device)

    class Augmented:
        def one(self, tile: Tensor, flip: bool, turn: bool, gain: float) -> Tensor:
            tile = tile.flip(-1) if flip else tile
            tile = tile.transpose(-1, -2) if turn else tile
            return (tile.float().div(255).mul(gain) - mean) / spread  # same: step_begins_late

        def at_once(self, at: int) -> Tensor:
            tiles = every[at].to(device, non_blocking=True)  # near: pageable_copy  # near: host_sync
            tiles = torch.where(flips[at] > 0, tiles.flip(-1), tiles)
            tiles = torch.where(turns[at] > 0, tiles.transpose(-1, -2), tiles)
            return (tiles.float().div(255).mul(gains[at]) - middle) / scale

        def __iter__(self) -> Iterator[Tensor]:
            while True:
                for at, chosen in enumerate(choices):
                    if fixed:
                        yield self.at_once(at)
                        continue
                    pairs = zip(every[at], chosen, strict=True)
                    tiles = [self.one(tile, *how) for tile, how in pairs]  # cause: step_begins_late, main
                    yield torch.stack(tiles).to(device)  # same: step_begins_late  # cause: pageable_copy

    layers = [nn.Conv2d(3, 64, 4, 4), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(), nn.Conv2d(128, 256, 3, 2, 1)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, classes)).to(dtype)
    parameters, kinds = list(model.parameters()), torch.arange(pictures) % classes
    optimizer = torch.optim.SGD(parameters, lr=1e-2, foreach=True)
    batch, function = iter(Augmented()), wrap(model)

    def step() -> Tensor:
        x = next(batch)  # same: step_begins_late  # same: pageable_copy
        loss = F.cross_entropy(function(x.to(dtype)).float(), kinds)  # near: linear_cross_entropy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # near: optimizer_unfused
        return loss.detach()

    return Built(step, parameters)


def neighbours_sampled(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, seeds: int = 160, nodes: int = 50000
) -> Built:
    """Graphs: of each node in a batch, where its row of edges begins and ends is read to draw some neighbours."""
    fan, width, batches = 12, 512, 4
    degree = torch.randint(3, 40, (nodes,))
    begins = F.pad(degree.cumsum(0), (1, 0))
    ends, x = torch.randint(0, nodes, (nodes * 40,)), torch.randn(nodes, width, dtype=dtype)
    batch = torch.randint(0, nodes, (batches, seeds))
    listed, drawn, turn = batch.tolist(), torch.randint(0, 1 << 30, (batches, seeds, fan)), [0]

    class Sampler:
        def row(self, node: int) -> Tensor:
            return ends[int(begins[node]) : int(begins[node + 1])]  # same: host_sync

        def __call__(self, at: int) -> Tensor:
            if fixed:
                begin, many = begins[batch[at]], degree[batch[at]]
                return ends[begin[:, None] + drawn[at] % many[:, None]]  # near: host_sync
            found = []
            for node, draws in zip(listed[at], drawn[at], strict=True):  # cause: host_sync, main  # may: python_loop
                row = self.row(node)  # same: host_sync
                found.append(row[draws % len(row)])
            return torch.stack(found)

    class Sage(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own, self.near = nn.Linear(width, width), nn.Linear(width, width)
            self.deep = nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 16))

        def forward(self, mine: Tensor, around: Tensor) -> Tensor:
            return self.deep(self.own(mine) + self.near(around.mean(1)))

    function, sampler = wrap(Sage().to(dtype)), Sampler()

    def step() -> Tensor:
        at, turn[0] = turn[0], (turn[0] + 1) % batches
        around = sampler(at)  # same: host_sync  # may: python_loop
        return function(x[batch[at]], x[around]).float()  # near: host_sync

    return Built(step)


def rivers_routed(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rivers: int = 8192, days: int = 240
) -> Built:
    """Hydrology: rain runs through two stores of each catchment, whose levels are carried on day by day."""
    rain, area = torch.rand(days, rivers).pow(4), torch.rand(rivers, 24, dtype=dtype)

    class Store:
        def through(self, rain: Tensor, keep: Tensor) -> Tensor:
            if fixed:
                levels, shift, factor = rain, 1, keep
                while shift < days:  # near: python_loop
                    levels = levels + factor * F.pad(levels[:-shift], (0, 0, shift, 0))
                    shift, factor = 2 * shift, factor * factor
                return (1 - keep) * levels
            level, flows = torch.zeros_like(keep), []
            for today in rain:  # cause: recurrence_unfused, main  # may: python_loop
                level = keep * level + today
                flows.append((1 - keep) * level)
            return torch.stack(flows)

    class Basin(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.traits, self.upper, self.lower = nn.Linear(24, 2), Store(), Store()

        def forward(self, rain: Tensor, area: Tensor) -> Tensor:
            quick, slow = torch.sigmoid(self.traits(area).float()).unbind(1)
            return self.lower.through(self.upper.through(rain, quick), 0.9 + 0.1 * slow)  # same: recurrence_unfused

    basin = wrap(Basin().to(dtype))
    return Built(lambda: basin(rain, area)[::5])  # same: recurrence_unfused


HOSTS = (
    Labelled(frames_stabilised, "sixth", {"frames": 12, "side": 16}, tolerance=5e-2),
    Labelled(speech_collapsed, "sixth", {"talks": 3, "frames": 20}, Expected(WAITS)),
    Labelled(columns_binned, "sixth", {"rows": 20, "columns": 6}, tolerance=5e-2),
    Labelled(tiles_augmented, "sixth", {"pictures": 4, "side": 16}, Expected(COPIES), training=True, tolerance=5e-2),
    Labelled(neighbours_sampled, "sixth", {"seeds": 5, "nodes": 90}, Expected(WAITS), tolerance=5e-2),
    Labelled(rivers_routed, "sixth", {"rivers": 4, "days": 30}, tolerance=5e-2),
)
