"""Layouts: channels last, evaluation BatchNorm, permuted residual streams, conversions there and back."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from benchmarks.causes.parts import LAST, B, H, applied, conv, images, lively, over, residuals, square, trained
from benchmarks.causes.program import Step, program, size

# -- channels last -----------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """Convolution, norm of groups or of the batch, activation, added to what came in."""

    def __init__(self, channels: int, norm: nn.Module) -> None:
        super().__init__()
        self.conv, self.norm = conv(channels, bias=False), norm

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu(self.norm(self.conv(x)))


@program(training=True)
def channels_first_trained(fixed: bool) -> Step:
    """Blocks with BatchNorm in training, bfloat16, channels first."""
    layout = LAST if fixed else torch.contiguous_format
    model = nn.Sequential(*(Block(128, nn.BatchNorm2d(size(128, 8))) for _ in range(4))).to(B)
    return trained(model.to(memory_format=layout), images(32, 128, dtype=B).to(memory_format=layout))


@program
def channels_first_pools(fixed: bool) -> Step:
    """Convolutions of growing width between pools, fp16, channels first."""
    layout = LAST if fixed else torch.contiguous_format
    parts: list[nn.Module] = []
    for channels in (64, 128, 256):
        parts += [conv(channels), nn.ReLU(), conv(channels, channels * 2), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*parts).to(H).to(memory_format=layout)
    return applied(model, images(32, 64, 112).to(memory_format=layout))


@program
def channels_first_depthwise() -> Step:
    """Depthwise convolutions alone: bound by memory in either layout."""
    parts: list[nn.Module] = []
    for _ in range(4):
        parts += [conv(256, kernel=5, groups=size(256, 8)), nn.ReLU()]
    return applied(nn.Sequential(*parts).to(H), images(32, 256, 56))


@program
def channels_first_mixer() -> Step:
    """Places and channels are turned between layers; there is no convolution."""
    places, channels = size(256), size(1024)
    over_places, over_channels = nn.Linear(places, places).to(B), residuals(channels, 1).to(B)

    def call(x: Tensor) -> Tensor:
        for _ in range(3):
            x = x + over_places(x.transpose(1, 2).contiguous()).transpose(1, 2)
            x = over_channels(x.contiguous())
        return x

    return over(call, torch.randn(size(32, 2), places, channels, dtype=B))


# -- evaluation BatchNorm ----------------------------------------------------------------------------------------------


class Separable(nn.Module):
    """Wide, depthwise, narrow, each with a BatchNorm behind it."""

    def __init__(self, channels: int, fixed: bool) -> None:
        super().__init__()
        wide = 4 * channels
        convs = [
            conv(channels, wide, 1, bias=False),
            conv(wide, kernel=3, groups=size(wide, 8), bias=False),
            conv(wide, channels, 1, bias=False),
        ]
        norms = lively(nn.ModuleList(nn.BatchNorm2d(one.out_channels) for one in convs)).eval()
        if fixed:
            convs = [fuse_conv_bn_eval(one.eval(), norm) for one, norm in zip(convs, norms, strict=True)]
        self.convs = nn.ModuleList(convs)
        self.norms = nn.ModuleList(nn.Identity() for _ in convs) if fixed else norms

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu6(self.norms[0](self.convs[0](x)))
        inner = F.relu6(self.norms[1](self.convs[1](inner)))
        return x + self.norms[2](self.convs[2](inner))


@program
def batch_norm_separable(fixed: bool) -> Step:
    """Blocks of a mobile network in bfloat16, channels last."""
    model = nn.Sequential(*(Separable(64, fixed) for _ in range(4))).to(B).to(memory_format=LAST)
    return applied(model, images(32, 64, dtype=B).to(memory_format=LAST))


@program
def batch_norm_upwards(fixed: bool) -> Step:
    """A decoder of transposed convolutions, each with a BatchNorm, fp16, channels last."""
    parts: list[nn.Module] = []
    for at in range(2):
        channels = size(256 >> at, 16 >> at)
        up = nn.ConvTranspose2d(channels, channels // 2, 4, stride=2, padding=1, bias=False)
        norm = lively(nn.Sequential(nn.BatchNorm2d(channels // 2)))[0]
        parts += [fuse_conv_bn_eval(up.eval(), norm.eval(), transpose=True)] if fixed else [up, norm]
        parts.append(nn.ReLU())
    model = nn.Sequential(*parts).to(H).to(memory_format=LAST)
    x = torch.randn(size(32, 2), size(256, 16), size(56, 8), size(56, 8), dtype=H)
    return applied(model, x.to(memory_format=LAST))


class Before(nn.Module):
    """Norm, activation, convolution: what is normed is the sum of two."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(size(channels, 8)), conv(channels, bias=False)
        lively(self)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(F.relu(self.norm(x)))


@program
def batch_norm_before() -> Step:
    """In evaluation, but in front of the convolution and behind a sum: there is none to fold it into."""
    model = nn.Sequential(*(Before(128) for _ in range(4))).to(H).to(memory_format=LAST)
    return applied(model, images(32, 128).to(memory_format=LAST))


@program
def batch_norm_groups() -> Step:
    """GroupNorm behind convolutions: its statistics are those of the sample."""
    model = nn.Sequential(*(Block(128, nn.GroupNorm(8, size(128, 8))) for _ in range(4))).to(H)
    return applied(model.to(memory_format=LAST), images(32, 128).to(memory_format=LAST))


# -- a permuted residual stream ----------------------------------------------------------------------------------------


@program
def permuted_images(fixed: bool) -> Step:
    """Channels-first features seen as channels last by a permutation, normed over channels in each block."""
    body = residuals(size(512), 4).to(B)

    def call(x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        return body(x.contiguous() if fixed else x).mean((1, 2))

    return over(call, torch.randn(size(32, 2), size(512), size(32, 8), size(32, 8), dtype=B))


@program(training=True)
def permuted_trained(fixed: bool) -> Step:
    """A transposed stream in a training step."""
    body = residuals(size(1024), 3).to(B)

    def loss(x: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        return square(body(x.contiguous() if fixed else x))

    return trained(body, torch.randn(size(16, 2), size(1024), size(512), dtype=B), loss=loss)


@program
def permuted_one_norm() -> Step:
    """A permuted tensor that one norm reads: its one copy is the stream's birth."""
    norm, body = nn.LayerNorm(size(1024)).to(B), residuals(size(1024)).to(B)
    x = torch.randn(size(16, 2), size(1024), size(512), dtype=B)
    return over(lambda x: body(norm(x.transpose(1, 2))), x)


@program
def permuted_product() -> Step:
    """A transposed matrix that products alone read: the library takes it as it lies."""
    mix = nn.Linear(size(1024), size(1024)).to(B)

    def call(x: Tensor) -> Tensor:
        turned = x.transpose(0, 1)
        return torch.relu(turned @ mix.weight) @ mix.weight

    return over(call, torch.randn(size(1024), size(8192), dtype=B))


# -- conversions there and back ----------------------------------------------------------------------------------------


@program
def there_and_back_length_first(fixed: bool) -> Step:
    """Each layer is handed length first, and turns it back."""
    layers = nn.ModuleList(residuals(size(1024), 1) for _ in range(4)).to(B)

    def call(x: Tensor) -> Tensor:
        for layer in layers:
            x = layer(x) if fixed else layer(x.transpose(0, 1).contiguous()).transpose(0, 1).contiguous()
        return x

    return over(call, torch.randn(size(32, 2), size(512), size(1024), dtype=B))


@program
def there_and_back_heads(fixed: bool) -> Step:
    """Heads are brought to the front for a norm over each head's features, and back."""
    heads, head = size(16, 2), size(64, 8)
    layers = nn.ModuleList(nn.Linear(heads * head, heads * head) for _ in range(4)).to(B)
    weight = torch.rand(head, dtype=B)

    def call(x: Tensor) -> Tensor:
        for layer in layers:
            x = layer(x).unflatten(-1, (heads, head))
            if fixed:
                x = F.rms_norm(x, (head,), weight)
            else:
                x = x.transpose(1, 2).contiguous()
                x = F.rms_norm(x, (head,), weight).transpose(1, 2).contiguous()
            x = x.flatten(2)
        return x

    return over(call, torch.randn(size(32, 2), size(512), heads * head, dtype=B))


@program
def there_and_back_mixer() -> Step:
    """Turned for a product over places, and back for one over channels: each needs its layout."""
    places, channels = size(512), size(1024)
    first = nn.ModuleList(nn.Linear(places, places) for _ in range(3)).to(B)
    second = nn.ModuleList(nn.Linear(channels, channels) for _ in range(3)).to(B)

    def call(x: Tensor) -> Tensor:
        for over_places, over_channels in zip(first, second, strict=True):
            x = F.gelu(over_places(x.transpose(1, 2).contiguous()))
            x = F.gelu(over_channels(x.transpose(1, 2).contiguous()))
        return x

    return over(call, torch.randn(size(32, 2), places, channels, dtype=B))


@program
def there_and_back_roll() -> Step:
    """Rolled by half a window for each block, and back: the data move, not the layout."""
    blocks = nn.ModuleList(residuals(size(512), 1) for _ in range(3)).to(B)

    def call(x: Tensor) -> Tensor:
        for block in blocks:
            x = block(x.roll((-4, -4), (1, 2))).roll((4, 4), (1, 2))
        return x

    return over(call, torch.randn(size(16, 2), size(32, 8), size(32, 8), size(512), dtype=B))
