"""Programs that look slow and are not: recomputed layers, weights rounded anew, beams, replay; of `labelled_ninth.py`.

Labels: `labels.py`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from programs.labelled_ninth_hosts import HALF
from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

FUSED = "an optimizer that was not made to be captured"


def lessons_accumulated(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 16, dim: int = 1024
) -> Built:
    """Pretraining by a curriculum of lengths: layers are computed twice for want of memory, gradients added up."""
    depth, max_len, vocab_size, accumulation = 4, 512, 2048, 2

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads, self.norm1, self.norm2 = max(1, dim // 64), nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # near: attention_unfused
            x = x + self.out(attended.transpose(1, 2).flatten(2))
            return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))

    class CausalLM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(vocab_size, dim), nn.Linear(dim, vocab_size, bias=False)
            self.layers = nn.ModuleList(Layer() for _ in range(depth))

        def forward(self, tokens: Tensor) -> Tensor:
            x = self.embed(tokens)  # near: embedding_gradient_dense
            for layer in self.layers:  # near: python_loop  # near: loop_invariant
                x = checkpoint(layer, x, use_reentrant=False, preserve_rng_state=False)  # near: loop_invariant
            return self.head(x)

    class Curriculum:
        """How long texts are by now, which the host knows."""

        def __init__(self, start: int, step_every: int) -> None:
            self.start, self.step_every, self.steps = start, step_every, 0

        def length(self) -> int:
            self.steps += 1
            return min(max_len, self.start + 32 * (self.steps // self.step_every))

    model = CausalLM().to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 100))
    forward, curriculum = wrap(model), Curriculum(start=480, step_every=1000)
    texts = torch.randint(0, vocab_size, (accumulation, batch_size, max_len + 1))

    def training_step() -> Tensor:
        length = curriculum.length()
        optimizer.zero_grad(set_to_none=True)  # near: gradient_zeroing
        total = torch.zeros((), device=texts.device)
        for part in texts:  # near: python_loop
            logits = forward(part[:, :length]).flatten(0, 1).float()
            loss = F.cross_entropy(logits, part[:, 1 : length + 1].flatten())  # near: linear_cross_entropy
            (loss / accumulation).backward()
            total += loss.detach()  # near: host_sync
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # near: parameter_loop  # near: host_sync
        optimizer.step()  # near: optimizer_unfused
        scheduler.step()
        return total / accumulation

    return Built(training_step, list(model.parameters()))


def filters_rounded(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 64, channels: int = 128
) -> Built:
    """Training for four bits: filters are rounded in every step, as they change in every step; losses are kept back."""
    depth, size, num_classes, log_every = 8, 56, 100, 50

    class RoundThrough(torch.autograd.Function):
        """Round numbers, and let gradients pass where nothing was cut off."""

        @staticmethod
        def forward(ctx: Any, scaled: Tensor) -> Tensor:
            ctx.save_for_backward(scaled.abs() <= 7)
            return scaled.round().clamp(-7, 7)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (inside,) = ctx.saved_tensors
            return grad * inside

    class QuantConv2d(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            scale = self.weight.detach().abs().amax(dim=(1, 2, 3), keepdim=True) / 7 + 1e-8  # near: loop_invariant
            rounded = RoundThrough.apply(self.weight / scale)  # near: loop_invariant
            return F.conv2d(x, rounded * scale, self.bias, self.stride, self.padding)  # near: weights_dequantised

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = nn.Conv2d(3, channels, 3, 2, 1), nn.Linear(channels, num_classes)
            self.convs = nn.ModuleList(QuantConv2d(channels, channels, 3, padding=1) for _ in range(depth))

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            for conv in self.convs:  # near: python_loop
                x = x + F.relu(conv(x))
            return self.head(x.mean(dim=(2, 3)))

    class LossLog:
        """The last losses, on the device; the host reads them once in a while."""

        def __init__(self) -> None:
            self.ring, self.steps, self.shown = torch.zeros(log_every), 0, list[float]()

        def add(self, loss: Tensor) -> None:
            self.ring[self.steps % log_every].copy_(loss)  # near: host_sync
            self.steps += 1
            if self.steps % log_every == 0:
                self.shown = self.ring.tolist()  # may: host_sync

    model, log = Net().to(dtype), LossLog()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, foreach=True)
    forward = wrap(model)
    images = torch.randn(batch_size, 3, 2 * size, 2 * size, dtype=dtype)
    labels = torch.randint(0, num_classes, (batch_size,))

    def training_step() -> Tensor:
        loss = F.cross_entropy(forward(images).float(), labels)  # near: linear_cross_entropy
        optimizer.zero_grad(set_to_none=True)  # near: gradient_zeroing
        loss.backward()
        optimizer.step()  # near: optimizer_unfused
        log.add(loss.detach())  # near: host_sync
        return loss.detach()

    return Built(training_step, list(model.parameters()))


def captions_searched(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 256, dim: int = 2048
) -> Built:
    """Captions by beams that never leave the device: who follows whom is an index, what was seen is projected once."""
    num_layers, num_beams, vocab_size, seen_len, max_len, num_words = 3, 4, 8000, 49, 8, 5
    num_heads, rows = max(1, dim // 64), batch_size * num_beams

    def split(x: Tensor) -> Tensor:
        return x.unflatten(-1, (num_heads, -1)).transpose(-3, -2)

    class DecoderLayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
            self.qkv, self.out, self.cross_q = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
            self.cross_kv, self.cross_out = nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
            self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x: Tensor, cache: Tensor, position: int, seen: tuple[Tensor, Tensor]) -> Tensor:
            q, k, v = self.qkv(self.norms[0](x)).chunk(3, dim=-1)
            cache[0, :, :, position] = split(k)[:, :, 0]  # near: cache_grown
            cache[1, :, :, position] = split(v)[:, :, 0]  # near: cache_grown
            keys, values = cache[:, :, :, : position + 1]
            x = x + self.out(F.scaled_dot_product_attention(split(q), keys, values).transpose(1, 2).flatten(2))
            cross_q = split(self.cross_q(self.norms[1](x)).view(batch_size, num_beams, dim))
            attended = F.scaled_dot_product_attention(cross_q, *seen)  # near: attention_unfused
            x = x + self.cross_out(attended.transpose(1, 2).reshape(rows, 1, dim))
            return x + self.fc2(F.gelu(self.fc1(self.norms[2](x))))

    class Captioner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(vocab_size, dim), nn.Linear(dim, vocab_size, bias=False)
            self.layers = nn.ModuleList(DecoderLayer() for _ in range(num_layers))

        def look(self, features: Tensor) -> list[tuple[Tensor, Tensor]]:
            """Project what was seen for all layers and words."""
            return [tuple(map(split, layer.cross_kv(features).chunk(2, dim=-1))) for layer in self.layers]

        def forward(self, words: Tensor, caches: Tensor, position: int, seen: list[tuple[Tensor, Tensor]]) -> Tensor:
            x = self.embed(words)[:, None]
            for layer, cache, each in zip(self.layers, caches, seen, strict=True):  # near: python_loop
                x = layer(x, cache, position, each)
            return self.head(x[:, 0]).float().log_softmax(dim=-1)  # near: linear_cross_entropy

    model = Captioner().to(dtype)
    decode, features = wrap(model), torch.randn(batch_size, seen_len, dim, dtype=dtype)
    first = torch.arange(batch_size)[:, None] * num_beams
    caches = torch.zeros(num_layers, 2, rows, num_heads, max_len, dim // num_heads, dtype=dtype)
    begin, unopened = torch.full((rows,), 1), torch.tensor([0.0, *(-1e9 for _ in range(num_beams - 1))])

    def caption() -> Tensor:
        seen, words = model.look(features), begin
        scores = unopened.repeat(batch_size, 1)
        for position in range(num_words):  # near: python_loop  # near: recurrence_unfused  # near: loop_invariant
            log_probs = decode(words, caches, position, seen)
            total = (scores[..., None] + log_probs.view(batch_size, num_beams, -1)).flatten(1)
            scores, flat = total.topk(num_beams, dim=1)  # near: host_sync
            parents = (first + flat // vocab_size).flatten()
            words = (flat % vocab_size).flatten()
            caches[..., : position + 1, :] = caches[:, :, parents, :, : position + 1]  # near: cache_grown
        return scores / num_words

    return Built(caption)


def returns_distributed(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 512, channels: int = 64
) -> Built:
    """Reinforcement by quantiles: replay lies on the device, targets follow over lists, and priorities stay there."""
    size, num_actions, num_quantiles, capacity, gamma = 84, 6, 32, 4096 if batch_size > 64 else 64, 0.99

    class QuantileNetwork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.down = nn.Conv2d(4, channels, 4, 2, 1), nn.Conv2d(channels, channels, 3, 2, 1)
            self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(4))
            self.head = nn.Linear(channels, num_actions * num_quantiles)

        def forward(self, frames: Tensor) -> Tensor:
            x = F.relu(self.stem(frames.to(dtype) / 255))
            for conv in self.convs:  # near: python_loop
                x = x + F.relu(conv(x))
            pooled = F.relu(self.down(x)).mean(dim=(2, 3))
            return self.head(pooled).float().unflatten(-1, (num_actions, num_quantiles))

    class DeviceReplay:
        """A ring of frames beside the network; what is drawn next was drawn ahead, as places."""

        def __init__(self) -> None:
            self.frames = torch.randint(0, 256, (capacity, 4, size, size), dtype=torch.uint8)
            self.actions, self.rewards = torch.randint(0, num_actions, (capacity,)), torch.randn(capacity)
            self.priorities, self.places = torch.ones(capacity), torch.randint(0, capacity - 1, (batch_size,))

        def sample(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            at = self.places
            return self.frames[at], self.actions[at], self.rewards[at], self.frames[at + 1]  # near: host_sync

        def update(self, errors: Tensor) -> None:
            self.priorities.index_copy_(0, self.places, errors)  # near: host_sync

    online, target, replay = QuantileNetwork().to(dtype), QuantileNetwork().to(dtype), DeviceReplay()
    optimizer, forward = torch.optim.Adam(online.parameters(), lr=1e-4, fused=True), wrap(online)
    levels = (torch.arange(num_quantiles) + 0.5) / num_quantiles

    @torch.no_grad()
    def bellman_targets(rewards: Tensor, following: Tensor) -> Tensor:
        quantiles = target(following)
        best = quantiles.mean(dim=2).argmax(dim=1)  # near: host_sync
        chosen = quantiles.gather(1, best[:, None, None].expand(-1, 1, num_quantiles))[:, 0]
        return rewards[:, None] + gamma * chosen

    def quantile_huber(predicted: Tensor, wanted: Tensor) -> Tensor:
        errors = wanted[:, None] - predicted[..., None]
        weights = (levels[:, None] - (errors.detach() < 0).float()).abs()
        huber = torch.where(errors.abs() < 1, 0.5 * errors.square(), errors.abs() - 0.5)
        return (weights * huber).sum(dim=1).mean(dim=1)

    @torch.no_grad()
    def follow() -> None:
        torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), 0.005)  # near: parameter_loop

    def update() -> Tensor:
        frames, actions, rewards, following = replay.sample()
        predicted = forward(frames).gather(1, actions[:, None, None].expand(-1, 1, num_quantiles))[:, 0]
        losses = quantile_huber(predicted, bellman_targets(rewards, following))
        loss = losses.mean()
        optimizer.zero_grad(set_to_none=True)  # near: gradient_zeroing
        loss.backward()
        optimizer.step()  # near: optimizer_unfused
        replay.update(losses.detach())
        follow()
        return loss.detach()

    return Built(update, [*online.parameters(), replay.priorities])


NEAR = (
    Labelled(
        lessons_accumulated, "ninth", {"batch_size": 1, "dim": 16}, Expected(FUSED), training=True, tolerance=5e-2
    ),
    Labelled(filters_rounded, "ninth", {"batch_size": 1, "channels": 4}, training=True, tolerance=5e-2),
    Labelled(captions_searched, "ninth", {"batch_size": 2, "dim": 16}, tolerance=5e-2),
    Labelled(
        returns_distributed, "ninth", {"batch_size": 3, "channels": 4}, Expected(FUSED), training=True, tolerance=5e-2
    ),
)
