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
    applied,
    conv,
    grouped_as_products,
    images,
    over,
    precise,
    residuals,
    rows,
    trained,
    up_to,
    widened,
)
from benchmarks.causes.program import Step, program, size

# -- misaligned --------------------------------------------------------------------------------------------------------


@program
def misaligned_vocabulary(fixed: bool) -> Step:
    """A vocabulary of 50,257 in bfloat16."""
    width, words = size(1024), size(50257, 1001)
    body, head = residuals(width, 1).to(B), nn.Linear(width, words, bias=False).to(B)
    head = widened(head, width, up_to(words)) if fixed else head
    return over(lambda x: head(body(x))[..., :words], rows(4096, dtype=B))


@program
def misaligned_swiglu(fixed: bool) -> Step:
    """A hidden width of 2,730: two thirds of 4,096, rounded down."""
    width, inner = size(1024), size(2730, 85)
    layers = []
    for _ in range(3):
        gate, up = (nn.Linear(width, inner, bias=False).to(H) for _ in range(2))
        down = nn.Linear(inner, width, bias=False).to(H)
        if fixed:
            gate, up = (widened(one, width, up_to(inner)) for one in (gate, up))
            down = widened(down, up_to(inner), width)
        layers.append(nn.ModuleList((gate, up, down)))

    def call(x: Tensor) -> Tensor:
        for gate, up, down in layers:
            x = x + down(F.silu(gate(x)) * up(x))
        return x

    return over(call, rows(8192, dtype=H))


@program
def misaligned_rows() -> Step:
    """5,185 rows, and nothing else odd."""
    return applied(residuals(size(1024), 2).to(B), torch.randn(size(5185, 161), size(1024), dtype=B))


@program
def misaligned_classifier() -> Step:
    """1,001 classes of 64 pooled rows behind a large network: nothing of the time."""
    body, head = residuals(size(1024), 2).to(B), nn.Linear(size(1024), size(1001, 31)).to(B)
    x = torch.randn(size(64, 4), size(128), size(1024), dtype=B)
    return over(lambda x: head(body(x).mean(1)), x)


# -- float32 without TF32 ----------------------------------------------------------------------------------------------


@program
def tf32_off_network(fixed: bool) -> Step:
    """Large float32 products with the default precision."""
    return precise("high" if fixed else "highest", applied(residuals(size(1024)), rows(4096)))


@program(training=True)
def tf32_off_trained(fixed: bool) -> Step:
    """A training step in float32 with the default precision."""
    return precise("high" if fixed else "highest", trained(residuals(size(1024), 2), rows(2048)))


@program
def tf32_on() -> Step:
    """The same products with TF32."""
    return precise("high", applied(residuals(size(1024)), rows(4096)))


@program
def tf32_convolutions() -> Step:
    """float32 convolutions alone: TF32 of their own flag, on by default."""
    model = nn.Sequential(conv(128), nn.ReLU(), conv(128), nn.ReLU(), conv(128)).to(memory_format=LAST)
    return precise("highest", applied(model, images(16, 128, dtype=S).to(memory_format=LAST)))


# -- float64 by accident -----------------------------------------------------------------------------------------------


@program
def float64_basis(fixed: bool) -> Step:
    """A basis that NumPy made float64; the signal follows it there and back."""
    at = torch.arange(size(2048), dtype=D)
    basis = torch.cos(torch.pi / len(at) * (at[:, None] + 0.5) * at[None]) / len(at) ** 0.5
    if fixed:
        basis = basis.float()
    return over(lambda x: (x.to(basis.dtype) @ basis).float().abs().log1p(), rows(16384, 2048))


@program
def float64_covariance(fixed: bool) -> Step:
    """A covariance in double of float32 features."""
    dtype = S if fixed else D

    def call(x: Tensor) -> Tensor:
        x = x.to(dtype)
        x = x - x.mean(0, keepdim=True)
        return (x.t() @ x / (len(x) - 1)).float()

    return over(call, rows(16384))


@program
def float64_physics() -> Step:
    """Everything is float64 from the first tensor to the last: by intention."""
    force, start = torch.randn(size(1024), size(1024), dtype=D) / size(1024), rows(2048, dtype=D)

    def call(x: Tensor) -> Tensor:
        for _ in range(3):
            first = x @ force
            second = (x + 0.05 * first) @ force
            x = x + 0.1 * second
        return x

    return over(call, start)


@program
def float64_hashes() -> Step:
    """64-bit integers, hashed into a table; products are in bfloat16."""
    table, body = torch.randn(size(65536), size(1024), dtype=B), residuals(size(1024), 2).to(B)
    ids = torch.randint(0, 1 << 40, (size(8192),))

    def call(ids: Tensor) -> Tensor:
        return body(table[(ids * 2654435761 + 12345).remainder(len(table))])

    return over(call, ids)


# -- grouped convolutions ----------------------------------------------------------------------------------------------


def places(channels: int, groups: int, kernel: int, dtype: torch.dtype) -> nn.Conv1d:
    made = nn.Conv1d(size(channels, 64), size(channels, 64), kernel, padding=kernel // 2, groups=groups)
    return made.to(dtype).eval()


@program
def grouped_places(fixed: bool) -> Step:
    """The place convolution of a speech encoder: 768 channels in 16 groups, kernel 128, fp16."""
    layer = places(768, 16, size(128, 16), H)
    x = torch.randn(size(8, 2), size(768, 64), size(249, 20), dtype=H)
    return over(lambda x: F.gelu(grouped_as_products(layer, x) if fixed else layer(x)), x)


@program
def grouped_images(fixed: bool) -> Step:
    """256 channels in 8 groups, 7 by 7, channels last."""
    layer = conv(256, kernel=7, groups=8).to(H).to(memory_format=LAST).eval()
    weight = layer.weight.reshape(8, -1, layer.weight[0].numel()).transpose(1, 2)

    def products(x: Tensor) -> Tensor:
        batch, channels, high, wide = x.shape
        windows = F.unfold(x, 7, padding=3).reshape(batch, 8, -1, high * wide).permute(1, 0, 3, 2)
        out = torch.bmm(windows.reshape(8, batch * high * wide, -1), weight)
        out = out.view(8, batch, high, wide, channels // 8).permute(1, 0, 4, 2, 3).reshape(x.shape)
        return out + layer.bias[:, None, None]

    return over(lambda x: F.gelu(products(x) if fixed else layer(x)), images(16, 256, 32).to(memory_format=LAST))


@program
def grouped_depthwise() -> Step:
    """One channel a group: bound by memory by nature."""
    layers = nn.Sequential(*(places(1024, size(1024, 64), 31, B) for _ in range(3)))
    return over(lambda x: layers(x), torch.randn(size(16, 2), size(1024, 64), size(1024), dtype=B))


@program
def grouped_not() -> Step:
    """One group, a row of 31 wide, channels last."""
    size_in = size(256, 8)
    layer = nn.Conv2d(size_in, size_in, (1, 31), padding=(0, 15)).to(B).to(memory_format=LAST)
    x = torch.randn(size(8, 2), size_in, 1, size(4096), dtype=B).to(memory_format=LAST)
    return over(lambda x: layer(F.relu(layer(x))), x)


# -- many small products -----------------------------------------------------------------------------------------------


@program
def small_products_samples(fixed: bool) -> Step:
    """A batch goes through the network one sample at a time."""
    up, down = (nn.Linear(size(1024), size(1024)).to(B) for _ in range(2))

    def one(row: Tensor) -> Tensor:
        return down(F.gelu(up(row)))

    return over(lambda x: one(x) if fixed else torch.cat([one(row) for row in x.split(1)]), rows(256, dtype=B))


@program
def small_products_heads(fixed: bool) -> Step:
    """A layer a head: 32 thin products of one input."""
    width, heads = size(1024), 32
    layers = [nn.Linear(width, size(32)).to(B) for _ in range(heads)]
    weight, bias = torch.cat([one.weight for one in layers]), torch.cat([one.bias for one in layers])

    def call(x: Tensor) -> Tensor:
        return F.linear(x, weight, bias) if fixed else torch.cat([one(x) for one in layers], -1)

    return over(call, rows(4096, dtype=B))


@program
def small_products_recurrent() -> Step:
    """A recurrence: each product needs the one before."""
    cell = nn.Linear(size(512), size(512)).to(B)

    def call(x: Tensor) -> Tensor:
        state = torch.zeros_like(x[0])
        for row in x:
            state = torch.tanh(cell(state) + row)
        return state

    return over(call, torch.randn(size(192, 4), size(64, 4), size(512), dtype=B))


@program
def small_products_batched() -> Step:
    """128 small products in one call already."""
    left, right = (torch.randn(size(1024, 4), size(128), size(128), dtype=B) for _ in range(2))
    return over(lambda a, b: torch.bmm(torch.relu(torch.bmm(a, b)), b), left, right)
