"""Trials of kernels: values that break things, layouts, sizes and scalars other than the recorded ones."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch

from tracemine.codegen.graph import Graph, GraphInput, LiteralArg, Ref
from tracemine.codegen.lowering.product import PRODUCTS
from tracemine.ops.facts import base_name, keeping_values
from tracemine.ops.infer import TensorSpec
from tracemine.validate.input_domains import bounds, scales_of_codes

ZONE = 256  # elements on either side of a tensor that nothing may touch

FIRST_DRAWN = 12  # trials by lot, of every graph
_MOST_APART = 24  # axes whose sizes are changed one by one
_MOST_SLICED = 6
_MOST_ALONE = 80  # inputs that lie otherwise than all others: as many as five lists of 16 have

NORMAL, INTEGERS = "normal", "integers"
APART = {f"blocks of {n} far apart": n for n in (32, 64)}  # parts of a row alternate at blocks of as many
# Scalars that are not recorded ones: all have one value.
_FIXED: Mapping[str, float] = {"zero": 0, "one": 1, "minus one": -1, "tiny": 1e-7, "large": 1e4}
DRAWN = "drawn"  # scalars: each by lot
FAR = "far-reaching"  # a layout: as recorded, and places are counted as those of huge tensors are
# Kinds of values, most telling first.
KINDS = (
    NORMAL,
    INTEGERS,
    "planted NaN and infinities",
    "wide magnitudes",
    "constant rows",
    "outliers",
    "negative, and a row of -inf",
    "far below zero",
    "signed zeros and ties",
    "denormals",
    "near overflow",
    "rows of zeros",
    "small next to 1",
    *APART,
    "equal inputs",
    "in the tens",
)
# What drawn trials take: numbers that meet (ties, zeros, the same in two inputs) and numbers that reach bounds.
_TIES = "signed zeros and ties"
_MET = (
    *(NORMAL, INTEGERS, "equal inputs", "equal inputs", "in the tens", _TIES, _TIES, _TIES, "rows of zeros"),
    *("constant rows", "small next to 1", "outliers", "negative, and a row of -inf"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One set of inputs. `sizes`: other sizes for axes; `layout`: how inputs lie in memory; `scalars`: other values."""

    kind: str = NORMAL
    seed: int = 0
    layout: str = "recorded"
    sizes: Mapping[int, int] = field(default_factory=dict)
    scalars: str = "recorded"

    @property
    def wired(self) -> bool:
        """Whether the build that rounds as eager does must give what eager gives."""
        return self.kind in APART or (self.kind in (NORMAL, INTEGERS) and not self.sizes)

    @property
    def numbers(self) -> tuple[object, ...]:
        """What decides the numbers, and the order in which eager meets them: gaps between them do not."""
        moved = self.layout if self.layout == "reversed order" else ""
        return self.kind, self.seed, moved, tuple(self.sizes.items()), self.scalars

    @property
    def says(self) -> str:
        """In words."""
        sized = ", ".join(f"axis {a} of {n}" for a, n in self.sizes.items())
        parts = [self.kind, f"seed {self.seed}"]
        parts += [f"{self.layout} layout"] * (self.layout != "recorded") + [sized] * bool(sized)
        return ", ".join(parts + [f"{self.scalars} scalars"] * (self.scalars != "recorded"))


_OF_SCALARS = (
    Trial(scalars="changed", seed=1),
    Trial(kind="denormals", scalars="changed"),
    Trial(scalars="every other one small", seed=6),
    Trial(scalars="every other one small", seed=7),
    Trial(kind="far below zero", scalars="changed"),  # of a row of masked numbers nothing is left
    Trial(kind="negative, and a row of -inf", scalars="changed"),
    Trial(scalars="all zero", seed=8),
)


def trials(graph: Graph, free: Mapping[int, int], in_parts: Collection[int] = ()) -> Iterator[Trial]:
    """Yield all trials of a graph.

    free: axes whose size the kernel takes as an argument, and their recorded sizes. in_parts: those that are reduced
    in parts, of which each shows in the whole only where it is far from the others.
    """
    yield Trial()
    yield Trial(kind=INTEGERS)
    yield from _OF_SCALARS if graph.scalars else ()
    together = _together(free)
    yield from (Trial(sizes={axis: size + 1 for axis, size in axes.items()}) for axes in together)
    yield from (Trial(kind=kind) for kind in KINDS[2:] if kind != "near overflow" or not _places_of_sums(graph))
    yield from _laid_out(graph, together)
    yield from _resized(together)
    if any(not s.recorded for s in graph.scalars):
        yield from (Trial(scalars=scalars, seed=4) for scalars in _FIXED)
    for axis in in_parts:  # parts are longer than 16 bits count, and odd
        yield from (Trial(kind=kind, sizes={axis: 4 * free[axis] + 3}) for kind in APART)
    yield Trial(seed=5)
    yield from islice(drawn(free), FIRST_DRAWN)


def _places_of_sums(graph: Graph) -> bool:
    """Return whether it gives where sums are largest, or sums as wide as they are summed: what overflows is chance."""
    products = any(call.operator in PRODUCTS for call in graph.calls)
    return products and any(graph.specs[v].dtype in ("int64", "float32") for v in (*graph.live, 0))


def _resized(together: Iterable[Mapping[int, int]]) -> Iterator[Trial]:
    for axes in together:
        fewer = {axis: max(size - 1, 0) for axis, size in axes.items()}
        for sizes in (fewer, *(dict.fromkeys(axes, size) for size in (1, 0, 7))):
            if sizes != axes:
                yield Trial(sizes=sizes, seed=3)


def _laid_out(graph: Graph, together: Sequence[Mapping[int, int]]) -> Iterator[Trial]:
    """Yield trials whose inputs lie otherwise than recorded."""
    for layout in ("gaps", "reversed order", "offset", FAR):
        yield Trial(layout=layout, seed=2)
    alone = graph.inputs[:: max(1, -(-len(graph.inputs) // _MOST_ALONE))]
    for entry in (*alone, graph.inputs[-1]) if len(graph.inputs) > 1 else ():
        yield Trial(layout=f"padding in {entry.name}", seed=2)  # what is known of one tensor says nothing of another
    yield Trial(layout="roomy", seed=9)
    for axes in together[:_MOST_SLICED]:  # of the same strides: a plan that was kept for others does not fit
        yield Trial(layout="roomy", sizes={axis: max(size - 1, 0) for axis, size in axes.items()}, seed=9)


def drawn(free: Mapping[int, int]) -> Iterator[Trial]:
    """Yield trials by lot, without end, the same for every graph: values, scalars and one size change together.

    A bound shows where numbers reach it, a tie where two inputs hold the same, a threshold of one branch where another
    scalar leads into it: none of them where one thing at a time is changed.
    """
    axes = sorted(free)
    for seed in range(100, 1 << 30):
        lot = random.Random(seed)  # noqa: S311 - no secret
        kind, sizes = lot.choice(_MET), {}
        if axes and lot.random() < 0.5:  # of a single column a softmax is 1, and nothing is rounded on the way
            axis = lot.choice(axes)
            sizes = {axis: lot.choice((1, 1, 1, 1, 2, 7, max(free[axis] - 1, 1), free[axis] + 1))}
        yield Trial(kind=kind, seed=seed, sizes=sizes, scalars=DRAWN)


def _together(free: Mapping[int, int]) -> list[dict[int, int]]:
    """Return axes whose sizes change together: each by itself; of very many, as an optimizer has, every second one."""
    items = list(free.items())
    if len(items) > _MOST_APART:
        return [dict(items[::2]), dict(items[1::2])]
    return [dict([item]) for item in items]


def scalar_values(graph: Graph, trial: Trial) -> dict[str, Any]:
    """Return a value for each scalar argument. Recorded ones change only in the trials that change scalars."""
    if trial.scalars == DRAWN:
        return _by_lot(graph, trial.seed)
    found: dict[str, Any] = {}
    for place, scalar in enumerate(graph.scalars):
        value: float = scalar.value
        if trial.scalars == "changed":  # each by another factor: bounds and what they bound must not move together
            share = 0.6 - 0.1 * (place % 5)
            value = value * 1e-3 if abs(value) >= 1000 else value  # what represents −∞ in a mask must show
            value = _short(value * share + 0.77 * (1 - share)) if isinstance(scalar.value, float) else scalar.value + 1
        elif trial.scalars == "every other one small" and isinstance(scalar.value, float):
            value = _short(value * (0.1 if place % 2 == trial.seed % 2 else 0.9))  # bounds that are out of reach else
        elif trial.scalars == "all zero":
            value = type(scalar.value)(0)
        elif trial.scalars in _FIXED and not scalar.recorded:
            value = type(scalar.value)(_short(_FIXED[trial.scalars]))
        found[scalar.name] = value
    return found


def _by_lot(graph: Graph, seed: int) -> dict[str, Any]:
    """Draw a value for each scalar. With odd seeds those recorded as equal stay equal, as gradients' bounds do."""
    found: dict[str, Any] = {}
    alike: dict[Any, Any] = {}
    lot = random.Random(seed)  # noqa: S311 - no secret
    bounding = bounds(graph)
    for scalar in graph.scalars:
        value = scalar.value
        if isinstance(value, float):
            finite = value if math.isfinite(value) else math.copysign(4.0, value)
            others = (0.0, 0.1 * finite, 0.5 * finite, -finite, 2.0 * finite, 0.25, 1.0, 4.0)
            chosen: Any = value if lot.random() < 0.4 else _short(lot.choice(others))
        else:
            chosen = value if lot.random() < 0.4 else type(value)(lot.choice((0, 1, 2, 3, -1, value + 1, value // 2)))
        chosen = abs(chosen) if scalar.name in bounding else chosen
        found[scalar.name] = alike.setdefault((type(value), value), chosen) if seed % 2 else chosen
    return found


def _short(value: float) -> float:
    """Round to 8 significant bits: eager on a CPU rounds some scalars to the tensor's dtype, on a GPU it does not."""
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(fraction * 256) / 256, exponent) if math.isfinite(value) else value


def tensors(graph: Graph, trial: Trial) -> list[torch.Tensor]:
    """Return the graph's inputs, each in memory of its own between zones of poison."""
    generator = torch.Generator().manual_seed(trial.seed + 7919 * KINDS.index(trial.kind))
    found: list[torch.Tensor] = []
    scales = scales_of_codes(graph) if any(call.operator in PRODUCTS for call in graph.calls) else ()
    ignored, most = _ignored(graph), max((len(e.spec.shape) for e in graph.inputs), default=0)
    for entry in graph.inputs:
        tensor = placed(entry.spec, _layout(trial, entry))
        tensor.copy_(_values(entry.spec, entry.below, trial.kind, generator))
        if entry.name in scales:
            tensor.copy_(torch.where(tensor.isinf(), 1.0, tensor))
        if trial.kind == "small next to 1" and len(entry.spec.shape) == most and tensor.is_floating_point():
            tensor.mul_(2.0**-20)
        if trial.kind in (INTEGERS, "rows of zeros") and tensor.dim():
            _write_rows(tensor, entry, ignored.get(len(found)), trial)
        if trial.kind == "equal inputs" and entry.below is None and tensor.is_floating_point():
            _make_alike(tensor, found, generator)
        found.append(tensor)
    return found


def _layout(trial: Trial, entry: GraphInput) -> str:
    """Return how an input lies: in a trial of one input's layout all others lie as recorded."""
    if not trial.layout.startswith("padding in "):
        return trial.layout
    return "padding" if trial.layout == f"padding in {entry.name}" else "recorded"


def _make_alike(tensor: torch.Tensor, before: Sequence[torch.Tensor], generator: torch.Generator) -> None:
    """Give a tensor half of the numbers of an earlier one that is like it."""
    same = next((t for t in before if t.shape == tensor.shape and t.dtype == tensor.dtype), None)
    if same is not None and 0 not in tensor.stride():
        tensor.copy_(torch.where(torch.rand(tensor.shape, generator=generator) < 0.5, same, tensor))


def _write_rows(tensor: torch.Tensor, entry: GraphInput, ignored: int | None, trial: Trial) -> None:
    """Write into every third row of classes the one that means none, and zeros into every second row of others."""
    if ignored is not None:
        tensor[::3] = ignored
    if trial.kind == "rows of zeros" and entry.below is None and 0 not in tensor.stride():
        tensor[::2] = 0


def _ignored(graph: Graph) -> dict[int, int]:
    """Return inputs that hold classes, and the number that means none."""
    behind = dict(enumerate(range(len(graph.inputs))))  # of each value the input whose numbers it holds
    found: dict[int, int] = {}
    for number, call in enumerate(graph.calls):
        given, base = call.given(), base_name(call.operator)
        first = call.arguments[0] if call.arguments else None
        if base in keeping_values() and isinstance(first, Ref) and call.outputs and first.value in behind:
            behind[graph.first_output(number)] = behind[first.value]
        target, none = given.get("target"), given.get("ignore_index")
        source = behind.get(target.value) if base.startswith("nll_loss") and isinstance(target, Ref) else None
        if source is not None and isinstance(none, LiteralArg) and isinstance(none.value, int):
            found[source] = none.value
    return found


def _strides(shape: tuple[int, ...], strides: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Return the strides of a layout that is not the recorded one."""
    order = sorted(range(len(shape)), key=lambda d: -strides[d])
    order = order[::-1] if layout == "reversed order" else order
    step, wide = (2 if layout == "gaps" or sum(n > 1 for n in shape) <= 1 else 1), [0] * len(shape)
    for d in reversed(order):
        wide[d] = step
        room = -(-max(shape[d], 1) // 8) * 8 if layout == "roomy" and len(shape) > 1 else max(shape[d], 1)
        step = step * room + (3 if layout == "padding" else 0)
    return tuple(wide)


def placed(spec: TensorSpec, layout: str = "recorded") -> torch.Tensor:
    """Return a tensor whose surroundings, and gaps between its elements, are all ones: NaN, −1, True."""
    shape, strides = spec.shape, spec.strides or ()
    if layout in ("gaps", "reversed order", "padding", "roomy") and 0 not in strides:
        strides = _strides(shape, strides, layout)
    offset = ZONE + (1 if layout == "offset" else 0)
    reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1 if spec.elements else 0
    dtype = getattr(torch, str(spec.dtype))
    width = torch.empty((), dtype=dtype).element_size()
    memory = torch.full(((reach + 2 * ZONE + 1) * width,), 255, dtype=torch.uint8)
    if dtype == torch.bool:
        memory.fill_(1)
    return memory.view(dtype).as_strided(shape, strides, offset)


def zones(tensor: torch.Tensor) -> torch.Tensor:
    """Return all memory of a tensor made by `placed`, as bytes."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def _values(spec: TensorSpec, below: int | None, kind: str, generator: torch.Generator) -> torch.Tensor:
    shape, dtype = spec.shape, getattr(torch, str(spec.dtype))
    if below is not None:
        index = torch.randint(0, max(below, 1), shape, generator=generator)
        if kind == "constant rows":
            index = torch.zeros_like(index)
        return index.to(dtype)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if kind == "wide magnitudes" and dtype in (torch.int32, torch.int64):
        most = torch.iinfo(dtype).max
        return torch.randint(most // 2, most, shape, generator=generator, dtype=dtype)
    if not dtype.is_floating_point:
        numbers = torch.randint(-100 if dtype != torch.uint8 else 0, 100, shape, generator=generator)
        if len(shape) > 1 and 0 not in shape:  # rows of zeros, rows with one number, rows of numbers
            # Which is which is the seed's: of a plan kept for rows that lie otherwise a row of zeros may tell alone.
            rows = (torch.arange(numbers.numel() // shape[-1]).view(*shape[:-1], 1) + generator.initial_seed()) % 3
            alone = torch.arange(shape[-1]) == (7 * torch.arange(numbers.numel() // shape[-1]) % shape[-1]).view(
                *shape[:-1], 1
            )
            numbers = numbers * ((rows == 2) | ((rows == 1) & alone))
        return numbers.to(dtype)
    values = _floats(shape, dtype, kind, generator)
    limit = torch.finfo(dtype).max if dtype.itemsize == 1 else math.inf
    return values.clamp(-limit, limit).to(dtype)


# Kinds of floats, of normal numbers that are drawn already.
_FLOATS: Mapping[str, Callable[[torch.Tensor, torch.dtype, torch.Generator], torch.Tensor]] = {
    INTEGERS: lambda normal, _, lot: torch.randint(-4, 5, normal.shape, generator=lot).double(),
    "wide magnitudes": lambda normal, _, lot: (
        normal.sign() * torch.exp2(torch.rand(normal.shape, generator=lot, dtype=torch.float64) * 40 - 20)
    ),
    "in the tens": lambda normal, *_: normal * 16,
    "far below zero": lambda normal, *_: normal - 3000,  # further than exp can tell from nothing
    "signed zeros and ties": lambda normal, *_: (normal * 2).round() / 2 * torch.where(normal < 0.5, 0.0, 1.0),
    "denormals": lambda normal, dtype, _: normal * torch.finfo(dtype).tiny,
    "near overflow": lambda normal, dtype, lot: (
        normal.sign() * torch.finfo(dtype).max * (0.5 + 0.5 * torch.rand(normal.shape, generator=lot))
    ),
}


def _floats(shape: tuple[int, ...], dtype: torch.dtype, kind: str, generator: torch.Generator) -> torch.Tensor:
    normal = torch.randn(shape, generator=generator, dtype=torch.float64)
    if kind in _FLOATS:
        return _FLOATS[kind](normal, dtype, generator)
    if kind == "constant rows" and shape:
        return normal[..., :1].expand(shape).clone()
    if kind in APART:
        along = (torch.arange(n).view(n, *[1] * (len(shape) - d - 1)) // APART[kind] for d, n in enumerate(shape))
        return normal + 16 - 32 * (sum(along, start=torch.zeros(())) % 2)
    if kind == "negative, and a row of -inf":
        normal = -normal.abs() - 1
    if 0 not in shape:
        _plant(normal, kind)
    return normal


def _plant(normal: torch.Tensor, kind: str) -> None:
    """Put in what some kinds of values have in a few places."""
    flat = normal.view(-1)
    if kind == "negative, and a row of -inf" and normal.dim() > 1:
        normal.view(-1, normal.shape[-1])[-1] = -math.inf
    elif kind == "outliers":
        flat[:: max(1, flat.numel() // 5)] *= 1e3
    elif kind.startswith("planted"):
        places = (0, flat.numel() // 3, flat.numel() // 2, flat.numel() - 1)
        for place, value in zip(places, (math.inf, math.nan, -math.inf, math.nan), strict=True):
            flat[place] = value
