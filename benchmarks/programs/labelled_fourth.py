"""Labelled programs of yet other fields: weather, genomes, robots, advertisements, voices. Labels: `labels.py`.

They were labelled before anything looked at them, and by source alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, wraps
from itertools import pairwise, permutations
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

HALF = torch.bfloat16
WAITS = "asks the device for a number"
BREAKS = "what follows depends on a number that the device has"


def dense(*widths: int, dtype: torch.dtype) -> nn.Sequential:
    """Return linear layers with activations between them."""
    layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.SiLU())]
    return nn.Sequential(*layers[:-1]).to(dtype)


# -- loops -------------------------------------------------------------------------------------------------------------


def speakers_permuted(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, talks: int = 16, speakers: int = 4
) -> Built:
    """Diarization: who speaks when, where speakers have no order: the loss of the best of all their orders."""
    frames, width = 400, 256
    model = dense(80, width, width, speakers, dtype=dtype)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1, foreach=True)
    x, active = torch.randn(talks, frames, 80, dtype=dtype), (torch.rand(talks, frames, speakers) < 0.3).float()
    orders, places = torch.tensor(list(permutations(range(speakers)))), torch.arange(speakers)

    def apart(logits: Tensor, active: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, active, reduction="none").mean(1)  # same: python_loop

    def loss_of_best(x: Tensor) -> Tensor:
        logits = model(x).float()
        if fixed:
            shape = (talks, frames, speakers, speakers)
            pairs = apart(logits[..., None].expand(shape), active[..., None, :].expand(shape))
            return pairs[:, places, orders].sum(-1).amin(1).mean()  # near: host_sync
        losses = [  # cause: python_loop, main
            sum(apart(logits[..., mine], active[..., theirs]) for mine, theirs in enumerate(order))
            for order in permutations(range(speakers))
        ]
        return torch.stack(losses).amin(0).mean()

    function = wrap(loss_of_best)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = function(x)
        loss.backward()  # same: python_loop
        optimizer.step()  # near: optimizer_unfused
        return loss.detach()

    return Built(step, parameters)


def harmonics_added(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, notes: int = 16, samples: int = 16_000
) -> Built:
    """Audio: a voice is the sum of its harmonics, each a sine as loud as a network says, and none too high."""
    harmonics, frames, rate = 100, 50, 16_000

    loudness, numbers = dense(64, 256, harmonics, dtype=dtype), torch.arange(1.0, harmonics + 1)[:, None]

    def sung(seen: Tensor, pitch: Tensor) -> Tensor:
        loud = F.interpolate(loudness(seen).float().sigmoid().transpose(1, 2), size=samples, mode="linear")
        phase = (pitch / rate).cumsum(1) % 1.0 * math.tau

        def harmonic(number: int) -> Tensor:
            wave = loud[:, number - 1] * torch.sin(number * phase)  # same: python_loop
            return wave.masked_fill(number * pitch > rate / 2, 0)  # same: python_loop

        if fixed:
            waves = loud * torch.sin(numbers * phase[:, None])
            return waves.masked_fill(numbers * pitch[:, None] > rate / 2, 0).sum(1)  # near: host_sync
        return sum(map(harmonic, range(1, harmonics + 1)), torch.zeros_like(pitch))  # cause: python_loop, main

    seen, pitch = torch.randn(notes, frames, 64, dtype=dtype), 100 + 300 * torch.rand(notes, 1).expand(-1, samples)
    return Built(partial(wrap(sung), seen, pitch))


def clients_averaged(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, clients: int = 8, layers: int = 24
) -> Built:
    """Federated learning: a server's weights become the mean of its clients', by what each has seen; then a test."""
    width = 256
    server = dense(*[width] * (layers + 1), dtype=dtype)
    x, y = torch.randn(512, width, dtype=dtype), torch.randn(512, width, dtype=dtype)
    states = [dense(*[width] * (layers + 1), dtype=dtype).state_dict() for _ in range(clients)]
    shares = [2 * (at + 1) / (clients * (clients + 1)) for at in range(clients)]
    function = wrap(server)

    @torch.no_grad()
    def gather() -> None:
        if fixed:
            mine = list(server.state_dict().values())
            torch._foreach_zero_(mine)
            for share, state in zip(shares, states, strict=True):  # near: parameter_loop
                torch._foreach_add_(mine, list(state.values()), alpha=share)
            return
        mean = {  # cause: parameter_loop, main
            name: sum(share * state[name] for share, state in zip(shares, states, strict=True)) for name in states[0]
        }
        server.load_state_dict(mean)  # same: parameter_loop

    def step() -> Tensor:
        gather()  # same: parameter_loop
        return F.mse_loss(function(x), y)

    return Built(step, list(server.parameters()))


# -- waits -------------------------------------------------------------------------------------------------------------


def tracks_assigned(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, frames: int = 4, tracks: int = 40
) -> Built:
    """Tracking: what a frame shows goes to the track most alike, the surest first, until the rest is too far off."""
    width, shown = 128, tracks + 12
    encode = dense(256, 512, width, dtype=dtype)
    video, begin = torch.randn(frames, shown, 256, dtype=dtype), F.normalize(torch.randn(tracks, width), dim=1)
    function = wrap(lambda crops: F.normalize(encode(crops).float(), dim=1))

    @dataclass
    class Tracker:
        looks: Tensor
        limit: float = 0.95

        def assigned(self, cost: Tensor) -> list[int]:
            found = [-1] * tracks
            while True:  # may: python_loop  # may: recurrence_unfused  # same: host_sync
                if cost.min() > self.limit:  # cause: host_sync, main
                    return found
                row, column = divmod(cost.argmin().item(), shown)  # cause: host_sync
                found[int(row)] = int(column)
                cost[row], cost[:, column] = torch.inf, torch.inf

        def update(self, seen: Tensor) -> None:
            cost = 1 - self.looks @ seen.T  # may: float32_inference
            cost = cost.cpu() if fixed else cost  # may: host_sync
            found = torch.tensor(self.assigned(cost))  # same: host_sync
            place = found.to(seen.device)  # may: pageable_copy  # may: step_begins_late
            moved = F.normalize(0.9 * self.looks + 0.1 * seen[place], dim=1)
            self.looks = torch.where(place[:, None] >= 0, moved, self.looks)  # near: host_sync

    def step() -> Tensor:
        tracker = Tracker(begin)
        for crops in video:  # may: python_loop
            tracker.update(function(crops))  # same: host_sync  # may: pageable_copy  # may: step_begins_late
        return tracker.looks

    return Built(step)


def hypotheses_kept(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, lines: int = 4, frames: int = 48
) -> Built:
    """Reading of lines of text: hypotheses are Python's, and take the likeliest letters of each frame as lists."""
    letters, likeliest, beams = 96, 5, 4
    model, x = dense(256, 512, 512, letters, dtype=dtype), torch.randn(lines, frames, 256, dtype=dtype)
    function = wrap(lambda x: F.log_softmax(20 * model(x).float(), -1))

    def likely(line: Tensor) -> Iterator[tuple[list[float], list[int]]]:
        if fixed:
            values, places = (each.tolist() for each in line.topk(likeliest))  # may: host_sync
            yield from zip(values, places, strict=True)
            return
        for frame in line:  # may: python_loop  # same: host_sync
            best = frame.topk(likeliest)
            yield best.values.tolist(), best.indices.tolist()  # cause: host_sync, main

    def searched(line: Tensor) -> float:
        kept: dict[tuple[int, ...], float] = {(): 0.0}
        for scores, found in likely(line):  # same: host_sync  # may: step_begins_late  # may: python_loop
            longer: dict[tuple[int, ...], float] = {}
            for said, total in kept.items():
                for score, letter in zip(scores, found, strict=True):
                    text = said if letter == 0 or said[-1:] == (letter,) else (*said, letter)
                    longer[text] = max(longer.get(text, -math.inf), total + score)
            kept = dict(sorted(longer.items(), key=lambda each: -each[1])[:beams])
        return max(kept.values())

    def step() -> Tensor:
        return torch.tensor([searched(line) for line in function(x)])  # same: host_sync  # may: python_loop

    return Built(step)


def processes_fitted(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, tasks: int = 16, points: int = 96
) -> Built:
    """Gaussian processes: rounds of gradient descent, each with a factor that the library checks, in float32."""
    rounds, logs = 4, nn.Parameter(torch.zeros(tasks, 3))
    optimizer = torch.optim.SGD([logs], lr=1e-3, foreach=True)
    x, y = torch.randn(tasks, points, 4), torch.randn(tasks, points, 1)
    one, failed = torch.eye(points), torch.zeros((), dtype=torch.int32)

    def factor(covariance: Tensor) -> Tensor:
        jitter = 1e-4
        if fixed:
            lower, info = torch.linalg.cholesky_ex(covariance + jitter * one)  # near: host_sync
            failed.add_(info.amax())
            return lower
        while True:
            try:
                return torch.linalg.cholesky(covariance + jitter * one)  # cause: host_sync, main
            except torch.linalg.LinAlgError:
                jitter *= 10

    def evidence() -> Tensor:
        scale, reach, noise = logs.exp().unbind(1)
        far = (x[:, :, None] - x[:, None]).square().sum(-1) / reach[:, None, None]
        covariance = scale[:, None, None] * torch.exp(-far) + (0.1 + noise[:, None, None]) * one
        lower = factor(covariance)  # same: host_sync
        rest = torch.linalg.solve_triangular(lower, y, upper=False)
        return (rest.square().sum((1, 2)) / 2 + lower.diagonal(dim1=1, dim2=2).log().sum(1)).mean()

    function = wrap(evidence)

    def step() -> Tensor:
        total = torch.zeros((), device=y.device)
        for _ in range(rounds):  # may: python_loop  # may: recurrence_unfused  # same: host_sync
            optimizer.zero_grad()
            loss = function()
            loss.backward()  # may: float32_batched_product  # may: python_loop
            optimizer.step()
            total += loss.detach()
        return total

    return Built(step, [logs])


def phonemes_stretched(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 24, sounds: int = 80
) -> Built:
    """Speech from text: each sound is said for as many frames as it lasts, and texts are filled up to the longest."""
    width = 384
    x, lasts = torch.randn(texts, sounds, 64, dtype=dtype), torch.randint(1, 9, (texts, sounds))
    longest = int(lasts.sum(1).max())
    encode, decode = dense(64, width, width, dtype=dtype), dense(width, 1024, 1024, 80, dtype=dtype)

    def stretched(x: Tensor, lasts: Tensor) -> Tensor:
        if fixed:
            at = torch.arange(longest, device=x.device).repeat(len(x), 1)
            place = torch.searchsorted(lasts.cumsum(1), at, right=True)
            said = x.gather(1, place.clamp(max=sounds - 1)[..., None].expand(-1, -1, width))
            return said.masked_fill((place == sounds)[..., None], 0)  # near: host_sync
        pairs = zip(x, lasts, strict=True)
        every = [torch.repeat_interleave(*pair, 0) for pair in pairs]  # cause: host_sync, main  # may: python_loop
        return nn.utils.rnn.pad_sequence(every, batch_first=True)  # may: python_loop

    function = wrap(lambda x, lasts: decode(stretched(encode(x), lasts)))  # same: host_sync  # may: python_loop
    return Built(lambda: function(x, lasts))


def particles_resampled(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, particles: int = 4096, length: int = 24
) -> Built:
    """Robots: a filter of particles draws them anew once few of them bear most of the weight."""
    sensor = wrap(dense(3 + 5, 128, 128, 1, dtype=dtype))
    moves, seen = 0.1 * torch.randn(length, 1, 3), torch.randn(length, 1, 5)
    begin, noise = torch.randn(particles, 3), 0.05 * torch.randn(length, particles, 3)
    steps = (torch.arange(particles) + 0.5) / particles

    class Filter:
        def __init__(self) -> None:
            self.state, self.logs = begin, torch.zeros_like(begin[:, 0])

        def weigh(self, sight: Tensor) -> None:
            both = torch.cat((self.state, sight.expand(particles, -1)), 1).to(dtype)
            self.logs = F.log_softmax(self.logs + 8 * sensor(both).squeeze(1).float(), 0)

        def resample(self) -> None:
            share = self.logs.exp()
            effective = 1 / share.square().sum()
            if fixed:
                few = effective < particles / 2
                drawn = torch.searchsorted(share.cumsum(0), steps).clamp(max=particles - 1)
                self.state = torch.where(few, self.state[drawn], self.state)  # near: host_sync
                self.logs = torch.where(few, -math.log(particles), self.logs)
            elif effective < particles / 2:  # cause: host_sync, main
                drawn = torch.searchsorted(share.cumsum(0), steps).clamp(max=particles - 1)
                self.state, self.logs = self.state[drawn], torch.full_like(self.logs, -math.log(particles))

    def step() -> Tensor:
        robot, places = Filter(), []
        for move, sight, shake in zip(moves, seen, noise, strict=True):  # may: recurrence_unfused  # may: python_loop
            robot.state = robot.state + move + shake
            robot.weigh(sight)
            places.append((robot.logs.exp()[:, None] * robot.state).sum(0))
            robot.resample()  # same: host_sync
        return torch.stack(places)

    return Built(step)


def forces_checked(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, bodies: int = 768, rounds: int = 24
) -> Built:
    """Physics: a simulation whose every part is held to give finite numbers, by a decorator that asserts it."""
    drag, fine = wrap(dense(3, 64, 64, 3, dtype=dtype)), list[Tensor]()
    begin, masses = torch.randn(bodies, 3), torch.rand(bodies) + 0.5

    def finite(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @wraps(function)
        def checked(*given: Tensor) -> Tensor:
            said = function(*given)  # may: python_loop  # may: recurrence_unfused
            fine.append(torch.isfinite(said).all())
            assert fixed or fine[-1], function.__name__  # cause: host_sync, main
            return said

        return checked

    @finite
    def pull(places: Tensor) -> Tensor:
        far = places[None] - places[:, None]
        close = (far.square().sum(-1) + 0.1).rsqrt()  # may: python_loop
        return (masses[:, None] * far * close[..., None] ** 3).sum(1) / bodies

    @finite
    def friction(speed: Tensor) -> Tensor:
        return -0.1 * speed + 0.01 * drag(speed.to(dtype)).float()  # may: python_loop

    def step() -> Tensor:
        places, speed = begin, torch.zeros_like(begin)
        for _ in range(rounds):  # may: recurrence_unfused  # may: python_loop  # same: host_sync
            speed = speed + 0.05 * (pull(places) + friction(speed))
            places = places + 0.05 * speed
        assert not fixed or torch.stack(fine).all()  # near: host_sync
        fine.clear()
        return places

    return Built(step)


# -- models ------------------------------------------------------------------------------------------------------------


def bases_decoded(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, reads: int = 32, length: int = 192
) -> Built:
    """Genomes: how likely reads are under a hidden Markov model, base after base; or by halves."""
    states, x = 8, torch.randn(reads, length, 64, dtype=dtype)
    emit, change = dense(64, 256, 256, states, dtype=dtype), F.log_softmax(torch.randn(states, states), 1)

    def joined(first: Tensor, second: Tensor) -> Tensor:
        return torch.logsumexp(first[..., None] + second[..., None, :, :], -2)

    def likelihood(x: Tensor) -> Tensor:
        said = F.log_softmax(8 * emit(x).float(), -1)
        if fixed:
            every = change + said[:, 1:, None]
            while every.shape[1] > 1:  # near: recurrence_unfused  # near: host_sync
                even, odd = every[:, : every.shape[1] // 2 * 2], every[:, every.shape[1] // 2 * 2 :]
                every = torch.cat((joined(even[:, ::2], even[:, 1::2]), odd), 1)
            return torch.logsumexp(said[:, 0, :, None] + every[:, 0], (1, 2))
        alpha, at = said[:, 0], 1
        while at < length:  # cause: recurrence_unfused, main
            alpha = torch.logsumexp(alpha[..., None] + change, 1) + said[:, at]
            at += 1
        return torch.logsumexp(alpha, 1)

    return Built(partial(wrap(likelihood), x))


def flow_integrated(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, scenes: int = 192, rounds: int = 12
) -> Built:
    """A neural differential equation by midpoints, whose field reads the whole scene at every place and time."""
    width = 512

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.context, self.body = dense(width, 1024, width, dtype=dtype), dense(2 * width, 512, width, dtype=dtype)

        def read(self, scene: Tensor) -> Tensor:
            return self.context(scene).mean(1)  # cause: loop_invariant, main

        def forward(self, time: float, state: Tensor, scene: Tensor) -> Tensor:
            known = scene if fixed else self.read(scene)  # same: loop_invariant
            return math.cos(time) * torch.tanh(self.body(torch.cat((state, known), 1)))  # may: recurrence_unfused

    def slope(time: float, state: Tensor, scene: Tensor, half: float) -> Tensor:
        first = field(time, state, scene)  # same: loop_invariant  # may: recurrence_unfused
        return field(time + half, state + half * first, scene)  # same: loop_invariant  # may: recurrence_unfused

    def integrated(state: Tensor, scene: Tensor) -> Tensor:
        scene = field.read(scene) if fixed else scene
        for at in range(rounds):  # may: recurrence_unfused  # may: python_loop  # same: loop_invariant
            state = state + slope(at / rounds, state, scene, 0.5 / rounds) / rounds  # same: loop_invariant
        return state

    field, scene, begin = Field(), torch.randn(scenes, 196, width, dtype=dtype), torch.randn(scenes, width, dtype=dtype)
    return Built(partial(wrap(integrated), begin, scene))


def map_remembered(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, robots: int = 16, past: int = 8000
) -> Built:
    """Robots that remember all that they saw: each sight is put behind the memory, which the policy then reads."""
    width, rounds = 256, 24
    look, act = dense(128, width, width, dtype=dtype), dense(2 * width, 256, 128, dtype=dtype)
    before, begin = torch.randn(robots, past, width, dtype=dtype), torch.randn(robots, 128, dtype=dtype)
    room = torch.cat((before, before.new_zeros(robots, rounds, width)), 1)

    class Memory:
        def __init__(self) -> None:
            self.rows, self.end = room[:, :past] if fixed else before, past

        def write(self, seen: Tensor) -> None:
            self.end += 1
            if fixed:
                room[:, self.end - 1] = seen
                self.rows = room[:, : self.end]
            else:
                self.rows = torch.cat((self.rows, seen[:, None]), dim=1)  # cause: cache_grown, main

        def read(self, asked: Tensor) -> Tensor:
            alike = torch.einsum("rd,rnd->rn", asked, self.rows) * width**-0.5
            return torch.einsum("rn,rnd->rd", alike.softmax(1), self.rows)  # may: attention_unfused

    def walk(sight: Tensor) -> Tensor:
        memory, done = Memory(), []
        for _ in range(rounds):  # may: recurrence_unfused  # may: python_loop  # same: cache_grown
            seen = look(sight)
            memory.write(seen)  # same: cache_grown
            sight = torch.tanh(act(torch.cat((seen, memory.read(seen)), 1)))  # may: attention_unfused
            done.append(sight)
        return torch.stack(done, 1)

    return Built(partial(wrap(walk), begin))


def clicks_ranked(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, users: int = 4_000_000, rows: int = 4096
) -> Built:
    """Advertisements: a factorisation machine over fields, of which two have more values than a step can show."""
    width, values = 32, {"user": users, "advertisement": users // 8, "site": 2000, "hour": 24, "device": 60}

    class Ranker(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            tables = {name: nn.Embedding(size, width, sparse=fixed and size > 2000) for name, size in values.items()}
            self.tables, self.deep = nn.ModuleDict(tables), dense(len(values) * width, 256, 256, 1, dtype=dtype)

        def forward(self, shown: dict[str, Tensor]) -> Tensor:
            every = torch.stack(  # cause: embedding_gradient_dense, main  # may: python_loop
                [self.tables[name](column) for name, column in shown.items()], 1
            )
            pairs = (every.sum(1).square() - every.square().sum(1)).sum(1) / 2
            return 0.01 * pairs + self.deep(every.flatten(1).to(dtype)).squeeze(1).float()

    model = Ranker()
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.05)
    shown = {name: torch.randint(0, size, (rows,)) for name, size in values.items()}
    clicked, function = (torch.rand(rows) < 0.2).float(), wrap(model)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(function(shown), clicked)  # near: linear_cross_entropy
        loss.backward()  # same: embedding_gradient_dense
        optimizer.step()  # same: embedding_gradient_dense  # may: optimizer_unfused  # may: host_sync
        return loss.detach()

    return Built(step, parameters)


def weather_rolled(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, tiles: int = 2048, days: int = 3
) -> Built:
    """Weather: a trained mixer of tiles and of fields, rolled out day by day in the precision of its archive."""
    fields, width = 70, 768
    own = dtype if fixed else torch.float32

    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
            self.places = nn.Linear(tiles, tiles)
            self.channels = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.places(self.norms[0](x).transpose(1, 2)).transpose(1, 2)  # same: float32_inference
            return x + self.channels(self.norms[1](x))  # cause: float32_inference, main

    model = nn.Sequential(nn.Linear(fields, width), *(Mixer() for _ in range(4)), nn.Linear(width, fields)).to(own)
    today = torch.randn(2, tiles, fields)

    def forecast(state: Tensor) -> Tensor:
        for _ in range(days):  # may: recurrence_unfused  # near: python_loop
            state = state + 0.1 * model(state.to(own)).float()  # same: float32_inference
        return state

    return Built(partial(wrap(forecast), today))


def windows_of_volumes(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, windows: int = 192, side: int = 8
) -> Built:
    """Medicine: windows of a scan attend within themselves, with a bias by distance, and a mask where scans wrap."""
    heads, each, width = 6, 32, 192
    tokens, span = side * side * 4, (2 * side - 1) ** 2 * 7
    corners = torch.stack(torch.meshgrid(*(torch.arange(n) for n in (side, side, 4)), indexing="ij")).flatten(1)
    apart = corners[:, :, None] - corners[:, None] + torch.tensor([side - 1, side - 1, 3])[:, None, None]
    index = (apart[0] * (2 * side - 1) + apart[1]) * 7 + apart[2]
    region = (torch.arange(windows)[:, None] % 4 == 3) & (corners[0] >= side // 2)
    wrapped = torch.where(region[:, :, None] == region[:, None], 0.0, -100.0).to(dtype)[:, None]

    class Attention(nn.Module):
        def __init__(self, shifted: bool) -> None:
            super().__init__()
            self.shifted, self.norm = shifted, nn.LayerNorm(width)
            self.table = nn.Parameter(torch.randn(span, heads))
            self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, heads, each)).permute(2, 0, 3, 1, 4)
            bias = self.table[index].permute(2, 0, 1)[None].contiguous()  # may: loop_invariant
            bias = bias + wrapped if self.shifted else bias  # may: loop_invariant
            if fixed:
                shown = bias.expand(windows, heads, tokens, tokens)
                mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=shown)  # near: attention_biased
            else:
                scores = (q * each**-0.5) @ k.transpose(-2, -1)
                scores = scores + bias  # same: attention_biased
                mixed = scores.softmax(-1) @ v  # cause: attention_biased, main
            return x + self.project(mixed.transpose(1, 2).flatten(2))

    layers = [part for at in range(4) for part in (Attention(at % 2 > 0), dense(width, 768, width, dtype=dtype))]
    x = torch.randn(windows, tokens, width, dtype=dtype)
    return Built(partial(wrap(nn.Sequential(*layers).to(dtype)), x))


def nibbles_unpacked(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, width: int = 4096, rows: int = 32
) -> Built:
    """Serving of four-bit weights, two to a byte, which every call takes apart, with a small adapter beside them."""

    def taken_apart(packed: Tensor, scale: Tensor) -> Tensor:
        both = torch.stack((packed & 15, packed >> 4), -1).flatten(1)  # same: weights_dequantised
        return (both.to(scale.dtype) - 8) * scale  # cause: weights_dequantised, main

    class Packed(nn.Module):
        def __init__(self, wide: int, out: int) -> None:
            super().__init__()
            self.packed = torch.randint(0, 256, (out, wide // 2), dtype=torch.uint8)
            self.scale = (torch.rand(out, 1) * wide**-0.5 / 4).to(dtype)
            self.adapter = nn.Sequential(nn.Linear(wide, 8, bias=False), nn.Linear(8, out, bias=False)).to(dtype)
            self.ready = taken_apart(self.packed, self.scale)

        def forward(self, x: Tensor) -> Tensor:
            weight = self.ready if fixed else taken_apart(self.packed, self.scale)  # same: weights_dequantised
            return F.linear(x, weight) + self.adapter(x)  # same: weights_dequantised

    widths = (width, 2 * width, width, 2 * width, width)
    layers = [part for a, b in pairwise(widths) for part in (Packed(a, b), nn.RMSNorm(b, dtype=dtype), nn.SiLU())]
    model, x = wrap(nn.Sequential(*layers)), torch.randn(rows, width, dtype=dtype)
    return Built(lambda: model(x))


# -- nothing to be found -----------------------------------------------------------------------------------------------


def views_contrasted(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 2048, width: int = 2048
) -> Built:
    """Learning without labels: a queue of keys is a ring that is written in place, its end kept on the device."""
    size, said = 4 * rows, 128
    query, key = (dense(*[width] * 6, said, dtype=dtype) for _ in range(2))
    mine, theirs = list(query.parameters()), list(key.parameters())
    optimizer = torch.optim.SGD(mine, lr=1e-2, momentum=0.9, foreach=True)
    queue = F.normalize(torch.randn(size, said, dtype=dtype), dim=1)
    place, views = torch.arange(rows), torch.randn(2, rows, width, dtype=dtype)
    right, function = torch.zeros(rows, dtype=torch.long), wrap(query)

    def step() -> Tensor:
        with torch.no_grad():
            torch._foreach_lerp_(theirs, [each.detach() for each in mine], 0.01)  # near: parameter_loop
            keys = F.normalize(key(views[1]), dim=1)
        asked = F.normalize(function(views[0]), dim=1)
        logits = torch.cat(((asked * keys).sum(1, keepdim=True), asked @ queue.T), 1)  # near: cache_grown
        loss = F.cross_entropy(logits.float() / 0.2, right)  # may: linear_cross_entropy
        optimizer.zero_grad()  # near: gradient_zeroing
        loss.backward()
        optimizer.step()  # near: optimizer_unfused
        queue.index_copy_(0, place, keys)  # near: cache_grown  # near: host_sync
        place.add_(rows).remainder_(size)
        return loss.detach()

    return Built(step, [*mine, *theirs, queue])


def rays_in_chunks(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rays: int = 16_384, chunks: int = 4
) -> Built:
    """Rendering: rays go through the field in chunks, as many as memory holds, each of them work enough."""
    points, width = 32, 256
    field, times = dense(60, width, width, width, 4, dtype=dtype), torch.linspace(0.1, 2.0, points)
    (begins, ways), bands = torch.randn(2, chunks * rays, 3), 2.0 ** torch.arange(10)

    def render(begin: Tensor, way: Tensor) -> Tensor:
        places = begin[:, None] + times[:, None] * F.normalize(way, dim=-1)[:, None]
        waves = (places[..., None] * bands).flatten(-2)
        seen = field(torch.cat((waves.sin(), waves.cos()), -1).to(dtype)).float()
        opaque = 1 - torch.exp(-F.softplus(seen[..., 3]) * 0.06)
        through = torch.cumprod(1 - opaque + 1e-6, 1) / (1 - opaque + 1e-6)  # near: recurrence_unfused
        return ((opaque * through)[..., None] * seen[..., :3].sigmoid()).sum(1)

    def rendered(batches: Iterator[tuple[Tensor, ...]]) -> Iterator[Tensor]:
        for begin, way in batches:  # near: python_loop  # near: recurrence_unfused
            yield function(begin, way)

    function = wrap(render)
    return Built(lambda: torch.cat(list(rendered(zip(begins.split(rays), ways.split(rays), strict=True)))))


def candidates_reranked(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, queries: int = 256, most: int = 300
) -> Built:
    """Retrieval: queries with unlike numbers of candidates, flat, with the sum of these known to the host."""
    width, counts = 1024, [most // 3 + 53 * at % (most - most // 3) for at in range(queries)]
    total, on_device = sum(counts), torch.tensor(counts)
    score = dense(2 * width, 2048, 2048, 1, dtype=dtype)
    asked, found = torch.randn(queries, width, dtype=dtype), torch.randn(total, width, dtype=dtype)

    def listwise(asked: Tensor, found: Tensor) -> Tensor:
        owner = torch.repeat_interleave(on_device, output_size=total)  # near: host_sync  # may: loop_invariant
        scores = score(torch.cat((asked[owner], found), 1)).squeeze(1).float()
        highest = scores.new_full((queries,), -torch.inf).scatter_reduce(0, owner, scores, "amax")
        share = torch.exp(scores - highest[owner])
        share = share / share.new_zeros(queries).index_add(0, owner, share)[owner]
        return torch.where(share > 1 / most, share, 0)  # near: host_sync

    return Built(partial(wrap(listwise), asked, found))


def weights_by_task(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 49_152, width: int = 1024
) -> Built:
    """A network that makes the weights of another one for each task: they differ in every step and every layer."""
    makers = nn.ModuleList(nn.Linear(32, width * width) for _ in range(4)).to(dtype)
    task, x, scale = torch.randn(32), torch.randn(rows, width, dtype=dtype), 0.3 * width**-0.5

    def adapted(x: Tensor, task: Tensor) -> Tensor:
        for maker in makers:  # near: python_loop  # near: recurrence_unfused
            weight = torch.tanh(maker(task)).view(width, width) * scale  # near: loop_invariant
            x = F.silu(F.linear(x, weight)) + x  # near: weights_dequantised
        return x

    function = wrap(adapted)

    def step() -> Tensor:
        task.add_(1).sin_()
        return function(x, task.to(dtype)).float().mean(1)

    return Built(step, [task])


FOURTH = (
    Labelled(speakers_permuted, "fourth", {"talks": 2, "speakers": 3}, training=True, tolerance=5e-2),
    Labelled(harmonics_added, "fourth", {"notes": 2, "samples": 200}, tolerance=4e-2),
    Labelled(clients_averaged, "fourth", {"clients": 3, "layers": 3}, tolerance=0.1),
    Labelled(tracks_assigned, "fourth", {"frames": 2, "tracks": 6}, Expected(WAITS), tolerance=5e-2),
    Labelled(hypotheses_kept, "fourth", {"lines": 2, "frames": 6}, Expected(WAITS), tolerance=4e-2),
    Labelled(processes_fitted, "fourth", {"tasks": 2, "points": 9}, Expected(WAITS, graphs=WAITS), training=True),
    Labelled(phonemes_stretched, "fourth", {"texts": 3, "sounds": 5}, Expected(WAITS, BREAKS, BREAKS), tolerance=4e-2),
    Labelled(particles_resampled, "fourth", {"particles": 60, "length": 5}, Expected(WAITS), tolerance=8e-2),
    Labelled(forces_checked, "fourth", {"bodies": 12, "rounds": 3}, Expected(WAITS), tolerance=4e-2),
    Labelled(bases_decoded, "fourth", {"reads": 3, "length": 12}, tolerance=2e-2),
    Labelled(flow_integrated, "fourth", {"scenes": 2, "rounds": 2}, tolerance=5e-2),
    Labelled(map_remembered, "fourth", {"robots": 2, "past": 20}, tolerance=6e-2),
    Labelled(clicks_ranked, "fourth", {"users": 32_000, "rows": 16}, training=True, tolerance=5e-2),
    Labelled(weather_rolled, "fourth", {"tiles": 12, "days": 2}, tolerance=5e-2),
    Labelled(windows_of_volumes, "fourth", {"windows": 4, "side": 2}, tolerance=6e-2),
    Labelled(nibbles_unpacked, "fourth", {"width": 32, "rows": 4}, tolerance=5e-2),
    Labelled(views_contrasted, "fourth", {"rows": 8, "width": 32}, training=True, tolerance=5e-2),
    Labelled(rays_in_chunks, "fourth", {"rays": 9, "chunks": 2}, tolerance=4e-2),
    Labelled(candidates_reranked, "fourth", {"queries": 4, "most": 9}, tolerance=4e-2),
    Labelled(weights_by_task, "fourth", {"rows": 5, "width": 16}, tolerance=5e-2),
)
