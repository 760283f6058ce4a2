"""Reference implementations on a CPU of operators that only a GPU has, or that a GPU computes otherwise.

A GPU's norms compute in float32, keep their statistics so, and round once. A CPU's round numbers of 16 bits on the way,
and fold a batch norm's weight and statistics into two numbers before they meet the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

Tensors = tuple[torch.Tensor | None, ...]
_NARROW = (torch.bfloat16, torch.float16)


def wide(value: Any) -> Any:
    """Return a half-precision tensor in float32; anything else as it is."""
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _NARROW else value


def _per_channel(tensor: torch.Tensor, rank: int) -> torch.Tensor:
    return tensor.view(-1, *(1,) * (rank - 2))


def _others(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(d for d in range(tensor.dim()) if d != 1)


def _welford(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a mean and the squares about it, rounded as on a GPU: a CPU sums in float64. After an infinity NaN."""
    mean = torch.zeros_like(rows[:, 0])
    squares = torch.zeros_like(mean)
    for k in range(rows.shape[1]):
        gap = rows[:, k] - mean
        mean = mean + gap / (k + 1)
        squares = squares + gap * (rows[:, k] - mean)
    return torch.where(mean.isinf(), float("nan"), mean), squares


def _batch_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> Tensors:
    mean, variance, rank = running_mean, running_var, input.dim()
    if training:
        count = input.numel() / max(input.shape[1], 1)
        mean, squares = _welford(input.transpose(0, 1).flatten(1))
        variance = squares / count
        for old, fresh in ((running_mean, mean), (running_var, squares / torch.tensor(count - 1))):
            if old is not None:
                old.copy_(old * (1 - momentum) + fresh * momentum)
    scale = torch.rsqrt(variance + eps)
    found = (input - _per_channel(mean, rank)) * _per_channel(scale, rank)
    found = found if weight is None else found * _per_channel(weight, rank)
    found = found if bias is None else found + _per_channel(bias, rank)
    return found, mean, scale


def _cudnn_batch_norm(*, exponential_average_factor: float, epsilon: float, **named: Any) -> Tensors:
    """Return the same statistics (its variance is kept as an inverse root too), and a reserve of no bytes."""
    found = _batch_norm(**named, momentum=exponential_average_factor, eps=epsilon)
    return (*found, torch.empty(0, dtype=torch.uint8))


def _batch_norm_backward(
    grad_out: Any,
    input: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_invstd: Any,
    train: bool,
    eps: float,
    output_mask: Any,
) -> Tensors:
    mean, scale = (save_mean, save_invstd) if train else (running_mean, torch.rsqrt(running_var + eps))
    mean, scale = (_per_channel(t, input.dim()) for t in (mean, scale))
    normed = (input - mean) * scale
    total, along = grad_out.sum(_others(input)), (grad_out * normed).sum(_others(input))
    into = grad_out
    if train:
        shares = (_per_channel(t, input.dim()) / (input.numel() / max(input.shape[1], 1)) for t in (total, along))
        into = grad_out - next(shares) - normed * next(shares)
    into = into * scale
    into = into if weight is None else into * _per_channel(weight, input.dim())
    return tuple(t if asked else None for t, asked in zip((into, along, total), output_mask, strict=True))


def _cudnn_batch_norm_backward(
    *, grad_output: Any, save_var: Any, epsilon: float, reserveSpace: Any, **named: Any
) -> Tensors:
    """Compute the gradient of a run that trained: there is none other."""
    rest = {"save_invstd": save_var, "train": True, "eps": epsilon, "output_mask": (True, True, True)}
    return _batch_norm_backward(grad_output, **named, **rest)


def _along(weighted: torch.Tensor, normed: torch.Tensor, over: tuple[int, ...], centred: bool = True) -> torch.Tensor:
    """Return a norm's gradient before it is scaled: without its mean, and without what lies along the normed numbers.

    A CPU's layer norm and group norm sum otherwise: where something is infinite, infinities of theirs cancel that a
    GPU's never meet.
    """
    found = weighted - weighted.mean(over, keepdim=True) if centred else weighted
    return found - normed * (weighted * normed).mean(over, keepdim=True)


def _rms_norm_backward(
    grad_out: Any, input: Any, normalized_shape: Any, rstd: Any, weight: Any, output_mask: Any
) -> Tensors:
    over, rows = _inside(input, normalized_shape)
    normed = input * rstd
    weighted = grad_out if weight is None else grad_out * weight
    found = (_along(weighted, normed, over, centred=False) * rstd, _summed(grad_out * normed, rows))
    return tuple(t if asked else None for t, asked in zip(found, output_mask, strict=True))


def _layer_norm_backward(
    grad_out: Any, input: Any, normalized_shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, output_mask: Any
) -> Tensors:
    over, rows = _inside(input, normalized_shape)
    normed = (input - mean) * rstd
    weighted = grad_out if weight is None else grad_out * weight
    found = (_along(weighted, normed, over) * rstd, _summed(grad_out * normed, rows), _summed(grad_out, rows))
    return tuple(t if asked else None for t, asked in zip(found, output_mask, strict=True))


def _inside(input: Any, normalized_shape: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the dimensions that a norm reduces, and the others."""
    rank, inner = input.dim(), len(normalized_shape)
    return tuple(range(rank - inner, rank)), tuple(range(rank - inner))


def _summed(tensor: torch.Tensor, rows: tuple[int, ...]) -> torch.Tensor:
    return tensor.sum(rows) if rows else tensor  # over no dimensions torch sums over all


def _group_norm(input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float) -> Tensors:
    """Compute as torch, which folds a weight into the statistics, also on a GPU; but not where two infinities meet."""
    input = input.contiguous()
    folded, mean, scale = torch.ops.aten.native_group_norm(input, weight, bias, N, C, HxW, group, eps)
    rows, rank = input.reshape(N, group, C // group * HxW), input.dim()
    found = ((rows - mean[..., None]) * scale[..., None]).reshape(input.shape)
    found = found if weight is None else found * _per_channel(weight, rank)
    found = found if bias is None else found + _per_channel(bias, rank)
    return torch.where(folded.isnan(), found, folded), mean, scale


def _group_norm_backward(
    grad_out: Any, input: Any, mean: Any, rstd: Any, weight: Any, N: int, C: int, HxW: int, group: int, output_mask: Any
) -> Tensors:
    parts = (N, group, C // group, HxW)
    grad, normed = grad_out.reshape(parts), (input.reshape(parts) - mean[..., None, None]) * rstd[..., None, None]
    weighted = grad if weight is None else grad * weight.view(1, group, -1, 1)
    into = _along(weighted, normed, (2, 3)) * rstd[..., None, None]
    found = (into.reshape(input.shape), (grad * normed).sum((0, 3)).reshape(C), grad.sum((0, 3)).reshape(C))
    return tuple(t if asked else None for t, asked in zip(found, output_mask, strict=True))


def _compact(function: Callable[..., Tensors]) -> Callable[..., Tensors]:
    """Return a CPU's kernel that is given contiguous tensors alone."""

    def call(**given: Any) -> Tensors:
        return function(**{n: v.contiguous() if isinstance(v, torch.Tensor) else v for n, v in given.items()})

    return call


# By name, what is called with tensors of at least 32 bits; its results are rounded to what the call gives.
def _alone(operator: Any) -> Callable[..., Tensors]:
    """Return an operator with one result, which a CPU would round on the way."""
    return lambda **named: (operator(**named),)


def _unscaled(self: Any, found_inf: Any, inv_scale: Any) -> Tensors:
    """Compute as the operator does; a CPU's takes no scale in float64."""
    for member in self:
        if not torch.isfinite(member).all():
            found_inf.fill_(1.0)
        member.mul_(inv_scale)
    return ()


def _log_sigmoid_backward(grad_output: Any, self: Any, buffer: Any) -> Tensors:
    """Compute the buffer: a GPU keeps none."""
    return (torch.ops.aten.log_sigmoid_backward(grad_output, self, torch.exp(-self.abs())),)


def _std(**named: Any) -> Tensors:
    """Return the root of a variance in float32, as a GPU does: a CPU's float64 keeps squares beyond float32."""
    return (torch.ops.aten.var(**named).sqrt(),)


def _std_mean(**named: Any) -> Tensors:
    variance, mean = torch.ops.aten.var_mean(**named)
    return variance.sqrt(), mean


def _shrunk(self: Any, lambd: float, grad_out: Any = None, grad_output: Any = None) -> Tensors:
    """Let the gradient through at NaN, as on a GPU; a CPU does where its vectors leave elements over."""
    return (torch.where(self.abs() <= lambd, 0.0, grad_output if grad_out is None else grad_out),)


def _clipped(grad_output: Any, self: Any, min_val: float, max_val: float) -> Tensors:
    """Let the gradient through at NaN, as `_shrunk`."""
    return (torch.where((self <= min_val) | (self >= max_val), 0.0, grad_output),)


def _binary_cross_entropy(self: Any, target: Any, weight: Any, reduction: int) -> Tensors:
    """Compute for any number: eager refuses those that are no probabilities."""
    low = torch.tensor(-100.0, dtype=self.dtype)
    each = (target - 1) * torch.maximum(torch.log1p(-self), low) - target * torch.maximum(torch.log(self), low)
    each = each if weight is None else each * weight
    return (each.mean() if reduction == 1 else each.sum() if reduction == 2 else each,)


def _cumsum(self: Any, dim: int, dtype: Any = None) -> Tensors:
    """Return a running sum as deep as a GPU's: a CPU's partial sums in float64 neither round nor overflow."""
    found = self if dtype is None else self.to(dtype)
    if not found.is_floating_point() or not found.dim():
        return (torch.cumsum(self, dim, dtype=dtype),)
    along, step = found.movedim(dim, -1), 1
    while step < along.shape[-1]:
        along = torch.cat([along[..., :step], along[..., step:] + along[..., :-step]], -1)
        step *= 2
    return (along.movedim(-1, dim).clone(memory_format=torch.contiguous_format),)


STAND_INS: Mapping[str, Callable[..., Tensors]] = {
    "native_layer_norm": _compact(torch.ops.aten.native_layer_norm),
    "native_layer_norm_backward": _layer_norm_backward,
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _group_norm_backward,
    "native_batch_norm": _batch_norm,
    "cudnn_batch_norm": _cudnn_batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "cudnn_batch_norm_backward": _cudnn_batch_norm_backward,
    "_fused_rms_norm_backward": _rms_norm_backward,
    "_amp_foreach_non_finite_check_and_unscale_": _unscaled,
    "cumsum": _cumsum,
    "std": _std,
    "std_mean": _std_mean,
    "log_sigmoid_backward": _log_sigmoid_backward,
    "hardtanh_backward": _clipped,
    "hardshrink_backward": _shrunk,
    "softshrink_backward": _shrunk,
    "binary_cross_entropy": _binary_cross_entropy,
    "avg_pool2d_backward": _alone(torch.ops.aten.avg_pool2d_backward.default),
    "glu_backward": _alone(torch.ops.aten.glu_backward.default),
    "upsample_bilinear2d": _alone(torch.ops.aten.upsample_bilinear2d.default),
}

# A CPU rounds on the way of these to 16 bits: products, inverse roots and powers in whichever elements its vectors
# leave over, the number that lists are multiplied by, and softmax along some axes; a GPU does none of it, or less.
ROUNDED_ONCE = frozenset(
    (
        *("add", "sub", "rsub", "addcmul", "addcdiv", "lerp", "_softmax", "_log_softmax"),
        *("rsqrt", "pow", "xlogy", "logsumexp", "linear", "addmm", "baddbmm"),  # with what is added to a product
    )
)
