"""Labelled programs whose kernels set the pace: of decoders, towers and simulations, in 16, 32 and 64 bits.

With those of `labelled_seventh_*.py` they were labelled from their sources before anything looked at them. Labels:
`labels.py`; `labelled.py score` counts them apart.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labelled_seventh_loops import LOOPS
from programs.labelled_seventh_near import NEAR
from programs.labelled_seventh_parts import HALF, LossOfRows, Residual, heads_of, split_heads, tower
from programs.labelled_seventh_waits import WAITING
from programs.labels import Built, Labelled
from programs.program import unchanged


def codes_decoded(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 6, wide: int = 128
) -> Built:
    """Pictures from codes: the decoder of an autoencoder stays in float32 as its file was, "to be on the safe side"."""
    side, weights = 32, dtype if fixed else torch.float32

    class Middle(nn.Module):
        def __init__(self, wide: int) -> None:
            super().__init__()
            self.norm, self.qkv, self.out = nn.GroupNorm(8, wide), nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = split_heads(self.qkv(self.norm(x).flatten(2).mT), 3, heads_of(x.shape[1]))
            seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            return x + self.out(seen).mT.reshape(x.shape)

    def level(enter: int, leave: int) -> list[nn.Module]:
        return [Residual(enter, leave), Residual(leave, leave), nn.Upsample(scale_factor=2.0)]

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.middle = nn.Conv2d(4, 4 * wide, 3, padding=1), Middle(4 * wide)
            widths = [(4 * wide, 4 * wide), (4 * wide, 2 * wide), (2 * wide, wide)]
            self.levels = nn.Sequential(*(layer for pair in widths for layer in level(*pair)))
            self.leave = nn.Sequential(Residual(wide, wide), nn.SiLU(), nn.Conv2d(wide, 3, 3, padding=1))

        def forward(self, codes: Tensor) -> Tensor:
            x = self.middle(self.enter(codes))  # same: float32_inference
            return self.leave(self.levels(x))  # cause: float32_inference, main

    class Autoencoder:
        def __init__(self) -> None:
            self.decoder, self.scale = wrap(Decoder().to(weights)), 0.18

        def decode(self, codes: Tensor) -> Tensor:
            shown = self.decoder((codes / self.scale).to(weights))  # same: float32_inference
            return (shown.float() / 2 + 0.5).clamp(0, 1)

    autoencoder, codes = Autoencoder(), 0.18 * torch.randn(pictures, 4, side, side)
    return Built(lambda: autoencoder.decode(codes)[:, :, ::4, ::4])  # same: float32_inference


def texts_by_slopes(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = HALF,
    texts: int = 8,
    width: int = 1024,
    length: int = 1024,
) -> Built:
    """A language model that knows distance by slopes, added to its scores in float32 as in the paper's code."""
    layers, heads, words = 3, max(1, width // 64), 8000
    slopes = 2 ** (-8 * torch.arange(1, heads + 1) / heads)
    apart = torch.arange(length) - torch.arange(length)[:, None]
    later = apart > 0
    bias = (slopes[:, None, None] * apart).masked_fill(later, -math.inf)

    class Sloped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.next = nn.LayerNorm(width)
            self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def spelled(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            scores = q.float() @ k.float().mT  # cause: float32_batched_product  # same: attention_biased
            scores = scores / q.shape[-1] ** 0.5 + bias  # same: attention_biased
            chances = scores.softmax(-1)  # cause: attention_biased, main
            return (chances @ v.float()).to(v.dtype)  # same: float32_batched_product  # same: attention_biased

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = split_heads(self.qkv(self.norm(x)), 3, heads)
            if fixed:
                seen = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))  # near: attention_unfused
            else:
                seen = self.spelled(q, k, v)  # same: attention_biased  # same: float32_batched_product
            x = x + self.out(seen.transpose(1, 2).flatten(2))
            return x + self.feed(self.next(x))

    model = nn.Sequential(nn.Embedding(words, width), *(Sloped() for _ in range(layers)))
    function, text = wrap(model.to(dtype)), torch.randint(0, words, (texts, length))
    return Built(lambda: function(text)[:, -8:].float())  # same: attention_biased  # same: float32_batched_product


def pictures_permuted(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 96, wide: int = 128
) -> Built:
    """Pictures by convolutions and layers over channels, each of which gets them in the order that it asks for."""
    side, blocks = 56, 8
    order = torch.channels_last if fixed else torch.contiguous_format

    def in_order(x: Tensor) -> Tensor:
        return x if fixed else x.contiguous()

    class Modern(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(wide, wide, 3, padding=1), nn.LayerNorm(wide)
            self.up, self.down = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)
            self.scale = nn.Parameter(0.1 * torch.ones(wide))

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)  # same: layout_copied
            y = in_order(y.permute(0, 2, 3, 1))  # cause: layout_copied, main
            y = self.scale * self.down(F.gelu(self.up(self.norm(y))))
            return x + in_order(y.permute(0, 3, 1, 2))  # same: layout_copied

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.blocks = nn.Conv2d(3, wide, 4, 4), nn.Sequential(*(Modern() for _ in range(blocks)))
            self.leave = nn.Linear(wide, 100)

        def forward(self, x: Tensor) -> Tensor:
            return self.leave(self.blocks(self.enter(x)).mean((2, 3)))  # same: layout_copied

    function = wrap(Net().to(dtype).to(memory_format=order))
    x = torch.randn(pictures, 3, 4 * side, 4 * side, dtype=dtype).to(memory_format=order)
    return Built(lambda: function(x).float())  # same: layout_copied


def towers_by_hand(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 32, width: int = 1024
) -> Built:
    """An old encoder, ported line by line: its norm and its bend are written out of sums, roots and a tangent."""
    length, depth = 512, 5

    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain, self.shift = nn.Parameter(torch.rand(width) + 0.5), nn.Parameter(torch.randn(width) / 8)

        def forward(self, x: Tensor) -> Tensor:
            if fixed:
                return F.layer_norm(x, (width,), self.gain, self.shift, 1e-6)
            wide = x.float()  # same: chain_unfused
            apart = wide - wide.mean(-1, keepdim=True)  # same: chain_unfused
            spread = apart.pow(2).mean(-1, keepdim=True)  # same: chain_unfused
            return (apart / torch.sqrt(spread + 1e-6)).to(x.dtype) * self.gain + self.shift  # same: chain_unfused

    def bent(x: Tensor) -> Tensor:
        if fixed:
            return F.gelu(x, approximate="tanh")
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))  # cause: chain_unfused, main
        return 0.5 * x * (1 + torch.tanh(inner))  # same: chain_unfused

    class Ported(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Norm(), Norm()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = split_heads(self.qkv(self.first(x)), 3, heads_of(width))  # same: chain_unfused
            x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            return x + self.down(bent(self.up(self.second(x))))  # same: chain_unfused

    function = wrap(nn.Sequential(*(Ported() for _ in range(depth))).to(dtype))
    x = torch.randn(texts, length, width, dtype=dtype)
    return Built(lambda: function(x).mean(1).float())  # same: chain_unfused


def words_ahead(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = HALF,
    texts: int = 4,
    width: int = 1024,
    words: int = 32000,
) -> Built:
    """Pretraining on the next three words, whose losses, kept near to nought, each write all logits in float32."""
    length, heads, strength, rows = 512, 3, 1e-4, 512
    text = torch.randint(0, words, (texts, length + heads))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.layers = nn.Embedding(words, width), tower(width, 3, causal=True)
            self.turns = nn.ModuleList(nn.Linear(width, width) for _ in range(heads))
            self.head = nn.Linear(width, words, bias=False)

        def forward(self, text: Tensor) -> Tensor:
            return self.layers(self.table(text))

    def loss_of(hidden: Tensor, goals: Tensor) -> Tensor:
        if fixed:
            return LossOfRows.apply(hidden, model.head.weight, goals, strength, rows)
        logits = model.head(hidden).float()  # same: linear_cross_entropy
        whole = logits.logsumexp(-1)  # same: linear_cross_entropy
        return F.cross_entropy(logits, goals) + strength * whole.square().mean()  # cause: linear_cross_entropy, main

    model = Model().to(dtype)
    parameters, function = list(model.parameters()), wrap(model)
    optimizer = torch.optim.SGD(parameters, lr=1e-2, foreach=True)

    def step() -> Tensor:
        hidden, losses = function(text[:, :length]), []
        for ahead, turn in enumerate(model.turns, 1):  # near: python_loop  # same: linear_cross_entropy
            goals = text[:, ahead : ahead + length].flatten()
            losses.append(loss_of(turn(hidden).flatten(0, 1), goals))  # same: linear_cross_entropy
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()  # same: linear_cross_entropy
        optimizer.step()
        return loss.detach()

    return Built(step, parameters[1:])


def options_priced(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, paths: int = 524288, assets: int = 16
) -> Built:
    """Finance: prices are simulated in float32, but how much each varies came from a file in float64."""
    times, rate, strike = 16, 0.03, 1.0
    span = 1.0 / times
    spread = torch.linspace(0.1, 0.5, assets, dtype=torch.float64)
    shocks = torch.randn(times, paths // 2, assets, dtype=torch.float32)

    class Market:
        def __init__(self, spread: Tensor) -> None:
            self.spread = spread.float() if fixed else spread

        def moved(self, prices: Tensor, shock: Tensor) -> Tensor:
            drift = (rate - 0.5 * self.spread.square()) * span  # same: float64_beside
            return prices * (drift + self.spread * span**0.5 * shock).exp()  # cause: float64_beside, main

    market = Market(spread)
    move = wrap(market.moved)

    def priced() -> Tensor:
        begin = torch.ones(2, paths // 2, assets, device=shocks.device)
        (up, down), total = begin, torch.zeros_like(begin[0])
        for shock in shocks:  # near: python_loop  # near: recurrence_unfused  # same: float64_beside
            up, down = move(up, shock), move(down, -shock)  # same: float64_beside
            total = total + (up + down) / 2  # same: float64_beside
        worth = (total / times - strike).clamp(min=0)  # same: float64_beside
        return (math.exp(-rate) * worth.mean(0)).float()  # same: float64_beside

    return Built(priced)


KERNELS = (
    Labelled(codes_decoded, "seventh", {"pictures": 1, "wide": 8}, tolerance=5e-2),
    Labelled(texts_by_slopes, "seventh", {"texts": 1, "width": 16, "length": 24}, tolerance=5e-2),
    Labelled(pictures_permuted, "seventh", {"pictures": 1, "wide": 8}, tolerance=5e-2),
    Labelled(towers_by_hand, "seventh", {"texts": 1, "width": 16}, tolerance=5e-2),
    Labelled(words_ahead, "seventh", {"texts": 1, "width": 16, "words": 50}, training=True, tolerance=5e-2),
    Labelled(options_priced, "seventh", {"paths": 64, "assets": 4}),
)
SEVENTH = (*WAITING, *LOOPS, *KERNELS, *NEAR)
