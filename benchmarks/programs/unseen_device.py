"""Those of `unseen.py` whose device has the work: a biased attention, a layout, a loss on maps, rotations, a size."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.program import Program, Step, unchanged

# -- attention within windows ------------------------------------------------------------------------------------------


def window_attention(wrap: Any = unchanged, windows: int = 1024, library: bool = False) -> Step:
    """Attention within windows of a picture, with a learnt bias for each pair of places."""
    width, heads, side, layers = 192, 6, 8, 4
    model = nn.ModuleList([nn.Linear(width, 3 * width), nn.Linear(width, width)][at % 2] for at in range(2 * layers))
    model = model.to(torch.bfloat16).requires_grad_(False)
    bias = torch.randn(layers, heads, side**2, side**2, dtype=torch.bfloat16)
    x = torch.randn(windows, side**2, width, dtype=torch.bfloat16)

    def mixed(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        if library:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])
        scores = q * q.shape[-1] ** -0.5 @ k.transpose(-2, -1)
        return torch.softmax(scores + bias[None], -1) @ v

    def forward(x: Tensor) -> Tensor:
        for at in range(layers):
            parts = model[2 * at](x).chunk(3, -1)
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
            x = x + model[2 * at + 1](mixed(q, k, v, bias[at]).transpose(1, 2).flatten(2))
        return x

    function = wrap(forward)
    return lambda: function(x)[:32]


def window_attention_by_library(wrap: Any = unchanged, **sizes: int) -> Step:
    return window_attention(wrap, library=True, **sizes)


# -- larger pictures ---------------------------------------------------------------------------------------------------


class Sharper(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.first = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.second = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.leave = nn.Conv2d(width, 3 * 16, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x)
        for first, second in zip(self.first, self.second, strict=True):
            h = h + second(F.relu(first(h)))
        return F.pixel_shuffle(self.leave(h), 4)


def super_resolution(wrap: Any = unchanged, batch: int = 16, side: int = 96, last: bool = False) -> Step:
    """Pictures made four times as wide, in bfloat16 and in the layout that tensors have by default."""
    model = Sharper(128, 8).to(torch.bfloat16).requires_grad_(False)
    x = torch.randn(batch, 3, side, side, dtype=torch.bfloat16)
    if last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    function = wrap(model)
    return lambda: function(x)


def super_resolution_last(wrap: Any = unchanged, **sizes: int) -> Step:
    return super_resolution(wrap, last=True, **sizes)


# -- a loss on large maps ----------------------------------------------------------------------------------------------


def focal(logits: Tensor, wanted: Tensor) -> Tensor:
    said = torch.sigmoid(logits)
    right = said * wanted + (1 - said) * (1 - wanted)
    loss = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none") * (1 - right) ** 2
    return ((0.25 * wanted + 0.75 * (1 - wanted)) * loss).sum() / wanted.sum().clamp(min=1)


def detector(wrap: Any = unchanged, batch: int = 8, side: int = 64, compiled: bool = False) -> Step:
    """A detector's head, trained with a focal loss over all places, anchors and classes."""
    head = nn.Conv2d(128, 9 * 80, 3, padding=1)
    features, wanted = torch.randn(batch, 128, side, side), (torch.rand(batch, 720, side, side) < 0.01).float()
    loss_of = torch.compile(focal) if compiled else focal
    function = wrap(lambda x: loss_of(head(x), wanted))

    def step() -> Tensor:
        head.zero_grad()
        function(features).backward()
        return head.weight.grad

    return step


def detector_compiled_loss(wrap: Any = unchanged, **sizes: int) -> Step:
    return detector(wrap, compiled=True, **sizes)


# -- places, turned ----------------------------------------------------------------------------------------------------


def halves_turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def rotated(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return q * cos + halves_turned(q) * sin, k * cos + halves_turned(k) * sin


def rotary(wrap: Any = unchanged, batch: int = 4, length: int = 2048, compiled: bool = False) -> Step:
    """The library's attention over queries and keys that are rotated operator by operator."""
    width, heads, layers = 1024, 16, 6
    model = nn.ModuleList([nn.Linear(width, 3 * width), nn.Linear(width, width)][at % 2] for at in range(2 * layers))
    model = model.to(torch.bfloat16).requires_grad_(False)
    angle = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(32) / 32)
    cos, sin = (torch.cat((part, part), -1).bfloat16() for part in (angle.cos(), angle.sin()))
    x = torch.randn(batch, length, width, dtype=torch.bfloat16)
    rotate = torch.compile(rotated) if compiled else rotated

    def forward(x: Tensor) -> Tensor:
        for at in range(layers):
            parts = model[2 * at](x).chunk(3, -1)
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
            q, k = rotate(q, k, cos, sin)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + model[2 * at + 1](mixed.transpose(1, 2).flatten(2))
        return x

    function = wrap(forward)
    return lambda: function(x)


def rotary_compiled(wrap: Any = unchanged, **sizes: int) -> Step:
    return rotary(wrap, compiled=True, **sizes)


# -- an odd number of words --------------------------------------------------------------------------------------------


def odd_words(wrap: Any = unchanged, rows: int = 4096, words: int = 50_257, padded: bool = False) -> Step:
    """How likely each word of a text is, of as many words as a tokenizer happens to have."""
    norm, head = nn.LayerNorm(1024), nn.Linear(1024, words, bias=False)
    weight = head.weight.detach() * 8
    if padded:
        weight = F.pad(weight, (0, 0, 0, -words % 64))
    weight, norm = weight.bfloat16(), norm.to(torch.bfloat16).requires_grad_(False)
    x, labels = torch.randn(rows, 1024, dtype=torch.bfloat16), torch.randint(0, words, (rows,))

    def forward(x: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(norm(x), weight)[:, :words].float(), labels, reduction="none")

    function = wrap(forward)
    return lambda: function(x)


def odd_words_padded(wrap: Any = unchanged, **sizes: int) -> Step:
    return odd_words(wrap, padded=True, **sizes)


UNSEEN_DEVICE = (
    Program(
        "window_attention",
        window_attention,
        {"library": (("attention_unfused",), window_attention_by_library)},
        capturable=True,
        tolerance=5e-2,
        then_compiled=("library",),
    ),
    Program(
        "super_resolution",
        super_resolution,
        {"channels_last": (("channels_last",), super_resolution_last)},
        capturable=True,
        tolerance=5e-2,
        then_compiled=("channels_last",),
    ),
    Program("detector", detector, {"compiled_loss": (("memory_bound_chain",), detector_compiled_loss)}, training=True),
    Program(
        "rotary", rotary, {"compiled_rotation": (("rotary_unfused",), rotary_compiled)}, capturable=True, tolerance=5e-2
    ),
    Program(
        "odd_words",
        odd_words,
        {"padded": (("misaligned_product",), odd_words_padded)},
        capturable=True,
        then_compiled=("padded",),
    ),
)
