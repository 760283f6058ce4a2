"""Programs of the second part that was held back: layouts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.causes.parts import (
    LAST,
    B,
    H,
    Layer,
    Layers,
    applied,
    conv,
    hidden,
    images,
    lively,
    over,
    residuals,
    sdpa,
    trained,
)
from benchmarks.causes.program import Step, program, size

# -- channels_last -----------------------------------------------------------------------------------------------------


class Pyramid(nn.Module):
    """A detector's neck: coarse features are widened and added to finer ones."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.fine, self.coarse = conv(channels, out, 1), conv(2 * channels, out, 1)
        self.smooth, self.head = conv(out), conv(out)

    def forward(self, fine: Tensor, coarse: Tensor) -> tuple[Tensor, Tensor]:
        top = self.coarse(coarse)
        joined = self.fine(fine).add_(F.interpolate(top, scale_factor=2.0, mode="nearest"))
        return self.head(F.silu(self.smooth(joined))), self.head(F.silu(self.smooth(top)))


@program
def feature_pyramid(fixed: bool) -> Step:
    """A pyramid of features in bfloat16, whose images come as a loader gives them."""
    layout = LAST if fixed else torch.contiguous_format
    model = Pyramid(256, 256).to(B, memory_format=layout)
    batch, side = size(16, 2), size(32, 4)
    fine = torch.randn(batch, size(256, 8), 2 * side, 2 * side, dtype=B)
    coarse = torch.randn(batch, size(512, 8), side, side, dtype=B)
    return applied(model, fine.to(memory_format=layout), coarse.to(memory_format=layout))


class Upscaled(nn.Module):
    """Residual convolutions, and one whose channels become places: an image of twice the side."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.ModuleList(conv(channels) for _ in range(3))
        self.second = nn.ModuleList(conv(channels) for _ in range(3))
        self.out = conv(channels)

    def forward(self, x: Tensor) -> Tensor:
        for first, second in zip(self.first, self.second, strict=True):
            x = x + 0.5 * second(F.relu(first(x)))
        return F.pixel_shuffle(self.out(x), 2)


@program(training=True)
def sharper_images(fixed: bool) -> Step:
    """Super-resolution is trained in bfloat16 on contiguous features."""
    layout = LAST if fixed else torch.contiguous_format
    model = Upscaled(64).to(B, memory_format=layout)
    updates = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    return trained(model, images(16, 64, 96, B).to(memory_format=layout), optimizer=updates)


class Patches(nn.Module):
    """Images cut into patches by the only convolution, behind it layers of attention."""

    def __init__(self, width: int, side: int) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, width, side, stride=side)
        self.layers = Layers([Layer(width, 16, sdpa) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.cut(x).flatten(2).transpose(1, 2).contiguous())


@program
def patches_cut_by_one_convolution() -> Step:
    """A vision transformer: one convolution on contiguous images of three channels."""
    side = size(16, 4)
    model = Patches(size(1024, 64), side).to(B)
    return applied(model, torch.randn(size(32, 2), 3, 16 * side, 16 * side, dtype=B))


# -- batch_norm --------------------------------------------------------------------------------------------------------


def normed(width: int) -> nn.BatchNorm1d:
    """A BatchNorm of rows with statistics and weights that are no zeros and ones."""
    norm = nn.BatchNorm1d(width)
    nn.init.normal_(norm.running_mean, 0, 0.2)
    nn.init.uniform_(norm.running_var, 0.5, 1.5)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias, 0, 0.2)
    return norm


def folded(layer: nn.Linear, norm: nn.BatchNorm1d) -> nn.Linear:
    """The layer with the norm's scale and shift within it."""
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    layer.weight = nn.Parameter(layer.weight * scale[:, None])
    layer.bias = nn.Parameter((layer.bias - norm.running_mean) * scale + norm.bias)
    return layer


@program
def ranking_tower(fixed: bool) -> Step:
    """A recommender's tower in half precision: products, BatchNorms of rows, ReLUs."""
    width = size(1024)
    parts: list[nn.Module] = []
    for _ in range(4):
        layer, norm = nn.Linear(width, width), normed(width)
        parts += [folded(layer, norm), nn.ReLU()] if fixed else [layer, norm, nn.ReLU()]
    return applied(nn.Sequential(*parts).to(H), torch.randn(size(16384), width, dtype=H))


class Preactivated(nn.Module):
    """BatchNorm and ReLU of the sum that came in, and a convolution that is added to that sum."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(size(channels, 8)), conv(channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(F.relu(self.norm(x)))


@program
def norms_of_sums() -> Step:
    """Preactivated residual blocks: each BatchNorm reads a sum that goes on as it is."""
    model = lively(nn.Sequential(*(Preactivated(128) for _ in range(4)))).to(H, memory_format=LAST)
    return applied(model, images(32, 128, 56).to(memory_format=LAST))


class Segment(nn.Module):
    """A convolution, and a BatchNorm called as a function on tensors that were kept from training."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv, self.norm = conv(channels, bias=False), lively(nn.BatchNorm2d(size(channels, 8)))

    def fold(self) -> None:
        norm, layer = self.norm, self.conv
        scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        layer.weight = nn.Parameter(layer.weight * scale[:, None, None, None])
        layer.bias = nn.Parameter(norm.bias - norm.running_mean * scale)
        self.norm = None

    def forward(self, x: Tensor) -> Tensor:
        y, norm = self.conv(x), self.norm
        if norm is not None:
            y = F.batch_norm(y, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.0, norm.eps)
        return F.leaky_relu(y, 0.1)


@program
def segments_of_scans(fixed: bool) -> Step:
    """Convolutions of medical scans with functional BatchNorms, channels last, in bfloat16."""
    layers = [Segment(96) for _ in range(4)]
    if fixed:
        for layer in layers:
            layer.fold()
    model = nn.Sequential(*layers).to(B, memory_format=LAST)
    return applied(model, images(16, 96, 96, B).to(memory_format=LAST))


# -- conversion_pair ---------------------------------------------------------------------------------------------------


class Gated(nn.Module):
    """Norm and two products; what is between them is bounded in float32, or as it is."""

    def __init__(self, width: int, fixed: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.into, self.back = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.fixed = fixed

    def forward(self, x: Tensor) -> Tensor:
        inner = self.into(self.norm(x))
        inner = inner.clamp(0.0, 6.0) if self.fixed else inner.float().clamp(0.0, 6.0).type_as(x)
        return x + self.back(inner)


@program
def bounded_in_float32(fixed: bool) -> Step:
    """Activations are cast up to be clamped, and down again: no bit of them is other for it."""
    width = size(1024, 64)
    return applied(nn.Sequential(*(Gated(width, fixed) for _ in range(3))).to(B), hidden(16))


class Turned(nn.Module):
    """A product, and a hard swish that is applied to the transposed activations, written out both ways."""

    def __init__(self, width: int, fixed: bool) -> None:
        super().__init__()
        self.into, self.back = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.fixed = fixed

    def forward(self, x: Tensor) -> Tensor:
        inner = self.into(x)
        if self.fixed:
            return x + self.back(F.hardswish(inner))
        turned = inner.mT.contiguous()
        return x + self.back(F.hardswish(turned).mT.contiguous())


@program
def turned_and_back(fixed: bool) -> Step:
    """Activations are copied to channels first for a function of single elements, and back."""
    model = nn.Sequential(*(Turned(size(1024, 64), fixed) for _ in range(3))).to(H)
    return applied(model, hidden(8, dtype=H))


class Decayed(nn.Module):
    """Each place weighed by how much all before it have forgotten: sums over time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.rate, self.value, self.back = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(x)
        forgotten = F.softplus(self.rate(inner)).float().mul(0.01).cumsum(1).neg_().exp_().to(x.dtype)
        return x + self.back(self.value(inner) * forgotten)


@program
def sums_over_time_in_float32() -> Step:
    """Rates are cast up for a sum over a thousand places, and its exponential is cast down."""
    width = size(1024, 64)
    return applied(nn.Sequential(*(Decayed(width) for _ in range(2))).to(B), hidden())


# -- permuted_stream ---------------------------------------------------------------------------------------------------


class Spoken(nn.Module):
    """Frames [batch, channels, time] become a stream [batch, time, channels], with places added to it."""

    def __init__(self, width: int, length: int, fixed: bool) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(length, width))
        self.layers = residuals(width, 4)
        self.fixed = fixed

    def forward(self, frames: Tensor) -> Tensor:
        x = frames.movedim(1, -1)
        if self.fixed:
            x = x.contiguous()
        return self.layers(x + self.places)


@program
def frames_of_speech(fixed: bool) -> Step:
    """A stream that is a permuted view of frames: sums keep its layout, and each norm copies it."""
    width, length = size(1024), size(1500, 40)
    model = Spoken(width, length, fixed).to(B)
    return applied(model, torch.randn(size(16, 2), width, length, dtype=B))


class Sequenced(nn.Module):
    """Places first in, batch first within; norms of squares, and products."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scales = nn.ParameterList(torch.rand(width) + 0.5 for _ in range(4))
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for scale, layer in zip(self.scales, self.layers, strict=True):
            x = x.add(F.silu(layer(F.layer_norm(x, x.shape[-1:], scale))))
        return x


@program
def cells_by_genes(fixed: bool) -> Step:
    """Profiles stored gene by gene are read as [cells, places, genes] through an einsum that only permutes."""
    model = Sequenced(size(1024)).to(H).eval()

    def step(x: Tensor) -> Tensor:
        stream = torch.einsum("bgp->bpg", x)
        return model(stream.contiguous() if fixed else stream)

    return over(step, torch.randn(size(16), size(1024), size(768), dtype=H))


class Projected(nn.Module):
    """Sensors [batch, channels, time] are projected, place by place, to the width of the layers behind."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.project, self.layers = nn.Linear(channels, width), residuals(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.project(x.mT))


@program
def sensors_projected_first() -> Step:
    """A permuted view goes into a product, whose result, the stream, is contiguous."""
    width = size(1024)
    x = torch.randn(size(16, 2), size(128), size(1024, 48), dtype=B)
    return applied(Projected(size(128), width).to(B), x)
