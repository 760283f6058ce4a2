"""Programs that look slow and are not: large pieces of work and answers that stay on the device; `labelled_seventh.py`.

Labels: `labels.py`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labelled_seventh_parts import HALF, PLAIN, Block, SelfAttention, tower
from programs.labels import Built, Expected, Labelled
from programs.program import unchanged


def surfaces_traced(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rays: int = 262144, width: int = 256
) -> Built:
    """Surfaces: rays go on by what a network says is free, a fixed number of times; those that have met it stay."""
    rounds, near = 8, 1e-2
    waves = 2.0 ** torch.arange(5)
    origin = torch.zeros(rays, 3) + torch.tensor([0.0, 0.0, -2.0])
    course = F.normalize(torch.randn(rays, 3) * 0.3 + torch.tensor([0.0, 0.0, 1.0]), dim=-1)

    class Distance(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            inner = [layer for _ in range(6) for layer in (nn.Linear(width, width), nn.Softplus())]
            self.layers = nn.Sequential(nn.Linear(33, width), nn.Softplus(), *inner, nn.Linear(width, 1))

        def forward(self, place: Tensor) -> Tensor:
            turns = (place[:, None] * waves[:, None]).flatten(1)
            said = torch.cat((place, turns.sin(), turns.cos()), 1).to(dtype)
            return self.layers(said)[:, 0].float()

    distance = wrap(Distance().to(dtype))

    def trace() -> Tensor:
        depth, met = torch.zeros_like(origin[:, 0]), torch.zeros_like(origin[:, 0], dtype=torch.bool)
        for _ in range(rounds):  # near: python_loop  # near: recurrence_unfused
            free = distance(origin + depth[:, None] * course)  # near: host_sync
            met = met | (free.abs() < near)
            depth = torch.where(met, depth, depth + free)
        return depth

    return Built(trace)


def critics_penalised(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 32768, width: int = 1024
) -> Built:
    """Adversarial training on tables with a penalty on slopes; both optimizers are fused, and nothing is read."""
    columns, latent, weight = 256, 64, 10.0

    def network(enter: int, leave: int) -> nn.Sequential:
        inner = [layer for _ in range(3) for layer in (nn.Linear(width, width), nn.SiLU())]
        return nn.Sequential(nn.Linear(enter, width), nn.SiLU(), *inner, nn.Linear(width, leave)).to(dtype)

    maker, critic = network(latent, columns), network(columns, 1)
    sides = [list(each.parameters()) for each in (maker, critic)]
    by_maker, by_critic = (torch.optim.AdamW(each, 1e-4, (0.0, 0.9), fused=True) for each in sides)
    make, judge = wrap(maker), wrap(critic)
    real, noise = torch.randn(rows, columns, dtype=dtype), torch.randn(rows, latent, dtype=dtype)
    mix = torch.rand(rows, 1)

    def steepness(made: Tensor) -> Tensor:
        between = torch.lerp(real, made, mix.to(dtype)).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        return (slope.float().norm(dim=1) - 1).square().mean()  # near: host_sync

    def step() -> Tensor:
        with torch.no_grad():
            made = make(noise)
        by_critic.zero_grad()  # near: gradient_zeroing
        judged = judge(made).float().mean() - judge(real).float().mean()
        loss = judged + weight * steepness(made)
        loss.backward()
        by_critic.step()  # near: optimizer_unfused
        by_maker.zero_grad()  # near: gradient_zeroing
        fooled = -judge(make(noise)).float().mean()
        fooled.backward()
        by_maker.step()  # near: optimizer_unfused
        return torch.stack((loss.detach(), fooled.detach()))  # near: host_sync

    return Built(step, [each for side in sides for each in side])


def latents_denoised(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 24, wide: int = 192
) -> Built:
    """Diffusion by a net with skips, whose schedule is a list of Python's numbers and whose pictures keep one order."""
    side, levels = 64, [14.0, 5.0, 1.6, 0.4, 0.0]

    class Residual(nn.Module):
        """No norm: what is added is small from the start."""

        def __init__(self, enter: int, leave: int) -> None:
            super().__init__()
            self.one, self.two = nn.Conv2d(enter, leave, 3, padding=1), nn.Conv2d(leave, leave, 3, padding=1)
            self.skip = nn.Conv2d(enter, leave, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.skip(x) + self.two(F.silu(self.one(F.silu(x))))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.leave = nn.Conv2d(8, wide, 3, padding=1), nn.Conv2d(wide, 8, 3, padding=1)
            self.down = nn.ModuleList((Residual(wide, wide), Residual(wide, 2 * wide)))
            self.middle = nn.Sequential(Residual(2 * wide, 2 * wide), Residual(2 * wide, 2 * wide))
            self.up = nn.ModuleList((Residual(4 * wide, wide), Residual(2 * wide, wide)))

        def forward(self, x: Tensor) -> Tensor:
            x, kept = self.enter(x), []
            for block in self.down:  # near: python_loop
                x = block(x)
                kept.append(x)
                x = F.avg_pool2d(x, 2)
            x = self.middle(x)
            for block in self.up:  # near: python_loop
                x = F.interpolate(x, scale_factor=2.0)
                x = block(torch.cat((x, kept.pop()), 1))
            return self.leave(x)

    class Schedule:
        def __init__(self, levels: list[float]) -> None:
            self.levels = levels

        def moved(self, x: Tensor, clean: Tensor, at: int) -> Tensor:
            now, then = self.levels[at : at + 2]
            return x + (x - clean) * ((then - now) / now)

    denoise = wrap(Net().to(dtype).to(memory_format=torch.channels_last))
    schedule, noise = Schedule(levels), 14.0 * torch.randn(pictures, 8, side, side, dtype=dtype)
    noise = noise.to(memory_format=torch.channels_last)

    def sample() -> Tensor:
        x = noise
        for at, level in enumerate(levels[:-1]):  # near: python_loop  # near: recurrence_unfused
            x = schedule.moved(x, denoise(x / (level**2 + 1) ** 0.5), at)  # near: host_sync
        return x.float()

    return Built(sample)


def speech_contrasted(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, talks: int = 32, width: int = 768
) -> Built:
    """Speech without words: each frame is told from others of its own talk, whose places were drawn beforehand."""
    frames, others, goal, layers = 400, 60, 128, 4
    places = (torch.arange(frames)[:, None] + torch.randint(1, frames, (talks, frames, others))) % frames
    places = torch.cat((torch.arange(frames).expand(talks, -1)[..., None], places), -1)
    hidden = torch.rand(talks, frames, 1) < 0.5

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.goals = nn.Linear(512, width), nn.Linear(512, goal)
            self.mask, self.layers = nn.Parameter(torch.randn(width)), tower(width, layers)
            self.leave = nn.Linear(width, goal)

        def forward(self, sound: Tensor) -> tuple[Tensor, Tensor]:
            x = torch.where(hidden, self.mask, self.enter(sound))
            said, wanted = self.leave(self.layers(x)), self.goals(sound)
            return F.normalize(said, dim=-1), F.normalize(wanted, dim=-1)

    model, sound = Model().to(dtype), torch.randn(talks, frames, 512, dtype=dtype)
    parameters, function = list(model.parameters()), wrap(model)
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)

    def step() -> Tensor:
        said, wanted = function(sound)
        alike = (said @ wanted.mT).gather(-1, places).float() / 0.1
        each = -alike.log_softmax(-1)[..., 0]  # near: linear_cross_entropy
        loss = (each * hidden[..., 0]).sum() / hidden.sum()  # near: host_sync
        optimizer.zero_grad()  # near: gradient_zeroing
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)  # near: parameter_loop
        optimizer.step()  # near: optimizer_unfused
        return loss.detach()

    return Built(step, parameters)


def sounds_encoded(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, talks: int = 32, width: int = 768
) -> Built:
    """Speech: spectra are made in float32, which they need, and all layers behind them run in 16 bits."""
    window, hop, bands, samples, layers = 400, 160, 80, 128000, 8
    filters, bell = torch.rand(bands, window // 2 + 1) / 100, torch.hann_window(window)

    class Conformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.block = SelfAttention(width), Block(width)

        def forward(self, x: Tensor) -> Tensor:
            return self.block(x + self.attention(x))

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter = nn.Sequential(nn.Conv1d(bands, width, 3, 2, 1), nn.GELU())
            self.layers = nn.Sequential(*(Conformer() for _ in range(layers)))

        def forward(self, mel: Tensor) -> Tensor:
            return self.layers(self.enter(mel).mT)

    def spectra(sound: Tensor) -> Tensor:
        waves = torch.stft(sound, window, hop, window=bell, return_complex=True)  # near: float32_inference
        return (filters @ waves.abs().square()).clamp(min=1e-6).log()  # near: host_sync  # may: float32_batched_product

    encode, sound = wrap(Encoder().to(dtype)), torch.randn(talks, samples)
    return Built(lambda: encode(spectra(sound).to(dtype)).float().mean(1))


def drafts_verified(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 160, width: int = 1024
) -> Built:
    """Speculation: drafts of all rows are checked by a wide model in one pass, and how much holds stays a tensor."""
    asked, drafted, words, layers = 64, 6, 32000, 6
    text = torch.randint(0, words, (rows, asked + drafted))
    guessed, luck = 0.2 * torch.rand(rows, drafted), torch.rand(rows, drafted)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.layers = nn.Embedding(words, width), tower(width, layers, causal=True)
            self.head = nn.Linear(width, words, bias=False)

        def forward(self, text: Tensor) -> Tensor:
            return self.head(self.layers(self.table(text))[:, asked - 1 :])

    model = wrap(Model().to(dtype))

    def accepted(logits: Tensor, draft: Tensor) -> tuple[Tensor, Tensor]:
        chances = logits.float().softmax(-1)  # near: linear_cross_entropy
        wanted = chances[:, :-1].gather(-1, draft[..., None])[..., 0] * words / 10
        holds = (luck * guessed < wanted).long().cumprod(1)
        many = holds.sum(1)  # near: host_sync
        best = chances.argmax(-1).gather(1, many[:, None])[:, 0]
        return many, best

    def verify() -> Tensor:
        many, word = accepted(model(text), text[:, asked:])  # near: host_sync  # near: cache_grown
        longer = F.pad(text, (0, 1))
        kept = torch.arange(longer.shape[1], device=text.device) < (asked + many)[:, None]
        return (longer * kept).scatter(1, (asked + many)[:, None], word[:, None])  # near: host_sync

    return Built(verify)


NEAR = (
    Labelled(surfaces_traced, "seventh", {"rays": 20, "width": 16}, tolerance=5e-2),
    Labelled(critics_penalised, "seventh", {"rows": 8, "width": 16}, Expected(PLAIN), training=True, tolerance=5e-2),
    Labelled(latents_denoised, "seventh", {"pictures": 1, "wide": 8}, tolerance=5e-2),
    Labelled(speech_contrasted, "seventh", {"talks": 1, "width": 16}, Expected(PLAIN), training=True, tolerance=5e-2),
    Labelled(sounds_encoded, "seventh", {"talks": 1, "width": 16}, tolerance=5e-2),
    Labelled(drafts_verified, "seventh", {"rows": 3, "width": 16}, tolerance=5e-2),
)
