"""What eager's own roundings may come to: each call's error, carried through the calls after it with other signs.

How far eager is from float64 in one element is chance: errors cancel, or add up. Here every call is run once more in
float64 on what eager gave it; the difference is what that call alone rounded off. The chain in float64, with those
differences added with signs drawn at random, gives other results that as careful a program could have had.

Of functions and quotients in float32 the last bits are nobody's promise: CUDA's own are off by up to 2 units in the
last place, and so is a division that Triton compiles. Eager may have been nearer. An exponential is a power of two of a
product, on a GPU: what rounding that product comes to grows with the exponent, to 100 units near the largest number.

What is near the largest number may be beyond it in another program, as may what a sum of such numbers comes to on the
way. So draws overflow as float32 does; where one does and the truth does not, the noise is infinite, and no number and
no infinity is wrong.

Some calls sum within, and take the sum off again: a norm's gradient. What such a sum was off by is one draw for a
whole row or channel, and does not show in how far the call's results are off elsewhere. So a chain that has such calls
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

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_ROUNDING = 2.0**-24  # of a float32, as a share of the number
_LOTS = 12  # of signs: one element's size is told by as many
# Of which of four draws a call errs in, by its number: of any two of six either does alone in one.
_ERRS = ((1, 1, 0, 0), (0, 0, 1, 1), (1, 0, 1, 0), (0, 1, 0, 1), (1, 0, 0, 1), (0, 1, 1, 0))
# Draws with the signs of an earlier one, turned: where rounding decides a comparison, one of the two comes out
# otherwise, however many elements meet a bound exactly. By signs drawn at random one in thousands never does.
_TURNED = {_LOTS: 0, _LOTS + 1: 2}
DRAWS = _LOTS + len(_TURNED)
_MANY = 500  # elements: what they err overall is no chance
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
    """What sees each call of a chain. No compiler is to keep out of it: torch would load all of its own to be told so,
    which takes longer than most proofs do."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:  # asked when a class is made; versions that do not ask load nothing
        return False


class Signs:
    """The signs of draws, one draw after another."""

    def __init__(self, device: Any = "cpu") -> None:
        self.generator = torch.Generator(device).manual_seed(0)
        self.draw, self._turned = 0, False
        self._states: list[torch.Tensor] = []  # in which each draw found the generator

    def begin(self, draw: int) -> None:
        """A draw: signs of its own, or those of an earlier one, turned."""
        self.draw, self._turned = _TURNED.get(draw, draw), draw in _TURNED
        if self._turned:
            self.generator.set_state(self._states[self.draw])
        else:
            self._states.append(self.generator.get_state())

    def add(self, tensor: torch.Tensor, off: torch.Tensor | None, call: int) -> None:
        """Adds what was rounded off in one call, by its number.

        In every third draw a row has one sign, for its errors may have one cause; in every third half of the calls err,
        so that of two calls near each other either errs alone once. Where what one errs hides what the other did, as a
        deviation that should be 0 does below a difference that should be, a program may err in the other alone.
        """
        draw, alone = self.draw, self.draw % 3 == 1
        if alone and not _ERRS[call % len(_ERRS)][draw // 3 % 4]:
            return
        if tensor.is_complex():  # its parts, each with an error of its own
            tensor = torch.view_as_real(tensor)
        if off is not None and tensor.dtype == torch.float64:
            shape = (*off.shape[:-1], 1) if draw % 3 == 2 and off.dim() else off.shape
            signs = torch.randint(0, 2, shape, generator=self.generator, device=off.device, dtype=torch.int8) * 2 - 1
            tensor.add_(off * (-signs if self._turned else signs) * (math.sqrt(2) if alone else 1.0))


class InDouble(Mode):
    """Runs a chain in float64: what it casts to a float stays wide.

    offs: what to add to the results of each call, by `signs`; none: the truth. largest: what each of those results may
    be at most, beyond which it is infinite. apart: what sums within is run as the simpler calls that PyTorch has it in.
    """

    def __init__(
        self,
        offs: Sequence[Sequence[Any]] = (),
        signs: Signs | None = None,
        apart: bool = False,
        largest: Sequence[Sequence[float]] = (),
    ) -> None:
        super().__init__()
        self.offs, self.signs, self.apart, self.at = offs, signs, apart, 0
        self.largest = largest

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        """One call."""
        if self.apart and (simpler := _simpler(function)) is not None:
            with self:
                return simpler(*map(_in_float64, given), **{n: _in_float64(v) for n, v in (named or {}).items()})
        found = widely(function, given, named or {})
        if self.signs is not None and self.at < len(self.offs):
            results = tensors_of(function, given, found)
            for tensor, off, most in zip(results, self.offs[self.at], self.largest[self.at], strict=True):
                self.signs.add(tensor, off, self.at)
                _overflow(tensor, most)
        self.at += 1
        return found


class Recorded(Mode):
    """Runs a chain as it is, and keeps what each call rounds off: `offs`, None where a result is exact. `largest`: the
    largest number that each result can hold.

    apart: as in InDouble. within: whether the chain has such calls.
    """

    def __init__(self, apart: bool = False) -> None:
        super().__init__()
        self.apart, self.within = apart, False
        self.offs: list[list[torch.Tensor | None]] = []
        self.largest: list[list[float]] = []

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        """One call."""
        if (simpler := _simpler(function)) is not None:
            self.within = True
            if self.apart:
                with self:
                    return simpler(*given, **(named or {}))
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


def _overflow(tensor: torch.Tensor, most: float) -> None:
    """Makes infinities of what a narrower type has no numbers for; of complex numbers nothing."""
    if tensor.dtype == torch.float64 and bool((beyond := (tensor.abs() > most) & tensor.isfinite()).any()):
        tensor.copy_(torch.where(beyond, torch.copysign(tensor.new_tensor(math.inf), tensor), tensor))


def sums_within(name: str) -> bool:
    """Whether an operator, named without its namespace, sums and takes the sum off again."""
    return name in _SUMS_WITHIN


def _simpler(function: Any) -> Callable[..., Any] | None:
    """What PyTorch has a call in that sums within; None for other calls, and where it has none."""
    return decomposition_table.get(function) if operator_of(function) in _SUMS_WITHIN else None


def operator_of(function: Any) -> str:
    """The operator that a call is of, without its namespace and overload."""
    return str(function.overloadpacket._qualified_op_name).removeprefix("aten::")


def _in_float64(value: Any) -> Any:
    """An argument of a call in float64: a dtype that is asked for is that, too."""
    return torch.float64 if isinstance(value, torch.dtype) and value in _FLOATS else value


def widely(function: Any, given: Sequence[Any], named: Any) -> Any:
    """A call in float64."""
    wide = {n: _in_float64(v) for n, v in named.items()}
    taken = [_in_float64(v) for v in given]
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
    """The tensors that a call gives, or those that it writes where it gives none."""
    if found is None:
        written = [a.alias_info is not None and a.alias_info.is_write for a in function._schema.arguments]
        found = [v for v, is_written in zip(given, written, strict=False) if is_written]
    return [t for t in _flat(found) if isinstance(t, torch.Tensor)]


def _flat(found: Any) -> list[Any]:
    return [t for each in found for t in _flat(each)] if isinstance(found, list | tuple) else [found]


def _wide(value: Any) -> Any:
    """Copies, floats in float64."""
    if isinstance(value, list | tuple):
        return [_wide(each) for each in value]
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_complex():
        return value.to(torch.complex128)
    return value.double() if value.dtype in _FLOATS else value.clone()


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _FLOATS


def rounded_off(
    found: torch.Tensor,
    exact: torch.Tensor,
    reached: torch.Tensor | None = None,
    name: str = "",
    least: torch.Tensor | None = None,
) -> torch.Tensor | None:
    """What a result lacks of the exact one; None where that is nothing, or nothing that rounding does.

    reached: the largest tensor that the call reads. Of many numbers one is made in float32 on the way, and where they
    cancel, as in a mean, it is rounded as numbers of their size are: eager may have been luckier, or summed in wider
    types, and a program that was not is as careful. name: the call's; a function's last bits may be off. least: what
    it may be off by, as `careful` gives it.
    """
    if found.is_complex() and exact.is_complex():
        return rounded_off(torch.view_as_real(found), torch.view_as_real(exact), name=name)
    if found.dtype not in _FLOATS or found.shape != exact.shape:
        return None
    off = (found.double() - exact.double()).nan_to_num(0.0, 0.0, 0.0)
    bits = _last_bits(name, exact.double().nan_to_num(0.0, 0.0, 0.0))
    if bits is not None:
        least = bits if least is None else least + bits
    if least is None and not bool(off.any()):
        return None
    if reached is not None and 0 < 2 * found.numel() <= reached.numel():
        one = _ROUNDING * _reached(reached.double().nan_to_num(0.0, 0.0, 0.0), found)
        least = one if least is None else torch.maximum(least, one)
    if least is not None:
        off = torch.where(off.abs() < least, least, off)
    return off.float() if bool(off.any()) else None


def _reached(read: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """How large numbers are that a result was made of: its row's, where one is made of each row; else all of them."""
    rows = found.dim() > 0 and found.shape[0] == read.shape[0] and read.numel() % found.numel() == 0
    kept = [size for size in found.shape if size != 1]
    if rows and kept == [size for size in read.shape[: len(kept)] if size != 1] and len(kept) < read.dim():
        return read.reshape(found.numel(), -1).square().mean(1).sqrt().reshape(found.shape)
    return torch.full_like(found, float(read.square().mean().sqrt()), dtype=torch.float64)


def careful(name: str, source: Any, of: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor | None:
    """What a careful sum or exponential may be off by, in each place of its result; None where a call makes none.

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
    """As `careful`. Added in pairs, then in pairs of pairs, n numbers make n partial sums of ever fewer and ever larger
    numbers; each of the log₂ n stages rounds off the same, a root mean square of 2⁻²⁴ √(Σx² ÷ 3). Eager may have been
    luckier in the few results that it gives. Where the numbers' sizes come to more than float32 holds, a partial sum
    may be infinite.
    """
    squares = of(finite.square())
    terms = finite.numel() / max(squares.numel(), 1)
    share = squares / terms if name == "mean" else squares
    sizes = of(finite.abs()) * (terms if name == "mean" else 1)
    off = _ROUNDING * (share * math.log2(max(terms, 1)) / 3).sqrt()
    return torch.where(sizes > torch.finfo(torch.float32).max, math.inf, off)


def _of_running_sums(finite: torch.Tensor, of: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """As `careful`. Each place's sum is one of pairs of pairs, as many stages deep as the logarithm of its place. Of
    numbers of one sign the squares of what a stage rounds off double from each to the next, and the last rounds as the
    sum itself is rounded. A CPU sums in float64 and rounds each sum once.
    """
    of_parts = of(finite.square()) * of(torch.ones_like(finite)).log2()
    return _ROUNDING * ((of_parts + 2 * of(finite).square()) / 3).sqrt()


def _last_bits(name: str, exact: torch.Tensor) -> torch.Tensor | None:
    """What a careful function's result may be off by."""
    base = name.removeprefix("_foreach_").removesuffix("_")
    if base == "_log_softmax" and exact.dim():  # of the row's logarithm, which its largest number has been taken off
        return (_LAST_BITS * exact.amax(-1, keepdim=True).abs()).expand_as(exact).maximum(_ROUNDING * exact.abs())
    return _LAST_BITS * exact.abs() if base in _INEXACT else None


def spread(
    chain: Callable[..., Any],
    inputs: Callable[[], Sequence[torch.Tensor]],
    wide: Callable[[], Sequence[torch.Tensor]],
    truth: Sequence[torch.Tensor],
) -> list[torch.Tensor] | None:
    """What each element of a chain's results may be off by: root mean square over a few draws of signs; infinite where
    a draw leaves the numbers, and the truth does not.

    chain: takes tensors, gives a sequence of them. inputs, wide: fresh ones, and such with floats in float64. truth:
    what the chain gives in float64, and its inputs after that. None where the chain makes other calls in float64.
    """
    taken = inputs()
    with Recorded() as recorded:
        chain(*taken)
    found = _spread(chain, recorded, wide, truth)
    if found is None or not recorded.within:
        return found
    # In float32, for there they are taken apart alike in either width: casts to and fro would be further calls.
    single = [t.float() if t.dtype in _FLOATS else t for t in inputs()]
    try:
        with Recorded(apart=True) as recorded:
            chain(*single)
        other = _spread(chain, recorded, wide, truth)
    except (RuntimeError, TypeError, NotImplementedError):  # a call does not take float32, or PyTorch's own rule fails
        return found
    return found if other is None else [torch.maximum(a, b) for a, b in zip(found, other, strict=True)]


def _spread(
    chain: Callable[..., Any],
    recorded: Recorded,
    wide: Callable[[], Sequence[torch.Tensor]],
    truth: Sequence[torch.Tensor],
) -> list[torch.Tensor] | None:
    """As `spread`, of what was recorded."""
    drawn = Drawn(truth)
    signs = Signs(truth[0].device if truth else "cpu")
    for draw in range(DRAWS):
        signs.begin(draw)
        taken = wide()
        try:
            with InDouble(recorded.offs, signs, recorded.apart, recorded.largest) as run:
                found = [*(chain(*taken) or ()), *taken]
        except ValueError:  # a call gives another number of results
            return None
        if run.at != len(recorded.offs):
            return None
        drawn.add(found)
    return drawn.noise()


class Drawn:
    """How far draws are from the truth."""

    def __init__(self, truth: Sequence[torch.Tensor]) -> None:
        self._truth, self._count = truth, 0
        self._squares = [torch.zeros(t.shape, dtype=torch.float64, device=t.device) for t in truth]
        self._farthest = [t.clone() for t in self._squares]
        self._numbers = [t.double().isfinite() for t in truth]  # where the truth or a draw is a number
        self._largest = [0.0] * len(truth)  # mean square of a draw

    def add(self, found: Sequence[torch.Tensor]) -> None:
        """One draw. It is infinitely far where it or the truth is no number and the other is another, or one."""
        self._count += 1
        for k, (a, b) in enumerate(zip(found, self._truth, strict=True)):
            a, b = a.double(), b.double()
            off = (a - b).nan_to_num(math.inf, math.inf, math.inf)
            square = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, off).square()
            self._numbers[k] = self._numbers[k] | a.isfinite()
            self._squares[k] += square
            self._farthest[k] = self._farthest[k].maximum(square)
            self._largest[k] = max(self._largest[k], _mean(square))

    def noise(self) -> list[torch.Tensor]:
        """Root mean square of each element, or half of its farthest draw where a few tell more than all others. Of many
        it is at least what the farthest draw comes to overall: were their errors each by chance, all draws would come
        to the same; they have one cause. −∞ where it is one of no numbers and which one is chance.
        """
        found = []
        for square, farthest, largest, numbers in zip(
            self._squares, self._farthest, self._largest, self._numbers, strict=True
        ):
            mean = (square / max(self._count, 1)).maximum(farthest / 4)
            usual = _mean(mean) if square.numel() >= _MANY else largest
            noise = (mean * max(largest / usual, 1.0) if usual else mean).sqrt()
            found.append(torch.where(noise.isinf() & ~numbers, -math.inf, noise))
        return found


def _mean(squares: torch.Tensor) -> float:
    """The mean of finite ones."""
    finite = squares[squares.isfinite()]
    return float(finite.mean()) if finite.numel() else 0.0
