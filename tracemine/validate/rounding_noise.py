"""How far eager's own roundings may carry a graph's results: each call's, with random signs.

The graph in float64, with what each call rounded off (`roundings.py`) added with other signs, gives other results that
as careful a program could have had. What is near the largest number may be beyond it in another program, as may what a
sum of such numbers comes to on the way. So draws overflow as float32 does; where one does and the truth does not, the
noise is infinite, and no number and no infinity is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tracemine.validate.roundings import FLOATS, Mode, Recorded, in_float64, simpler, tensors_of, widely

Fresh = Callable[[], Sequence[torch.Tensor]]  # makes tensors anew
_LOTS = 12  # of signs: one element's size is estimated from as many
# Of which of four draws a call errs in, by its number: of any two of six either does alone in one.
_ERRS = ((1, 1, 0, 0), (0, 0, 1, 1), (1, 0, 1, 0), (0, 1, 0, 1), (1, 0, 0, 1), (0, 1, 1, 0))
# Draws with the signs of an earlier one, turned: where rounding decides a comparison, one of the two comes out
# otherwise, however many elements meet a bound exactly. By signs drawn at random one in thousands never does.
_TURNED = {_LOTS: 0, _LOTS + 1: 2}
DRAWS = _LOTS + len(_TURNED)
_MANY = 500  # elements: what they err overall is no chance


class Signs:
    """The signs of draws, one draw after another."""

    def __init__(self, device: Any = "cpu") -> None:
        self.generator = torch.Generator(device).manual_seed(0)
        self.draw, self._turned = 0, False
        self._states: list[torch.Tensor] = []  # in which each draw found the generator

    def begin(self, draw: int) -> None:
        """Begin a draw: with signs of its own, or those of an earlier one, turned."""
        self.draw, self._turned = _TURNED.get(draw, draw), draw in _TURNED
        if self._turned:
            self.generator.set_state(self._states[self.draw])
        else:
            self._states.append(self.generator.get_state())

    def add(self, tensor: torch.Tensor, off: torch.Tensor | None, call: int) -> None:
        """Add what was rounded off in one call, by its number.

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
            moved = off * (-signs if self._turned else signs)
            tensor.add_(moved * math.sqrt(2) if alone else moved)


class InDouble(Mode):
    """Run a graph in float64: what it casts to a float stays wide.

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
        """Run one call."""
        if self.apart and (instead := simpler(function)) is not None:
            with self:
                return instead(*map(in_float64, given), **{n: in_float64(v) for n, v in (named or {}).items()})
        found = widely(function, given, named or {})
        if self.signs is not None and self.at < len(self.offs):
            results = tensors_of(function, given, found)
            for tensor, off, most in zip(results, self.offs[self.at], self.largest[self.at], strict=True):
                self.signs.add(tensor, off, self.at)
                _overflow(tensor, most)
        self.at += 1
        return found


def _overflow(tensor: torch.Tensor, most: float) -> None:
    """Make infinities of what a narrower type has no numbers for; of complex numbers nothing."""
    if tensor.dtype == torch.float64 and bool((beyond := (tensor.abs() > most) & tensor.isfinite()).any()):
        tensor.copy_(torch.where(beyond, torch.copysign(tensor.new_tensor(math.inf), tensor), tensor))


def spread(
    graph: Callable[..., Any], inputs: Fresh, wide: Fresh, truth: Sequence[torch.Tensor]
) -> list[torch.Tensor] | None:
    """Return what each element of a graph's results may be off by: root mean square over a few draws of signs.

    It is infinite where a draw leaves the numbers, and the truth does not. None where float64 makes other calls.
    graph: takes tensors, gives a sequence of them. inputs, wide: fresh ones, and such with floats in float64. truth:
    what the graph gives in float64, and its inputs after that.
    """
    taken = inputs()
    with Recorded() as recorded:
        graph(*taken)
    found = _spread(graph, recorded, wide, truth)
    if found is None or not recorded.within:
        return found
    # In float32, for there they are taken apart the same way in either width: casts to and fro would be further calls.
    single = [t.float() if t.dtype in FLOATS else t for t in inputs()]
    try:
        with Recorded(apart=True) as recorded:
            graph(*single)
        other = _spread(graph, recorded, wide, truth)
    except (RuntimeError, TypeError, NotImplementedError):  # a call does not take float32, or PyTorch's own rule fails
        return found
    return found if other is None else [torch.maximum(a, b) for a, b in zip(found, other, strict=True)]


def _spread(
    graph: Callable[..., Any], recorded: Recorded, wide: Fresh, truth: Sequence[torch.Tensor]
) -> list[torch.Tensor] | None:
    """Return as `spread`, of what was recorded."""
    drawn = Spread(truth)
    signs = Signs(truth[0].device if truth else "cpu")
    for draw in range(DRAWS):
        signs.begin(draw)
        taken = wide()
        try:
            with InDouble(recorded.offs, signs, recorded.apart, recorded.largest) as run:
                found = [*(graph(*taken) or ()), *taken]
        except ValueError:  # a call gives another number of results
            return None
        if run.at != len(recorded.offs):
            return None
        drawn.add(found)
    return drawn.noise()


class Spread:
    """How far draws are from the truth."""

    def __init__(self, truth: Sequence[torch.Tensor]) -> None:
        self._truth, self._count = [t.double() for t in truth], 0
        self._squares = [torch.zeros(t.shape, dtype=torch.float64, device=t.device) for t in truth]
        self._farthest = [t.clone() for t in self._squares]
        self._numbers = [t.isfinite() for t in self._truth]  # where the truth or a draw is a number
        self._largest = [0.0] * len(truth)  # mean square of a draw

    def add(self, found: Sequence[torch.Tensor]) -> None:
        """Add a draw. It is infinitely far where it or the truth is no number and the other is another, or one."""
        self._count += 1
        for k, (a, b) in enumerate(zip(found, self._truth, strict=True)):
            square = (a.double() - b).square()
            if not math.isfinite(mean := float(square.flatten().mean())):
                off = (a.double() - b).nan_to_num(math.inf, math.inf, math.inf)
                square = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, off).square()
                self._numbers[k] = self._numbers[k] | a.isfinite()
                mean = _mean(square)
            self._squares[k] += square
            self._farthest[k] = self._farthest[k].maximum(square)
            self._largest[k] = max(self._largest[k], mean)

    def noise(self) -> list[torch.Tensor]:
        """Return the root mean square of each element, or half of its farthest draw where a few exceed all others.

        Of many elements it is at least what the farthest draw comes to overall: were their errors each by chance, all
        draws would come to the same; they have one cause. −∞ where it is one of no numbers and which one is chance.
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
    """Return the mean of the finite ones."""
    finite = squares[squares.isfinite()]
    return float(finite.mean()) if finite.numel() else 0.0
