"""Other calls that compute what a library's slow one does: windows laid out and multiplied."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F


def unfolded_product(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """Compute a grouped convolution as one batched product of its unfolded windows.

    >>> x, weight = torch.ones(1, 4, 5), torch.ones(2, 2, 3)
    >>> unfolded_product(x, weight, None, [1], [1], [1], 2)[0, 0].tolist()
    [4.0, 6.0, 6.0, 6.0, 4.0]
    """
    out, each, *window = weight.shape
    windows = F.pad(x, [side for size in reversed(padding) for side in (size, size)])
    for axis, (size, step, apart) in enumerate(zip(window, stride, dilation, strict=True)):
        windows = windows.unfold(2 + axis, apart * (size - 1) + 1, step)[..., ::apart]
    batch, places = x.shape[0], windows.shape[2 : 2 + len(window)]
    rows = windows.reshape(batch, groups, each, math.prod(places), math.prod(window)).permute(1, 0, 3, 2, 4)
    rows = rows.reshape(groups, batch * math.prod(places), each * math.prod(window))
    made = torch.bmm(rows, weight.reshape(groups, out // groups, each * math.prod(window)).mT)
    made = made.reshape(groups, batch, math.prod(places), out // groups).permute(1, 0, 3, 2)
    made = made.reshape(batch, out, *places)
    return made if bias is None else made + bias.reshape(-1, *(1 for _ in window))


def patches_multiplied(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Compute a convolution whose stride is its window as a product of its patches: [batch, out, indices…], a view.

    >>> x, weight = torch.ones(1, 1, 4, 5), torch.ones(3, 1, 2, 2)
    >>> patches_multiplied(x, weight, None).shape
    torch.Size([1, 3, 2, 2])
    """
    batch, channels = x.shape[:2]
    window = weight.shape[2:]
    places = [size // step for size, step in zip(x.shape[2:], window, strict=True)]
    for axis, (count, step) in enumerate(zip(places, window, strict=True)):
        x = x.narrow(2 + axis, 0, count * step)
    rows = x.reshape(batch, channels, *(n for pair in zip(places, window, strict=True) for n in pair))
    axes = range(2, rows.dim())
    rows = rows.permute(0, *axes[::2], 1, *axes[1::2]).reshape(batch, math.prod(places), -1)
    return F.linear(rows, weight.flatten(1), bias).mT.unflatten(2, places)
