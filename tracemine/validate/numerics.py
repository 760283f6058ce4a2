"""Judge a fused result: its error against float64, measured by eager's own.

"Equal to eager" would be the wrong target: kernels that keep float32 on the way differ from eager and are nearer to
the truth. So a result may err as eager errs, not more: overall, at its worst element, and in every row. What eager errs
in one row or element is chance; what it could have erred there, the same roundings with other signs, is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

_UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
_WORST_FLOOR = 4.0  # roundings that any element may be off by, whatever eager's luck was
_EQUAL_SHARE, _SHARE_A_ULP = 0.95, 0.005  # of elements that a function's last bits may move over a rounding
_CANCELLED_SHARE = 0.15  # of elements that the order of summing may, where what is far apart cancels
_LUCK = 4.0  # elements
_FACTOR = 1.25  # of eager's error, overall
_FEW = ((10, 4.0), (499, 2.0), (1 << 62, _FACTOR))  # and for so few elements that luck weighs
_ONE_CAUSE = math.sqrt(3)  # of its root mean square: what a rounding that all of a row have in common may come to
_CHANCE = 1e-3  # that a kernel whose errors have eager's size has a row beyond the bound, however many rows there are
_EXACT_BELOW = 2.0**24  # below it float32 has every integer
_CODES = {torch.float8_e4m3fn: 2.0**-4, torch.float8_e5m2: 2.0**-3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Closeness:
    """One output of one trial. Errors are root mean squares against float64; `faults` is empty where it passed."""

    faults: tuple[str, ...]
    error: float = 0.0
    eager_error: float = 0.0
    size: float = 0.0  # root mean square of what is right
    equal_share: float = 1.0  # of elements that equal eager's bit for bit (or both are NaN)
    judged: float = 1.0  # share of elements where NaN, an infinity, or a number other than nothing is asked for


def compare(
    fused: torch.Tensor,
    eager: torch.Tensor,
    truth: torch.Tensor,
    ulp: float,
    usual: float = 0.0,
    noise: torch.Tensor | None = None,
    terms: int = 1,
    even: bool = True,
) -> Closeness:
    """Compare one output with eager's and with float64.

    ulp: error that the graph's functions may have, in units in the last place of float32. usual: eager's error in
    another trial, as a share of the output's size: of a few elements alone, eager may by luck be without any. noise:
    what each element of eager may be off by, root mean square over the signs of its roundings (`roundings.py`); where
    that is infinite, or reaches beyond the dtype, as careful a program may overflow, and nothing is asked; where it is
    −∞, only that there is no number.
    terms: how many numbers may be summed on the way. Where their mean is within as many times of what the dtype holds,
    their sum is not, and which order of summing overflows is chance. even: rows have one magnitude; else what errs
    overall is what the largest row errs, and rows are judged alone.
    """
    if fused.shape != eager.shape:
        return Closeness(faults=(f"shape {tuple(fused.shape)} where eager has {tuple(eager.shape)}",))
    if not fused.numel():
        return Closeness(faults=())
    share = float(equal(fused, eager).double().mean())
    if not fused.dtype.is_floating_point or fused.dtype in _CODES:
        return Closeness(faults=_discrete(fused, eager, truth, noise), equal_share=share)
    f, e, r = fused.double(), eager.double(), truth.double()
    chance = torch.zeros_like(r) if noise is None else noise.double()
    faults, asked = _classes(f, e, r, fused.dtype, terms, chance)
    errors = _Errors(f, e, r, chance, _UNIT[torch.float32] * (1 + ulp), usual)
    unit, size = _UNIT[fused.dtype], errors.size
    if even and errors.error > errors.few * errors.measure + (unit / 8 + errors.slack) * size:
        faults.append(f"error {errors.error:.3g} where eager's is {errors.eager_error:.3g}")
    faults += errors.of_rows(unit)
    worst, allowed = errors.of_elements(unit, even)
    if worst is not None:
        shown = [float(t.reshape(-1)[worst]) for t in (fused, eager, truth)]
        faults.append(f"element {worst}: {shown[0]:.6g}, eager {shown[1]:.6g}, float64 {shown[2]:.6g}")
    # Where more is allowed than the number itself is, nothing in its place would pass, too.
    known = asked & (~errors.finite | (errors.right == 0) | (allowed < errors.right.abs()))
    return Closeness(
        faults=tuple(faults),
        error=errors.error,
        eager_error=errors.eager_error,
        size=size,
        equal_share=share,
        judged=float(known.double().mean()),
    )


def as_near(fused: torch.Tensor, eager: torch.Tensor, truth: torch.Tensor, ulp: float) -> bool:
    """Return whether a result passes `compare` whatever `noise` is: no element is farther from the truth than eager's.

    By two last places of float32 at most it may be, where the graph's functions may have them.
    """
    if fused.shape != eager.shape:
        return False
    same = equal(fused, eager)
    if fused.dtype in _UNIT:
        f, e, r = fused.double(), eager.double(), truth.double()
        off = min(1 + ulp, 2.0) * _UNIT[torch.float32] * r.abs()
        same |= torch.isfinite(f) & torch.isfinite(e) & ~((f - r).abs() > (e - r).abs() + off)
    return bool(same.all())


def inexact(fused: torch.Tensor, truth: torch.Tensor) -> str | None:
    """Return what is wrong with a result whose sums are of small integers: in every order they have the same bits.

    An index that is off by one element in a thousand hides in what 16 bits may err by, and cannot hide here.
    """
    known = torch.isfinite(truth) & (truth.round() == truth) & (truth.abs() < _EXACT_BELOW)
    count = int((known & (fused.double() != truth.to(fused.dtype).double())).sum())
    return f"{count} sums of integers are not exact" if count else None


class _Errors:
    """How far a result and eager's are from the truth, where all are finite; and what eager may be off by: `chance`."""

    def __init__(
        self, f: torch.Tensor, e: torch.Tensor, r: torch.Tensor, chance: torch.Tensor, slack: float, usual: float
    ) -> None:
        self.finite = torch.isfinite(f) & torch.isfinite(e) & torch.isfinite(r) & torch.isfinite(chance)
        f, e, self.right, chance = (torch.where(self.finite, t, 0.0) for t in (f, e, r, chance))
        ours, its = (f - self.right).abs(), (e - self.right).abs()
        self.slack, self.size, self.error, self.eager_error = slack, _rms(self.right), _rms(ours), _rms(its)
        self.few = next(factor for most, factor in _FEW if _as_many(chance) <= most)
        self.measure = max(self.eager_error, _rms(chance), usual * self.size if self.few > _FACTOR else 0.0)
        rows = [t.reshape(-1, t.shape[-1]) if t.dim() else t.reshape(1, 1) for t in (ours, its, self.right, chance)]
        self._ours, self._its, self._right, self._chance = rows
        self._row_ours, row_its, self._row_size, row_chance = (t.square().mean(1).sqrt() for t in rows)
        self._row_its = torch.maximum(row_its, row_chance)

    def of_rows(self, unit: float) -> list[str]:
        """Judge each row by eager's error in it, or what eager may be off by there; return the worst one that fails."""
        chance_of = math.sqrt(2 * math.log(2 * len(self._row_ours) / _CHANCE))
        least = max(0.25 * chance_of, _ONE_CAUSE) * self.few * self.measure
        allowed = (chance_of * self._row_its).clamp_min(least)
        allowed = allowed + (unit + self.slack) * self._row_size + self.slack * self.size
        if not bool((self._row_ours > allowed).any()):
            return []
        row = int(torch.argmax(self._row_ours / allowed.clamp_min(1e-300)))
        return [f"row {row}: error {float(self._row_ours[row]):.3g} where {float(allowed[row]):.3g} is allowed"]

    def of_elements(self, unit: float, even: bool) -> tuple[int | None, torch.Tensor]:
        """Judge each element; return the place of the worst one that fails, and what each may be off by."""
        least = _ONE_CAUSE * self.few / _WORST_FLOOR if self.few == _FACTOR else 1.0
        around = self._row_its.clamp_min(least * self.measure * even)
        scale = unit * self._right.abs() + torch.maximum(around[:, None], self._chance)
        scale = scale + (self.slack * (self._row_size + self.size))[:, None]
        worst = self._ours / scale.clamp_min(1e-300)
        limit = max(2 * float((self._its / scale.clamp_min(1e-300)).max()), _WORST_FLOOR)
        allowed = (limit * scale).reshape(self.right.shape)
        return int(worst.argmax()) if float(worst.max()) > limit else None, allowed


def _as_many(sizes: torch.Tensor) -> float:
    """Return how many numbers of one size a tensor's count as: of a long recurrence a few err more than all others.

    >>> _as_many(torch.ones(50)), _as_many(torch.tensor([1.0, 0, 0, 0]))
    (50.0, 1.0)
    """
    squares = (sizes / sizes.abs().max().clamp_min(1e-300)).square()
    return float(squares.sum() ** 2 / squares.square().sum()) if bool(squares.any()) else float(sizes.numel())


def _rms(t: torch.Tensor) -> float:
    return float(t.square().mean().sqrt())


def _around(off: torch.Tensor) -> torch.Tensor:
    """Return what errs at each element: root mean square of all, or of its row where that is more."""
    off = off.nan_to_num(0.0, 0.0, 0.0)
    rows = off.square().mean(-1, keepdim=True).sqrt() if off.dim() else off.abs()
    return rows.clamp_min(_rms(off))


def equal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return where two are the same number, of either sign if it is 0, or both NaN."""
    if not a.dtype.is_floating_point:
        return a == b.to(a.dtype)
    x, y = a.double(), b.to(a.dtype).double()
    return (x == y) | (x.isnan() & y.isnan())


def promised(fused: torch.Tensor, eager: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Return a result, with eager's number where no number is right (`undefined_casts.py`): nothing is said of it."""
    if fused.shape != eager.shape or not truth.is_floating_point():
        return fused
    return torch.where(truth.isnan() & ~eager.double().isnan(), eager, fused)


def _classes(
    f: torch.Tensor, e: torch.Tensor, r: torch.Tensor, dtype: torch.dtype, terms: int, chance: torch.Tensor
) -> tuple[list[str], torch.Tensor]:
    """Judge NaN and infinities, and return where anything is asked. Where eager itself left the
    truth (an overflow on the way), either; where another rounding would leave the numbers, too.
    """

    def kind(t: torch.Tensor) -> torch.Tensor:
        return torch.where(t.isnan(), 3, torch.where(t.isinf(), 1 + (t < 0).long(), 0))

    beyond = r.isfinite() & (r.abs() > torch.finfo(dtype).max)
    may = r.isfinite() & (chance > 0) & ((r.abs() - torch.finfo(dtype).max).abs() <= _WORST_FLOOR * chance)
    may |= (chance == torch.inf) | ((chance == -torch.inf) & ~f.isfinite())
    may |= f.isinf() & (chance > 0) & (chance >= r.abs())  # as a quotient by what rounding left
    r = r.to(dtype).double()
    of_f, of_e, of_r = kind(f), kind(e), kind(r)
    agreed = (of_e == of_r) & ~beyond
    edge = (e.abs() >= torch.finfo(dtype).max * (1 - 4 * _UNIT[dtype]) / max(terms, 1)) & e.isfinite()
    # Where eager overflowed on the way, another order of summing may overflow elsewhere, or meet inf − inf.
    # Where the truth itself is beyond the dtype and eager has no number, it says nothing.
    excused = ~agreed & ((of_f == of_r) | ((of_e > 0) & (of_f > 0)) | (beyond & e.isnan()))
    wrong = (of_f != of_e) & ~excused & ~edge & ~may
    asked = wrong | ((of_f == of_e) & ~chance.isinf())
    if not bool(wrong.any()):
        return [], asked
    place = int(wrong.reshape(-1).long().argmax())
    return [
        f"{int(wrong.sum())} elements differ in being NaN or infinite, the first at {place}: "
        f"{float(f.reshape(-1)[place])}, eager {float(e.reshape(-1)[place])}"
    ], asked


def _discrete(
    fused: torch.Tensor, eager: torch.Tensor, truth: torch.Tensor, noise: torch.Tensor | None = None
) -> tuple[str, ...]:
    """Judge integers, booleans, fp8: equal to eager, but for as many neighbours as eager itself misses.

    noise: where other signs of eager's roundings give the neighbour, either is right.
    """
    f, e, r = (t.double() for t in (fused, eager, truth))
    settled = torch.isfinite(r) if truth.is_floating_point() else torch.ones_like(r, dtype=torch.bool)
    differ = ~equal(fused, eager) & settled
    missed = ((e != r) & settled).double().mean()
    sure = differ if noise is None else differ & (noise == 0)
    if float(sure.double().mean()) > float(missed) + 1e-3 + 1.0 / max(f.numel(), 1) * (float(missed) > 0):
        return (f"{int(sure.sum())} of {f.numel()} elements differ from eager's",)
    step = _CODES.get(fused.dtype)
    far = (f - e).abs() > (1.0 if step is None else 2.01 * step * torch.maximum(f.abs(), e.abs()) + 2.0**-9)
    # Integers made of large floats are as far off as 16 bits round. What errs no more than eager is not far.
    far &= differ & ((f - r).abs() > (e - r).abs())
    if fused.dtype != torch.bool and bool(far.any()):
        return (f"{int(far.sum())} elements are more than one code from eager's",)
    return ()


def wiring(
    fused: torch.Tensor,
    eager: torch.Tensor,
    exact: bool,
    ulp: float,
    truth: torch.Tensor | None = None,
    noise: torch.Tensor | None = None,
    cancels: bool = False,
) -> str | None:
    """Return what is wrong with the build that rounds as eager does; None where it equals eager.

    exact: nothing may differ by a bit. Else few may: where a function's last place differs, a rounding after it may
    fall to the other side. truth: in float64, of a graph that rounds to nothing narrower than float32; where terms
    cancel, it may differ by a few times what eager errs by, or may err by: `noise`, as in `compare`. Where a function's
    result cancels on the way to a narrow number, as a gelu's tail does, its last bits of float32 may show. cancels:
    sums are of what is far apart, and in which order they are made tells in more elements.
    """
    if not fused.numel():
        return None
    same = equal(fused, eager)
    count = int((~same).sum())
    if not count:
        return None
    if exact:
        return f"{count} of {same.numel()} elements differ by a bit"
    if fused.dtype in _UNIT:
        f, e = fused.double(), eager.double()
        finite = torch.where(torch.isfinite(e), e, 0.0)
        around = torch.zeros(()) if truth is None else _around(finite - truth.double())
        if truth is not None and noise is not None:
            around = torch.maximum(around, noise.nan_to_num(0.0, 0.0, 0.0))
        bits = (8 if fused.dtype == torch.float32 else 0) + 4 * ulp
        same |= (f - e).abs() <= bits * _UNIT[torch.float32] * (e.abs() + _rms(finite)) + 4 * around
        count = int((~same).sum())
        if truth is not None:
            return "it differs by more than rounding" if count else None
    share = _CANCELLED_SHARE if cancels else min(1 - _EQUAL_SHARE, _SHARE_A_ULP * (1 + ulp))
    expected = share * same.numel()
    if count > max(expected, min(expected + math.sqrt(expected) + 1, _LUCK), 2):  # of few elements luck is a part
        return f"{count} of {same.numel()} elements differ from eager's bits"
    return None
