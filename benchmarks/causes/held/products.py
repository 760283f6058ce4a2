"""Products and convolutions below their rate, and those that look so."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.causes.parts import (
    LAST,
    B,
    D,
    H,
    S,
    adamw,
    applied,
    conv,
    grouped_as_products,
    hidden,
    images,
    over,
    precise,
    residuals,
    rows,
    transformer,
    up_to,
    widened,
)
from benchmarks.causes.program import Step, program, size

# -- misaligned --------------------------------------------------------------------------------------------------------


@program
def misaligned_features(fixed: bool) -> Step:
    """1,003 input features in fp16: the inner dimension of the first product."""
    features, wide = size(1003, 37), up_to(size(1003, 37), 8)
    first, second = nn.Linear(features, size(4096)).to(H), nn.Linear(size(4096), size(1024)).to(H)
    x = torch.randn(size(16384), features, dtype=H)
    if fixed:
        first, x = widened(first, wide, first.out_features), F.pad(x, (0, wide - features))
    return over(lambda x: second(F.gelu(first(x))), x)


@program(training=True)
def misaligned_vocabulary_trained(fixed: bool) -> Step:
    """A vocabulary of 32,003 in a training step."""
    width, words = size(1024), size(32003, 1003)
    body, head = residuals(width, 1).to(B), nn.Linear(width, words, bias=False).to(B)
    head = widened(head, width, up_to(words)) if fixed else head
    updates = adamw([*body.parameters(), *head.parameters()])

    def step(x: Tensor, wanted: Tensor) -> tuple[Tensor, list[Tensor]]:
        updates.zero_grad(set_to_none=True)
        value = F.cross_entropy(head(body(x))[:, :words].float(), wanted)
        value.backward()
        updates.step()
        return value.detach(), [p.grad for p in body.parameters()]

    return over(step, rows(4096, dtype=B), torch.randint(0, words, (size(4096),)))


@program
def misaligned_decode() -> Step:
    """Four rows and a vocabulary of 50,257: the weights are read once, whatever their width."""
    head = nn.Linear(size(2048), size(50257, 1001), bias=False).to(B)
    return over(lambda x: head(x).argmax(-1), torch.randn(4, size(2048), dtype=B))


@program
def misaligned_not() -> Step:
    """Widths of 2,728 and 50,264: no powers of two, but multiples of 8."""
    width, inner, words = size(1024), size(2728, 88), size(50264, 1016)
    up, down = nn.Linear(width, inner).to(B), nn.Linear(inner, width).to(B)
    head = nn.Linear(width, words, bias=False).to(B)
    return over(lambda x: head(x + down(F.gelu(up(x)))), rows(4096, dtype=B))


# -- float32 without TF32 ----------------------------------------------------------------------------------------------


@program
def tf32_off_transformer(fixed: bool) -> Step:
    """A float32 transformer with the default precision; its attention is one call."""
    return precise("high" if fixed else "highest", applied(transformer(), hidden(4, dtype=S)))


@program
def tf32_off_batched(fixed: bool) -> Step:
    """Batches of large float32 products with the default precision."""
    left, right = (torch.randn(size(16, 2), size(1024), size(1024)) for _ in range(2))
    step = over(lambda a, b: torch.bmm(torch.relu(torch.bmm(a, b)), b), left, right)
    return precise("high" if fixed else "highest", step)


@program
def tf32_small() -> Step:
    """Tiny float32 products with the default precision beside reductions of large tensors."""
    layers = nn.Sequential(nn.Linear(size(64, 16), size(64, 16)), nn.ReLU(), nn.Linear(size(64, 16), size(64, 16)))
    grids = torch.randn(size(256, 4), size(64, 16), size(16384))
    return precise("highest", over(lambda x: layers(x.mean(-1)) + layers(x.amax(-1)), grids))


@program
def tf32_one_row() -> Step:
    """One row through large float32 layers: the weights are read once, at any precision."""
    layers = nn.Sequential(*(nn.Linear(size(8192), size(8192), bias=False) for _ in range(6)))
    return precise("highest", applied(layers, torch.randn(1, size(8192))))


# -- float64 by accident -----------------------------------------------------------------------------------------------


@program
def float64_filters(fixed: bool) -> Step:
    """A bank of filters in float64 over a power spectrum."""
    bank = torch.rand(size(128), size(1024) + 1, dtype=D)
    if fixed:
        bank = bank.float()
    window = torch.hann_window(size(2048))

    def call(sound: Tensor) -> Tensor:
        spectrum = torch.stft(sound, size(2048), size(512), window=window, return_complex=True)
        power = spectrum.real.square() + spectrum.imag.square()
        return torch.matmul(bank, power.to(bank.dtype)).float().clamp(min=1e-5).log()

    return over(call, torch.randn(size(64, 2), size(480_000, 4096)))


@program
def float64_promoted(fixed: bool) -> Step:
    """Weights of samples in float64 make float64 of all that they are multiplied with."""
    dtype = S if fixed else D
    weights, mix = torch.rand(size(8192), 1).to(dtype), torch.randn(size(1024), size(1024)).to(dtype)

    def call(x: Tensor) -> Tensor:
        return ((x * weights) @ mix).relu().float()

    return over(call, rows(8192))


@program
def float64_sums() -> Step:
    """Sums alone are kept in float64."""
    body = residuals(size(1024)).to(B)
    total = torch.zeros((), dtype=D)

    def call(x: Tensor) -> tuple[Tensor, Tensor]:
        out = body(x)
        return out, total + out.double().sum()

    return over(call, rows(8192, dtype=B))


@program
def float64_corners() -> Step:
    """A transform of 16 by 16 in float64, beside a large network in bfloat16."""
    body, turn = residuals(size(1024)).to(B), torch.randn(16, 16, dtype=D)

    def call(x: Tensor) -> tuple[Tensor, Tensor]:
        out = body(x)
        return out, out[:16, :16].double() @ turn

    return over(call, rows(8192, dtype=B))


# -- grouped convolutions ----------------------------------------------------------------------------------------------


def along(channels: int, groups: int, kernel: int, dtype: torch.dtype) -> nn.Conv1d:
    made = nn.Conv1d(size(channels, 64), size(channels, 64), kernel, padding=kernel // 2, groups=groups)
    return made.to(dtype).eval()


@program
def grouped_eighths(fixed: bool) -> Step:
    """512 channels in 8 groups, kernel 31, bfloat16."""
    layer = along(512, 8, 31, B)
    x = torch.randn(size(8, 2), size(512, 64), size(1024), dtype=B)
    return over(lambda x: F.silu(grouped_as_products(layer, x) if fixed else layer(x)), x)


@program
def grouped_quarters(fixed: bool) -> Step:
    """1,024 channels in 4 groups, kernel 65, fp16; twice."""
    layers = [along(1024, 4, size(65, 9), H) for _ in range(2)]

    def call(x: Tensor) -> Tensor:
        for layer in layers:
            x = F.relu(grouped_as_products(layer, x) if fixed else layer(x))
        return x

    return over(call, torch.randn(4, size(1024, 64), size(512), dtype=H))


@program
def grouped_depthwise_images() -> Step:
    """One channel a group, 7 by 7, channels last: bound by memory by nature."""
    layers = nn.Sequential(*(conv(384, kernel=7, groups=size(384, 8)).to(H) for _ in range(3))).to(memory_format=LAST)
    return applied(layers, images(32, 384, 28).to(memory_format=LAST))


@program
def grouped_linear() -> Step:
    """A block-diagonal layer as one batch of products."""
    weight = torch.randn(16, size(256), size(256), dtype=H) / 16
    return over(lambda x: F.gelu(torch.bmm(x, weight)), torch.randn(16, size(8192), size(256), dtype=H))


# -- many small products -----------------------------------------------------------------------------------------------


@program
def small_products_times(fixed: bool) -> Step:
    """Each place of a sequence is projected by itself, though none needs another."""
    layer, out = nn.Linear(size(1024), size(1024)).to(H), nn.Linear(size(1024), size(512)).to(H)

    def one(x: Tensor) -> Tensor:
        return out(F.relu(layer(x)))

    def call(x: Tensor) -> Tensor:
        return one(x) if fixed else torch.stack([one(x[:, at]) for at in range(x.shape[1])], 1)

    return over(call, torch.randn(8, size(192, 6), size(1024), dtype=H))


@program
def small_products_list(fixed: bool) -> Step:
    """Two lists of matrices, multiplied pair by pair."""
    left, right = (torch.randn(size(192, 6), size(128), size(128), dtype=H) for _ in range(2))

    def call(a: Tensor, b: Tensor) -> Tensor:
        if fixed:
            return torch.bmm(a, b).relu()
        return torch.stack([(one @ two).relu() for one, two in zip(a.unbind(), b.unbind(), strict=True)])

    return over(call, left, right)


@program
def small_products_ragged() -> Step:
    """32 products of as many shapes, each of an input of its own."""
    widths = [size(256 + 64 * at, 8 + 8 * at) for at in range(32)]
    layers = [nn.Linear(width, width).to(B) for width in widths]
    inputs = [torch.randn(64, width, dtype=B) for width in widths]
    return over(lambda *x: [layer(one) for layer, one in zip(layers, x, strict=True)], *inputs)


@program
def small_products_layers() -> Step:
    """One row through 24 layers: each product needs the one before."""
    return applied(residuals(size(2048), 12).to(B), rows(1, 2048, dtype=B)[:1])
