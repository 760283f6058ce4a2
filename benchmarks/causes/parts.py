"""What programs are made of: blocks without any of the causes, and steps over changing inputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.causes.program import Step, size

B, H, S, D = torch.bfloat16, torch.float16, torch.float32, torch.float64
LAST = torch.channels_last
COMPILED = False  # whether steps are built for torch.compile
Attend = Callable[..., Tensor]
sdpa = F.scaled_dot_product_attention


# -- steps -------------------------------------------------------------------------------------------------------------


def other(x: Tensor) -> Tensor:
    """Other values in the same layout."""
    return x.clone().copy_(x.roll(1, 0))


def compiled(call: Callable[..., Any]) -> Callable[..., Any]:
    """The function under torch.compile, where steps are built for it."""
    return torch.compile(call, dynamic=False) if COMPILED else call


def over(call: Callable[..., Any], *inputs: Tensor, compiles: bool = True) -> Step:
    """A step on two batches in turn, as a loader hands them out."""
    call = compiled(call) if compiles else call
    batches = itertools.cycle([inputs, tuple(other(x) for x in inputs)])
    return lambda: call(*next(batches))


def applied(model: nn.Module, *inputs: Tensor) -> Step:
    """Inference."""
    return over(model.eval(), *inputs)


def adamw(parameters: Iterable[Tensor], **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, **{"lr": 1e-3, "fused": True, **options})


def square(out: Tensor) -> Tensor:
    return out.float().pow(2).mean()


def trained(
    model: nn.Module,
    *inputs: Tensor,
    loss: Callable[..., Tensor] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    between: Callable[[], Any] = lambda: None,
    behind: Callable[[], Any] = lambda: None,
    clear: Callable[[], Any] | None = None,
) -> Step:
    """A training step: what it gives is the loss, the parameters and their gradients.

    `between` runs when the gradients are there, `behind` after the update.
    """
    model.train()
    parameters = list(model.parameters())
    updates = optimizer or adamw(parameters)
    lost = compiled(loss or (lambda *batch: square(model(*batch))))
    clears = clear or (lambda: updates.zero_grad(set_to_none=True))

    def step(*batch: Tensor) -> Any:
        clears()
        value = lost(*batch)
        value.backward()
        between()
        updates.step()
        more = behind()
        return value.detach(), parameters, [p.grad for p in parameters], [] if more is None else more

    return over(step, *inputs, compiles=False)


def precise(precision: str, step: Step) -> Step:
    """The step with float32 products at a precision: `highest` has no TF32."""

    def run() -> Any:
        torch.set_float32_matmul_precision(precision)
        return step()

    return run


# -- attention ---------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Projections around a function of queries, keys and values [batch, heads, length, head]."""

    def __init__(self, width: int, heads: int, attend: Attend, kv_heads: int | None = None) -> None:
        super().__init__()
        kv = kv_heads or heads
        self.head, self.attend = width // heads, attend
        self.widths = [width, kv * self.head, kv * self.head]
        self.qkv = nn.Linear(width, sum(self.widths), bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, *given: Any) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(x).split(self.widths, -1)
        q, k, v = (t.view(batch, length, -1, self.head).transpose(1, 2) for t in parts)
        return self.out(self.attend(q, k, v, *given).transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    """Norm, attention, norm, two products with a GELU."""

    def __init__(self, width: int, heads: int, attend: Attend, kv_heads: int | None = None) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = Attention(width, heads, attend, kv_heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, *given: Any) -> Tensor:
        x = x + self.attention(self.norms[0](x), *given)
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Layers(nn.Module):
    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, *given: Any) -> Tensor:
        for layer in self.layers:
            x = layer(x, *given)
        return x


def transformer(attend: Attend = sdpa, heads: int = 16, kv_heads: int | None = None, layers: int = 2) -> nn.Module:
    width = size(1024, 64)
    return Layers([Layer(width, heads, attend, kv_heads) for _ in range(layers)])


def hidden(batch: int = 8, length: int = 1024, width: int = 1024, dtype: torch.dtype = B) -> Tensor:
    return torch.randn(size(batch, 2), size(length), size(width, 64 if width == 1024 else None), dtype=dtype)


def attended(attend: Attend, *given: Any, dtype: torch.dtype = B, kv_heads: int | None = None) -> Step:
    """Inference through two layers with such an attention; `given` goes to it."""
    model = transformer(attend, kv_heads=kv_heads).to(dtype).eval()
    return over(lambda x: model(x, *given), hidden(dtype=dtype))


def attended_training(
    attend: Attend, *given: Any, dtype: torch.dtype = B, kv_heads: int | None = None, batch: int = 4
) -> Step:
    """A training step through two layers with such an attention."""
    model = transformer(attend, kv_heads=kv_heads).to(dtype)
    return trained(model, hidden(batch, dtype=dtype), loss=lambda x: square(model(x, *given)))


def length() -> int:
    return size(1024)


# -- products, convolutions --------------------------------------------------------------------------------------------


class Residual(nn.Module):
    """Norm, two products with a GELU, added to what came in."""

    def __init__(self, width: int, ratio: int = 4) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, ratio * width), nn.Linear(ratio * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def residuals(width: int, layers: int = 3) -> nn.Module:
    return nn.Sequential(*(Residual(width) for _ in range(layers)))


def linears(layers: int = 24, width: int = 1024) -> nn.Module:
    """Many small layers: twice as many parameters."""
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(size(width), size(width)), nn.GELU()]
    return nn.Sequential(*parts)


def rows(count: int = 1024, width: int = 1024, dtype: torch.dtype = S) -> Tensor:
    return torch.randn(size(count), size(width), dtype=dtype)


def images(batch: int = 32, channels: int = 64, side: int = 56, dtype: torch.dtype = H) -> Tensor:
    return torch.randn(size(batch, 2), size(channels, 8), size(side, 8), size(side, 8), dtype=dtype)


def conv(channels: int, out: int | None = None, kernel: int = 3, **options: Any) -> nn.Conv2d:
    padding = kernel // 2
    return nn.Conv2d(size(channels, 8), size(out or channels, 8), kernel, padding=padding, **options)


def lively(model: nn.Module) -> nn.Module:
    """BatchNorms whose statistics and weights are no zeros and ones."""
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.normal_(norm.running_mean, 0, 0.2)
            nn.init.uniform_(norm.running_var, 0.5, 1.5)
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias, 0, 0.2)
    return model


def widened(layer: nn.Linear, inputs: int, outputs: int) -> nn.Linear:
    """The layer with zeros behind its rows and columns; its bias too."""
    weight = F.pad(layer.weight.detach(), (0, inputs - layer.in_features, 0, outputs - layer.out_features))
    options = {"bias": layer.bias is not None, "device": weight.device, "dtype": weight.dtype}
    wide = nn.utils.skip_init(nn.Linear, inputs, outputs, **options)  # draws no random numbers
    wide.weight = nn.Parameter(weight)
    if layer.bias is not None:
        wide.bias = nn.Parameter(F.pad(layer.bias.detach(), (0, outputs - layer.out_features)))
    return wide


def up_to(value: int, multiple: int = 64) -> int:
    return -(-value // multiple) * multiple


def grouped_as_products(layer: nn.Conv1d, x: Tensor) -> Tensor:
    """A grouped 1-D convolution of stride 1: its windows times its weights, a batch of products over the groups."""
    groups, kernel = layer.groups, layer.kernel_size[0]
    windows = F.pad(x, (layer.padding[0], layer.padding[0])).unfold(-1, kernel, 1)  # batch, channels, places, kernel
    batch, channels, places, _ = windows.shape
    windows = windows.view(batch, groups, channels // groups, places, kernel).permute(1, 0, 3, 2, 4)
    weight = layer.weight.view(groups, layer.out_channels // groups, -1).transpose(1, 2)
    out = torch.bmm(windows.reshape(groups, batch * places, -1), weight)
    out = out.view(groups, batch, places, -1).permute(1, 0, 3, 2).reshape(batch, layer.out_channels, places)
    return out if layer.bias is None else out + layer.bias[:, None]
