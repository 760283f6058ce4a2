"""Programs of the second part that was held back: optimal."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.causes.parts import LAST, B, Layer, adamw, applied, conv, images, rows, sdpa, trained, transformer
from benchmarks.causes.program import Step, program, size

# -- language ----------------------------------------------------------------------------------------------------------


class Cached(nn.Module):
    """A layer of a decoder that writes its keys and values where they belong."""

    def __init__(self, width: int, heads: int, batch: int, room: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate_up, self.down = nn.Linear(width, 8 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.heads = heads
        for name in ("keys", "values"):
            self.register_buffer(name, torch.randn(batch, heads, room, width // heads))

    def forward(self, x: Tensor, at: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norms[0](x)).view(x.shape[0], 1, 3, self.heads, -1).transpose(1, 3).unbind(2)
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)
        seen = sdpa(q, self.keys, self.values, attn_mask=mask)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        gate, up = self.gate_up(self.norms[1](x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Storyteller(nn.Module):
    def __init__(self, width: int, batch: int, room: int, words: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(room, width)
        self.layers = nn.ModuleList(Cached(width, 8, batch, room) for _ in range(3))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)
        self.register_buffer("mask", torch.full((room, room), float("-inf")).triu(1))
        self.register_buffer("at", torch.tensor([room // 2]))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(self.at)
        mask = self.mask.index_select(0, self.at)
        for layer in self.layers:
            x = layer(x, self.at, mask)
        self.at.add_(1).remainder_(len(self.mask))
        return self.head(self.norm(x)).argmax(-1)


@program
def stories_word_by_word() -> Step:
    """One word of a decoder with room for its keys and values, and its mask held."""
    batch, words = size(32, 8), size(32768, 64)
    model = Storyteller(size(1024, 64), batch, size(2048, 64), words).to(B)
    return applied(model, torch.randint(words, (batch, 1)))


class Mixed(nn.Module):
    """Experts side by side in two wide products; each token weighs them all."""

    def __init__(self, width: int, experts: int, inner: int) -> None:
        super().__init__()
        self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, experts)
        self.up, self.down = nn.Linear(width, experts * inner), nn.Linear(experts * inner, width)
        self.experts = experts

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        shares = self.router(y).softmax(-1)
        inner = F.gelu(self.up(y)).unflatten(-1, (self.experts, -1))
        return x + self.down((inner * shares.unsqueeze(-1)).flatten(-2))


@program(training=True)
def tongues_by_soft_experts() -> Step:
    """Experts that are all asked, weighed by a softmax, trained in bfloat16."""
    width = size(1024, 64)
    model = nn.Sequential(*(Mixed(width, 8, size(512)) for _ in range(2))).to(B)
    return trained(model, torch.randn(size(8192), width, dtype=B))


# -- vision ------------------------------------------------------------------------------------------------------------


class Bottleneck(nn.Module):
    """A residual block whose norms have been folded away."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.narrow, self.middle = conv(channels, inner, 1), conv(inner)
        self.wide = conv(inner, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu_(self.middle(F.relu_(self.narrow(x))))
        return F.relu_(self.wide(inner).add_(x))


@program
def satellites_without_norms() -> Step:
    """Residual blocks over satellite images of 16 bands, norms folded, channels last."""
    blocks = [Bottleneck(256, 64), Bottleneck(256, 64), Bottleneck(256, 128)]
    model = nn.Sequential(conv(16, 256), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model.append(nn.Linear(size(256, 8), size(64)))
    return applied(model.half().to(memory_format=LAST), images(32, 16, 64).to(memory_format=LAST))


class Normed(nn.Module):
    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.conv, self.norm = conv(channels, out, bias=False), nn.BatchNorm2d(size(out, 8))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)))


class Segmenter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.low, self.back = Normed(16, 64), Normed(64, 128), Normed(128, 64)
        joined = 2 * size(64, 8)
        self.join = nn.Conv2d(joined, size(64, 8), 3, padding=1)
        self.last = conv(64, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.first(x)
        coarse = self.back(self.low(F.max_pool2d(fine, 2)))
        both = torch.cat((fine, F.interpolate(coarse, scale_factor=2.0, mode="nearest")), 1)
        return self.last(F.relu(self.join(both)))


@program(training=True)
def tissues_outlined() -> Step:
    """A small U-net in bfloat16 and channels last, its BatchNorms in training and float32."""
    model = Segmenter().to(B)
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.float()
    model = model.to(memory_format=LAST)
    x = images(8, 16, 128, B).to(memory_format=LAST)
    truth = (images(8, 16, 128, torch.float32) > 0).float().to(memory_format=LAST)
    return trained(model, x, truth, loss=lambda a, b: F.binary_cross_entropy_with_logits(model(a).float(), b))


# -- speech, recommendation, graphs ------------------------------------------------------------------------------------


@program(training=True)
def speech_to_senones() -> Step:
    """Four stacked frames a token, attention by the library, a loss in float32; weights are bfloat16."""
    width, kinds, length = size(1024, 64), size(4096, 64), size(512)
    model = nn.Sequential(nn.Linear(320, width), transformer(layers=2), nn.LayerNorm(width), nn.Linear(width, kinds))
    model = model.to(B)
    frames = torch.randn(size(8, 2), length, 320, dtype=B)
    senones = torch.randint(kinds, (size(8, 2), length))

    def loss(x: Tensor, truth: Tensor) -> Tensor:
        return F.cross_entropy(model(x).flatten(0, 1).float(), truth.flatten())

    return trained(model, frames, senones, loss=loss)


class Ranked(nn.Module):
    """All fields in one table; pairs of fields by one product."""

    def __init__(self, fields: int, each: int, width: int) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(fields * each, width, mode="sum")
        self.dense = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU())
        top = width + (fields + 1) ** 2
        self.top = nn.Sequential(nn.Linear(top, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 8))
        self.register_buffer("starts", (torch.arange(fields) * each).unsqueeze(-1))

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        batch, fields, _ = ids.shape
        looked = self.table((ids + self.starts).flatten(0, 1)).view(batch, fields, -1)
        dense = self.dense(numbers)
        each = torch.cat((dense.unsqueeze(1), looked), 1)
        return self.top(torch.cat((dense, torch.bmm(each, each.mT).flatten(1)), 1))


@program(training=True)
def films_in_one_table() -> Step:
    """A ranking model of 31 fields that share a table, trained in float32 with TF32."""
    each, batch = size(4000), size(8192)
    ids = torch.randint(each, (batch, 31, 4))
    return trained(Ranked(31, each, 64), torch.randn(batch, 64), ids)


class Messages(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(3 * width, width), nn.SiLU(), nn.Linear(width, width))
        self.node = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, bonds: Tensor, source: Tensor, target: Tensor) -> Tensor:
        ends = (x.index_select(0, source), x.index_select(0, target), bonds)
        gathered = torch.zeros_like(x).index_add_(0, target, self.edge(torch.cat(ends, -1)))
        return self.norm(x + self.node(torch.cat((x, gathered), -1)))


class Molecules(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.rounds = nn.ModuleList(Messages(width) for _ in range(2))

    def forward(self, x: Tensor, *graph: Tensor) -> Tensor:
        for messages in self.rounds:
            x = messages(x, *graph)
        return x


@program(training=True)
def molecules_by_messages() -> Step:
    """Messages along the bonds of a batch of molecules, in float32 with TF32."""
    width, atoms, bonds = size(128, 16), size(16384), size(131072)
    ends = [torch.randint(atoms, (bonds,)) for _ in range(2)]
    return trained(Molecules(width), torch.randn(atoms, width), torch.randn(bonds, width), *ends)


# -- science, diffusion, reinforcement learning ------------------------------------------------------------------------


class SquaredUnit(nn.Module):
    """A gated unit whose places are mixed by squared ReLUs of products, with no softmax."""

    def __init__(self, width: int, head: int, length: int) -> None:
        super().__init__()
        self.norm, self.scale = nn.LayerNorm(width), 1 / length
        self.widths = [2 * width, 2 * width, head, head]
        self.into, self.out = nn.Linear(width, sum(self.widths)), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        gate, value, q, k = self.into(self.norm(x)).split(self.widths, -1)
        weights = F.relu(torch.bmm(q, k.mT)).square() * self.scale
        return x + self.out(torch.bmm(weights, F.silu(value)) * F.silu(gate))


@program
def proteins_by_squared_units() -> Step:
    """Gated units over residues: two batched products with no softmax between."""
    width, length = size(768, 64), size(1024)
    model = nn.Sequential(*(SquaredUnit(width, size(128, 16), length) for _ in range(3))).to(B)
    return applied(model, torch.randn(size(8, 2), length, width, dtype=B))


class Denoiser(nn.Module):
    """Layers that are shifted and scaled by the time and a caption; all shifts come from one product."""

    def __init__(self, width: int, layers: int, times: int) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(64, width), nn.Linear(width, 64)
        self.layers = nn.ModuleList(Layer(width, 16, sdpa) for _ in range(layers))
        self.shifts = nn.Linear(width, 2 * layers * width)
        self.register_buffer("times", torch.randn(times, width))

    def forward(self, x: Tensor, caption: Tensor) -> Tensor:
        for moved in self.shifts(F.silu(caption.unsqueeze(1) + self.times)).split(1, 1):
            y, shifts = self.into(x), moved.chunk(2 * len(self.layers), -1)
            for layer, scale, shift in zip(self.layers, shifts[::2], shifts[1::2], strict=True):
                y = layer(torch.addcmul(y + shift, y, scale))
            x = torch.add(x, self.out(y), alpha=-1 / len(self.times))
        return x


@program
def latents_denoised() -> Step:
    """Three steps of a diffusion transformer, its embeddings of time held."""
    width, batch = size(1024, 64), size(8, 2)
    model = Denoiser(width, 2, 3).to(B)
    return applied(model, torch.randn(batch, size(1024), 64, dtype=B), torch.randn(batch, width, dtype=B))


class Player(nn.Module):
    def __init__(self, seen: int, width: int, actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(seen, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.policy, self.value = nn.Linear(width, actions), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.body(x)
        return self.policy(x).log_softmax(-1), self.value(x).squeeze(-1)


@program(training=True)
def walkers_by_clipped_policy() -> Step:
    """Proximal policy optimisation: gradients clipped over lists, Adam fused, float32 with TF32."""
    batch, actions = size(16384), size(64, 8)
    model = Player(size(256), size(1024), actions)
    parameters = list(model.parameters())

    def loss(seen: Tensor, action: Tensor, before: Tensor, gain: Tensor, worth: Tensor) -> Tensor:
        chances, value = model(seen)
        ratio = (chances.gather(-1, action).squeeze(-1) - before).exp()
        gained = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        entropy = -(chances.exp() * chances).sum(-1).mean()
        return F.mse_loss(value, worth) - gained - 0.01 * entropy

    given = [torch.randint(actions, (batch, 1)), torch.randn(batch) * 0.1 - 4, torch.randn(batch), torch.randn(batch)]
    return trained(
        model,
        rows(16384, 256),
        *given,
        loss=loss,
        optimizer=adamw(parameters, lr=3e-4),
        between=lambda: nn.utils.clip_grad_norm_(parameters, 0.5, foreach=True),
    )
