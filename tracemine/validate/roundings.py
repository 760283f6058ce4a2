"""What each call of eager rounds off: every call is run once more in float64 on eager's inputs.

Of functions and quotients in float32 the last bits are not promised: CUDA's own are off by up to 2 units in the last
place, and so is a division that Triton compiles. Eager may have been nearer. An exponential is a power of two of a
product, on a GPU: what rounding that product comes to grows with the exponent, to 100 units near the largest number.

Some calls sum within, and take the sum off again: a norm's gradient. What such a sum was off by is one draw for a
whole row or channel, and does not show in how far the call's results are off elsewhere. So a graph that has such calls
is run once more as PyTorch takes them apart, which is what torch.compile runs, and what those roundings may come to
counts too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_ROUNDING = 2.0**-24  # of a float32, as a share of the number
_LAST_BITS = 4 * _ROUNDING  # 2 units in the last place
# Calls whose result is off by as much of its own size, at most; in place, and of lists, too.
_INEXACT = frozenset(
    (
        *(
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log10",
            "log1p",
            "tanh",
            "erf",
            "sigmoid",
            "silu",
            "gelu",
            "softplus",
        ),
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "sinh", "tan", "erfc", "erfinv"),
        *("hypot", "lgamma", "randn", "randn_like", "normal", "exponential"),
        *("mean", "var", "std", "var_mean", "std_mean", "mse_loss", "huber_loss", "smooth_l1_loss"),  # quotients
        *("sin", "cos", "pow", "sqrt", "rsqrt", "reciprocal", "div", "addcdiv", "linalg_vector_norm", "norm"),
        *("_softmax", "logsumexp", "native_layer_norm", "native_group_norm", "native_batch_norm", "_fused_rms_norm"),
    )
)
# Functions that take an exponential of what they are given, which is rounded once before.
_EXPONENTIALS = frozenset(("exp", "expm1", "sigmoid", "silu", "softplus", "mish", "log_sigmoid_forward"))
# Calls that sum within and take the sum off again: PyTorch has each in simpler calls, too.
_SUMS_WITHIN = frozenset(
    (
        *("native_layer_norm_backward", "native_group_norm_backward", "_fused_rms_norm_backward"),
        *("native_batch_norm_backward", "cudnn_batch_norm_backward"),
        *("_softmax_backward_data", "_log_softmax_backward_data"),
    )
)
_SUMS, _RUNNING_SUMS = ("sum", "mean"), ("cumsum", "cumsum_")


class Mode(TorchDispatchMode):  # type: ignore[misc]
    """A mode that sees each call of a graph.

    No compiler is to keep out of it: torch would load all of its own to learn so, longer than most validations take.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:  # asked when a class is made; versions that do not ask load nothing
        return False


class Recorded(Mode):
    """Run a graph as it is, and keep what each call rounds off: `offs`, None where a result is exact. `largest`: the
    largest number that each result can hold.

    apart: as in InDouble. within: whether the graph has such calls.
    """

    def __init__(self, apart: bool = False) -> None:
        super().__init__()
        self.apart, self.within = apart, False
        self.offs: list[list[torch.Tensor | None]] = []
        self.largest: list[list[float]] = []

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        """Run one call."""
        if (instead := simpler(function)) is not None:
            self.within = True
            if self.apart:
                with self:
                    return instead(*given, **(named or {}))
        wide = _wide(given)
        exact = tensors_of(function, wide, widely(function, wide, named or {}))
        found = function(*given, **(named or {}))
        reached = max((t for t in _flat(given) if _is_float(t)), key=torch.numel, default=None)
        results = list(zip(tensors_of(function, given, found), exact, strict=True))
        name = operator_of(function)
        least = careful(name, given[0] if given else None, lambda t: widely(function, [t, *wide[1:]], named or {}))
        self.offs.append([rounded_off(a, b, reached, name, least) for a, b in results])
        self.largest.append([torch.finfo(a.dtype).max if _is_float(a) else math.inf for a, _ in results])
        return found


def sums_within(name: str) -> bool:
    """Return whether an operator, named without its namespace, sums and takes the sum off again."""
    return name in _SUMS_WITHIN


def simpler(function: Any) -> Callable[..., Any] | None:
    """Return PyTorch's decomposition of a call that sums within; None for other calls, and where it has none."""
    return decomposition_table.get(function) if operator_of(function) in _SUMS_WITHIN else None


def operator_of(function: Any) -> str:
    """Return the operator that a call is of, without its namespace and overload."""
    return str(function.overloadpacket._qualified_op_name).removeprefix("aten::")


def in_float64(value: Any) -> Any:
    """Return an argument for a call in float64: a requested dtype becomes that, too."""
    return torch.float64 if isinstance(value, torch.dtype) and value in FLOATS else value


def widely(function: Any, given: Sequence[Any], named: Any) -> Any:
    """Run a call in float64."""
    wide = {n: in_float64(v) for n, v in named.items()}
    taken = [in_float64(v) for v in given]
    if (instead := _IN_PLACE_OF.get(operator_of(function))) is not None:
        return instead(*taken, **wide)
    if "_softmax" in str(function):
        taken = [False if v is True else v for v in taken]  # half_to_float
    return function(*taken, **wide)


def _unscaled(gradients: Any, infinite: torch.Tensor, scale: torch.Tensor) -> None:
    found = infinite.float()
    torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default(gradients, found, scale.float())
    infinite.copy_(found)


def _batch_normed(*given: Any, exponential_average_factor: float = 0.0, epsilon: float = 0.0) -> tuple[Any, ...]:
    numbers = given[6:] or (exponential_average_factor, epsilon)
    reserve = torch.empty(0, dtype=torch.uint8, device=given[0].device)
    return (*torch.ops.aten.native_batch_norm.default(*given[:6], *numbers), reserve)


# Calls that do not take float64 in all their places or layouts, as others compute it.
_IN_PLACE_OF: dict[str, Callable[..., Any]] = {
    "_amp_foreach_non_finite_check_and_unscale_": _unscaled,
    "cudnn_batch_norm": _batch_normed,
}


def tensors_of(function: Any, given: Sequence[Any], found: Any) -> list[torch.Tensor]:
    """Return the tensors that a call gives, or those that it writes where it gives none."""
    if found is None:
        written = [a.alias_info is not None and a.alias_info.is_write for a in function._schema.arguments]
        found = [v for v, is_written in zip(given, written, strict=False) if is_written]
    return [t for t in _flat(found) if isinstance(t, torch.Tensor)]


def _flat(found: Any) -> list[Any]:
    return [t for each in found for t in _flat(each)] if isinstance(found, list | tuple) else [found]


def _wide(value: Any) -> Any:
    """Return copies, floats in float64."""
    if isinstance(value, list | tuple):
        return [_wide(each) for each in value]
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_complex():
        return value.to(torch.complex128)
    return value.double() if value.dtype in FLOATS else value.clone()


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in FLOATS


def _at_least_one(least: torch.Tensor | None, found: torch.Tensor, reached: torch.Tensor | None) -> torch.Tensor | None:
    """Return what a result may be off by, a rounding of what it is made of included where that is much more."""
    if reached is None or not 0 < 2 * found.numel() <= reached.numel():
        return least
    one = _ROUNDING * _reached(reached.double().nan_to_num(0.0, 0.0, 0.0), found)
    return one if least is None else torch.maximum(least, one)


def rounded_off(
    found: torch.Tensor,
    exact: torch.Tensor,
    reached: torch.Tensor | None = None,
    name: str = "",
    least: torch.Tensor | None = None,
) -> torch.Tensor | None:
    """Return what a result lacks of the exact one; None where that is nothing, or nothing that rounding does.

    reached: the largest tensor that the call reads. Of many numbers one is made in float32 on the way, and where they
    cancel, as in a mean, it is rounded as numbers of their size are: eager may have been luckier, or summed in wider
    types, and a program that was not is as careful. name: the call's; a function's last bits may be off. least: what
    it may be off by, as `careful` gives it.
    """
    if found.is_complex() and exact.is_complex():
        return rounded_off(torch.view_as_real(found), torch.view_as_real(exact), name=name)
    if found.dtype not in FLOATS or found.shape != exact.shape:
        return None
    off = (found.double() - exact.double()).nan_to_num(0.0, 0.0, 0.0)
    bits = _last_bits(name, exact.double().nan_to_num(0.0, 0.0, 0.0))
    if bits is not None:
        least = bits if least is None else least + bits
    if least is None and not bool(off.any()):
        return None
    least = _at_least_one(least, found, reached)
    if least is not None:
        off = torch.where(off.abs() < least, least, off)
    return off.float() if bool(off.any()) else None


def _reached(read: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """Return how large the numbers are that a result was made of: its row's where each row makes one, else all."""
    rows = found.dim() > 0 and found.shape[0] == read.shape[0] and read.numel() % found.numel() == 0
    kept = [size for size in found.shape if size != 1]
    if rows and kept == [size for size in read.shape[: len(kept)] if size != 1] and len(kept) < read.dim():
        return read.reshape(found.numel(), -1).square().mean(1).sqrt().reshape(found.shape)
    return torch.full_like(found, float(read.square().mean().sqrt()), dtype=torch.float64)


def careful(name: str, source: Any, of: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor | None:
    """Return what a careful sum or exponential may be off by, in each place of its result; None for other calls.

    of: the call in float64, of other numbers than `source`.
    """
    if not _is_float(source):
        return None
    finite = source.double().nan_to_num(0.0, 0.0, 0.0)
    if name in _SUMS:
        return _of_sums(name, finite, of)
    if name in _RUNNING_SUMS:
        return _of_running_sums(finite, of)
    if name.removesuffix("_") in _EXPONENTIALS:  # of a number that was rounded
        return (_first(of(finite * (1 + _ROUNDING))) - _first(of(finite))).abs().nan_to_num(0.0, 0.0, 0.0)
    return None


def _first(found: Any) -> torch.Tensor:
    tensor: torch.Tensor = found[0] if isinstance(found, list | tuple) else found
    return tensor


def _of_sums(name: str, finite: torch.Tensor, of: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Return what sums may be off by, added in pairs, then in pairs of pairs.

    n numbers make n partial sums of ever fewer and ever larger numbers; each of the log₂ n stages rounds off the same,
    a root mean square of 2⁻²⁴ √(Σx² ÷ 3). Eager may have been luckier in the few results that it gives. Where the
    numbers' sizes come to more than float32 holds, a partial sum may be infinite.
    """
    squares = of(finite.square())
    terms = finite.numel() / max(squares.numel(), 1)
    share = squares / terms if name == "mean" else squares
    sizes = of(finite.abs()) * (terms if name == "mean" else 1)
    off = _ROUNDING * (share * math.log2(max(terms, 1)) / 3).sqrt()
    return torch.where(sizes > torch.finfo(torch.float32).max, math.inf, off)


def _of_running_sums(finite: torch.Tensor, of: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Return what running sums may be off by: each is of pairs of pairs, as deep as its index's logarithm.

    Of numbers of one sign the squares of what a stage rounds off double from each to the next, and the last rounds as
    the sum itself is rounded. A CPU sums in float64 and rounds each sum once.
    """
    of_parts = of(finite.square()) * of(torch.ones_like(finite)).log2()
    return _ROUNDING * ((of_parts + 2 * of(finite).square()) / 3).sqrt()


def _last_bits(name: str, exact: torch.Tensor) -> torch.Tensor | None:
    """Return what a careful function's result may be off by."""
    base = name.removeprefix("_foreach_").removesuffix("_")
    if base == "_log_softmax" and exact.dim():  # of the row's logarithm, which its largest number has been taken off
        return (_LAST_BITS * exact.amax(-1, keepdim=True).abs()).expand_as(exact).maximum(_ROUNDING * exact.abs())
    return _LAST_BITS * exact.abs() if base in _INEXACT else None
