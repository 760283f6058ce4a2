"""Check kernels on a GPU: against eager and float64, on inputs as recorded, for three seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from tracemine.validate.numerics import Closeness, compare
from tracemine.validate.rounding_noise import InDouble, spread
from tracemine.validate.undefined_casts import defined

Work = Callable[..., Any]  # takes tensors, gives tensors
Described = Sequence[tuple[Any, ...]]  # inputs, as `make_inputs` takes them

SEEDS = 3
_RUNS = 10  # that must have the same bits
_OF_SIZE, _OF_NOISE = 1e-9, 1e-6  # by which orders of one computation may differ in float64


def make_inputs(described: Described, seed: int = 0, device: str = "cuda") -> list[torch.Tensor]:
    """Make tensors of the recorded shapes, dtypes and strides, with random values; of indices, valid ones.

    described: for each input its name, shape, dtype, strides, and below what its indices stay (None: no indices;
    "positive": numbers, none of them negative, as averages of squares are; "moderate": none of them large; "deviation":
    inverse ones, positive and neither large nor small; "share": from 0 to 1; ("rising", n): integers from 0 on,
    each below n and none smaller than the one before). Of every second seed rows of others have
    magnitudes of their own, and some are zeros: an epsilon, a bound or a largest number taken off shows there alone.
    """
    generator = torch.Generator(device).manual_seed(seed)
    found = []
    for _, shape, dtype, strides, below in described:
        values = _values_of(shape, dtype, below, generator)
        if seed % 2 and dtype.is_floating_point and below in (None, "positive") and len(shape) > 1:
            values = values * _magnitudes(shape, generator)
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1 if values.numel() else 0
        tensor = torch.empty(reach, dtype=dtype, device=device).as_strided(shape, strides)
        once = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)  # what is repeated is written once
        tensor[once].copy_(values[once])
        found.append(tensor)
    return found


def _values_of(shape: Sequence[int], dtype: torch.dtype, below: Any, generator: torch.Generator) -> torch.Tensor:
    """Draw an input's values, as `make_inputs` describes them."""
    drawn = {"generator": generator, "device": generator.device}
    if below == "positive":
        return torch.randn(shape, **drawn).abs()
    if below == "share":
        return torch.rand(shape, **drawn)
    if below == "deviation":
        return torch.randn(shape, **drawn).abs() + 0.25
    if isinstance(below, tuple):
        return torch.arange(shape[0], device=generator.device) * below[1] // max(shape[0], 1)
    if below is not None and below != "moderate":
        return torch.randint(0, max(below, 1), shape, **drawn)
    if dtype == torch.bool:
        return torch.rand(shape, **drawn) < 0.5
    return torch.randn(shape, **drawn) if dtype.is_floating_point else torch.randint(0, 100, shape, **drawn)


def _magnitudes(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Draw a power of two for each row, from 2⁻¹² to 2¹⁰; 0 for every fifth."""
    rows = torch.randint(-12, 11, tuple(shape[:-1]), generator=generator, device=generator.device)
    rows = torch.exp2(rows.float())
    rows.view(-1)[4::5] = 0
    return rows.unsqueeze(-1)


def copies(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the same tensors in memory of their own, with the same strides."""
    return [memory_of(t).clone().as_strided(t.shape, t.stride()) for t in inputs]


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the memory that a tensor reaches over, in one axis: gaps too, and what it repeats once."""
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return tensor.as_strided((reach if tensor.numel() else 0,), (1,))


def widened(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return copies, floats in float64."""
    wide = (torch.float32, torch.bfloat16, torch.float16)
    return [t.double() if t.dtype in wide else t.clone() for t in inputs]


def right(
    eager: Work,
    variants: Mapping[str, Work],
    described: Described,
    ulp: float,
    device: str = "cuda",
    seeds: Sequence[int] = range(SEEDS),
    rounds: Work | None = None,
) -> dict[str, dict[str, Any]]:
    """Return for each variant its faults, its worst output's errors with the first seed (where it gives nothing, those
    of what it writes in place), and `judged`: the share of its numbers that something is asked of (`numerics.py`), of
    all seeds.

    A variant may give None for what is not read. rounds: eager's computation in another order, whose roundings are
    allowed too; where it is another function than eager, every variant has that as its fault.
    """
    found: dict[str, dict[str, Any]] = {name: {"faults": []} for name in variants}
    numbers: dict[str, list[tuple[float, int]]] = {name: [] for name in variants}
    for seed in seeds:
        expected = _Expected(eager, described, seed, device, ulp, rounds)
        for variant, work in variants.items():
            found[variant]["faults"] += expected.faults
            for name, count, result in expected.compared(work):
                numbers[variant].append((result.judged, count))
                found[variant]["faults"] += [f"seed {seed}, {name}: {text}" for text in result.faults]
                if seed == seeds[0] and (name.startswith("output") or not expected.outputs):
                    for key in ("error", "eager_error"):
                        found[variant][key] = max(found[variant].get(key, 0.0), getattr(result, key))
    for variant, shares in numbers.items():
        found[variant]["judged"] = sum(share * n for share, n in shares) / max(sum(n for _, n in shares), 1)
    return found


class _Expected:
    """What eager gives with one seed, what is right, and what eager may be off by: variants are held against it.

    Two variants that give the same bits are compared once.
    """

    def __init__(
        self, eager: Work, described: Described, seed: int, device: str, ulp: float, rounds: Work | None
    ) -> None:
        self.faults: list[str] = []  # of the order in which `rounds` computes
        self._inputs = inputs = make_inputs(described, seed, device)
        self._eager, self._truth = defined(partial(_both, eager, inputs))
        self._noise = spread(eager, partial(copies, inputs), partial(widened, inputs), self._truth)
        if rounds is not None and self._noise is not None:
            self._noise, fault = _with_roundings_of(rounds, inputs, self._truth, self._noise)
            self.faults += [f"seed {seed}, {fault}"] if fault else []
        self.outputs = len(self._eager) - len(inputs)
        self._names = [f"output {k}" for k in range(self.outputs)] + [str(d[0]) for d in described]
        self._ulp, self._even = ulp, not seed % 2
        self._compared: list[list[tuple[torch.Tensor, Closeness]]] = [[] for _ in self._names]

    def compared(self, work: Work) -> Iterator[tuple[str, int, Closeness]]:
        """Compare what a variant gives, and the inputs that it leaves otherwise than eager: name, elements, result."""
        ours = copies(self._inputs)
        given = [*(work(*ours) or ()), *ours]
        for k, (name, mine, eager) in enumerate(zip(self._names, given, self._eager, strict=True)):
            if mine is not None and (name.startswith("output") or not same_bits(mine, eager)):
                yield name, eager.numel(), self._comparison(k, mine)

    def _comparison(self, k: int, mine: torch.Tensor) -> Closeness:
        for other, result in self._compared[k]:
            if same_bits(other, mine):
                return result
        noise = None if self._noise is None else self._noise[k]
        result = compare(mine, self._eager[k], self._truth[k], self._ulp, noise=noise, even=self._even)
        self._compared[k].append((mine, result))
        return result


def _both(eager: Work, inputs: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return what eager gives, and its inputs after that; the same in float64."""
    theirs, wide = copies(inputs), widened(inputs)
    wanted = [*(eager(*theirs) or ()), *theirs]
    with InDouble():
        truth = [*(eager(*wide) or ()), *wide]
    return wanted, truth


def _with_roundings_of(
    other: Work, inputs: Sequence[torch.Tensor], truth: Sequence[torch.Tensor], noise: list[torch.Tensor]
) -> tuple[list[torch.Tensor], str | None]:
    """Return for each element the larger of two noises: that given, and that of another order of the computation.

    Where the other order gives something else than the truth in float64: as given, with what is wrong.
    """
    wide = widened(inputs)
    with InDouble():
        own = [*(other(*wide) or ()), *wide]
    theirs = spread(other, partial(copies, inputs), partial(widened, inputs), truth)
    if theirs is None or [t.shape for t in own] != [t.shape for t in truth]:
        return noise, "the other order of the computation does not show in its calls in float64"
    for mine, exact, off in zip(own, truth, theirs, strict=True):
        if not _same_function(mine, exact, off):
            return noise, "the other order of the computation is another function than eager"
    return [torch.maximum(a, b) for a, b in zip(noise, theirs, strict=True)], None


def _same_function(found: torch.Tensor, truth: torch.Tensor, noise: torch.Tensor) -> bool:
    """Return whether two results in float64 differ by no more than float64 rounds: a share of their size, and of what
    roundings of narrow types come to there.
    """
    if not truth.is_floating_point():
        return bool(torch.equal(found, truth))
    a, b = found.double(), truth.double()
    size = b.nan_to_num(0.0, 0.0, 0.0)
    allowed = _OF_SIZE * (size.abs() + size.square().mean().sqrt()) + _OF_NOISE * noise.nan_to_num(0.0, 0.0, 0.0)
    same = (a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= allowed)
    return bool(same.all())


def repeats(work: Work, described: Described, device: str = "cuda") -> bool:
    """Return whether ten runs on the same inputs have the same bits."""
    inputs = make_inputs(described, device=device)
    first: list[torch.Tensor] = []
    for _ in range(_RUNS):
        mine = copies(inputs)
        found = [t for t in (*(work(*mine) or ()), *mine) if t is not None]
        first = first or found
        if not all(same_bits(a, b) for a, b in zip(first, found, strict=True)):
            return False
    return True


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors hold the same, NaN included."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(torch.equal(*(_row(t).view(torch.uint8) for t in (a, b))))


def _row(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's elements one after another in memory: a tensor of one element may have any stride."""
    return tensor.clone(memory_format=torch.contiguous_format).reshape(-1)
