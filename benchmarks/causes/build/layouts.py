"""Layouts: channels last, evaluation BatchNorm, permuted residual streams, conversions there and back."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from benchmarks.causes.parts import LAST, B, H, S, applied, conv, images, lively, over, residuals, rows, trained
from benchmarks.causes.program import Step, program, size

# -- channels last -----------------------------------------------------------------------------------------------------


def plain(channels: int, layers: int) -> nn.Sequential:
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [conv(channels), nn.ReLU()]
    return nn.Sequential(*parts)


@program
def channels_first_plain(fixed: bool) -> Step:
    """Convolutions and activations in fp16, channels first."""
    layout = LAST if fixed else torch.contiguous_format
    model = plain(128, 6).to(H).to(memory_format=layout)
    return applied(model, images(32, 128, 56).to(memory_format=layout))


class Pyramid(nn.Module):
    """Down, down, up, up, with what was skipped added."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second, self.third = conv(channels), conv(channels, stride=2), conv(channels, stride=2)
        self.fourth, self.last = conv(channels), conv(channels)

    def forward(self, x: Tensor) -> Tensor:
        fine = F.silu(self.first(x))
        half = F.silu(self.second(fine))
        low = F.silu(self.third(half))
        half = F.silu(self.fourth(half + F.interpolate(low, scale_factor=2.0, mode="nearest")))
        return self.last(fine + F.interpolate(half, scale_factor=2.0, mode="nearest"))


@program
def channels_first_pyramid(fixed: bool) -> Step:
    """A small U-Net in bfloat16, channels first."""
    layout = LAST if fixed else torch.contiguous_format
    model = nn.Sequential(Pyramid(192), Pyramid(192)).to(B).to(memory_format=layout)
    return applied(model, images(16, 192, 64, B).to(memory_format=layout))


@program
def channels_last_plain() -> Step:
    """Channels last already; the images arrive so."""
    return applied(plain(128, 6).to(H).to(memory_format=LAST), images(32, 128, 56).to(memory_format=LAST))


@program
def channels_first_patches() -> Step:
    """One convolution cuts patches out of images of three channels; all else is no convolution."""
    width = size(1024)
    cut = nn.Conv2d(3, width, size(16, 8), stride=size(16, 8)).to(B)
    body = residuals(width).to(B)
    x = torch.randn(size(32, 2), 3, size(256, 32), size(256, 32), dtype=B)
    return over(lambda x: body(cut(x).flatten(2).transpose(1, 2).contiguous()), x)


# -- evaluation BatchNorm ----------------------------------------------------------------------------------------------


def normed(channels: int, layers: int, dtype: torch.dtype, fixed: bool) -> nn.Module:
    """Convolution, BatchNorm, activation."""
    pairs = [(conv(channels, bias=False), nn.BatchNorm2d(size(channels, 8))) for _ in range(layers)]
    lively(nn.ModuleList(norm for _, norm in pairs))
    parts: list[nn.Module] = []
    for one, norm in pairs:
        parts += [fuse_conv_bn_eval(one.eval(), norm.eval())] if fixed else [one, norm]
        parts.append(nn.ReLU())
    return nn.Sequential(*parts).to(dtype).to(memory_format=LAST)


@program
def batch_norm_evaluated(fixed: bool) -> Step:
    """Convolution, BatchNorm, activation in fp16, channels last."""
    return applied(normed(128, 6, H, fixed), images(32, 128).to(memory_format=LAST))


class Bottleneck(nn.Module):
    """Two convolutions, each with a BatchNorm, added to what came in."""

    def __init__(self, channels: int, fixed: bool) -> None:
        super().__init__()
        self.convs = nn.ModuleList(conv(channels, bias=False) for _ in range(2))
        self.norms = lively(nn.ModuleList(nn.BatchNorm2d(size(channels, 8)) for _ in range(2)))
        if fixed:
            self.eval()
            pairs = zip(self.convs, self.norms, strict=True)
            self.convs = nn.ModuleList(fuse_conv_bn_eval(one, norm) for one, norm in pairs)
            self.norms = nn.ModuleList(nn.Identity() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.norms[0](self.convs[0](x)))
        return F.relu(x + self.norms[1](self.convs[1](inner)))


@program
def batch_norm_residual(fixed: bool) -> Step:
    """Residual blocks in float32 with TF32, channels last."""
    model = nn.Sequential(*(Bottleneck(128, fixed) for _ in range(3))).to(memory_format=LAST)
    return applied(model, images(32, 128, dtype=S).to(memory_format=LAST))


@program(training=True)
def batch_norm_trained() -> Step:
    """BatchNorm in training: its statistics are those of the batch."""
    return trained(normed(128, 3, S, fixed=False), images(16, 128, dtype=S).to(memory_format=LAST))


class Shared(nn.Module):
    """One convolution whose result goes through two BatchNorms, one for each of two domains."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = conv(channels, bias=False)
        self.norms = lively(nn.ModuleList(nn.BatchNorm2d(size(channels, 8)) for _ in range(2)))

    def forward(self, x: Tensor) -> Tensor:
        both = self.conv(x)
        return F.relu(self.norms[0](both)) + F.relu(self.norms[1](both))


@program
def batch_norm_shared() -> Step:
    """Two norms read each convolution: folding one would take the input of the other away."""
    model = nn.Sequential(*(Shared(128) for _ in range(4))).to(H).to(memory_format=LAST)
    return applied(model, images(32, 128).to(memory_format=LAST))


# -- a permuted residual stream ----------------------------------------------------------------------------------------


@program
def permuted_features(fixed: bool) -> Step:
    """Features of images become places by a permutation; each norm copies them."""
    body = residuals(size(768, 8), 4).to(H)

    def call(x: Tensor) -> Tensor:
        x = x.flatten(2).transpose(1, 2)
        return body(x.contiguous() if fixed else x)

    return over(call, images(32, 768, 24))


@program
def permuted_sequence(fixed: bool) -> Step:
    """Length first becomes batch first by a permutation; each norm copies it."""
    body = residuals(size(1024), 4).to(B)

    def call(x: Tensor) -> Tensor:
        x = x.permute(1, 0, 2)
        return body(x.contiguous() if fixed else x)

    return over(call, torch.randn(size(512), size(32, 2), size(1024), dtype=B))


@program
def permuted_once_copied() -> Step:
    """The same with a copy where the stream is born."""
    body = residuals(size(768, 8), 4).to(H)
    return over(lambda x: body(x.flatten(2).transpose(1, 2).contiguous()), images(32, 768, 24))


@program
def permuted_channels_last() -> Step:
    """Channels last by intention: what is permuted lies as the norms want it."""
    blocks = nn.ModuleList(residuals(size(384, 8), 1) for _ in range(4)).to(H)
    depths = nn.ModuleList(conv(384, kernel=7, groups=size(384, 8)) for _ in range(4)).to(H).to(memory_format=LAST)

    def call(x: Tensor) -> Tensor:
        for depth, block in zip(depths, blocks, strict=True):
            x = block(depth(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x

    x = torch.randn(size(32, 2), size(384, 8), size(28, 8), size(28, 8), dtype=H)
    return over(call, x.to(memory_format=LAST))


# -- conversions there and back ----------------------------------------------------------------------------------------


@program
def there_and_back_images(fixed: bool) -> Step:
    """Between convolutions in channels last each activation is computed in channels first."""
    layers = nn.ModuleList(conv(128) for _ in range(6)).to(H).to(memory_format=LAST)

    def call(x: Tensor) -> Tensor:
        for layer in layers:
            x = layer(x)
            x = F.silu(x) if fixed else F.silu(x.contiguous()).contiguous(memory_format=LAST)
        return x

    return over(call, images(32, 128).to(memory_format=LAST))


@program
def there_and_back_channels(fixed: bool) -> Step:
    """Norms and layers each take channels last and give channels first again."""
    width = size(1024)
    norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3)).to(B)
    layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3)).to(B)

    def turned(inner: nn.Module, x: Tensor) -> Tensor:
        return inner(x.transpose(1, 2).contiguous()).transpose(1, 2).contiguous()

    def call(x: Tensor) -> Tensor:
        if fixed:
            x = x.transpose(1, 2).contiguous()
            for norm, layer in zip(norms, layers, strict=True):
                x = layer(norm(x))
            return x.transpose(1, 2).contiguous()
        for norm, layer in zip(norms, layers, strict=True):
            x = turned(layer, turned(norm, x))
        return x

    return over(call, torch.randn(size(32, 2), width, size(512), dtype=B))


@program
def there_and_back_ends() -> Step:
    """Turned once in front of all layers and once behind."""
    body = residuals(size(1024)).to(B)

    def call(x: Tensor) -> Tensor:
        return body(x.transpose(1, 2).contiguous()).transpose(1, 2).contiguous()

    return over(call, torch.randn(size(16, 2), size(1024), size(512), dtype=B))


@program
def there_and_back_types() -> Step:
    """To float32 for a logarithm of sums, and back: the range is needed."""
    layers = nn.ModuleList(nn.Linear(size(1024), size(1024)) for _ in range(4)).to(H)

    def call(x: Tensor) -> Tensor:
        for layer in layers:
            x = F.log_softmax(layer(x).float(), dim=-1).half()
        return x

    return over(call, rows(8192, dtype=H))
