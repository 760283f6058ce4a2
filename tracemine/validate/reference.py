"""Run a graph call by call through torch.ops on a CPU: as eager does it, and in float64.

Operators are looked up by names that the operator table has confirmed; nothing else of a graph can name code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch

from tracemine.codegen.graph import Graph, GraphCall, LiteralArg, Ref, Refs, Scalar, Scalars, Value, mutated, reads
from tracemine.ops.facts import base_name
from tracemine.validate import rng_checks, rounding_noise, undefined_casts
from tracemine.validate.gpu_semantics import ROUNDED_ONCE, STAND_INS, wide
from tracemine.validate.rounding_noise import DRAWS, Signs, Spread
from tracemine.validate.roundings import careful, rounded_off, sums_within

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_FLOAT_NAMES = tuple(str(kind).removeprefix("torch.") for kind in _FLOATS)
_ASKED = ("condition", "mask", "index", "indices", "target")  # arguments that are not computed with
_CODES = (torch.float8_e4m3fn, torch.float8_e5m2)

Tensors = Sequence[torch.Tensor]
Numbers = Mapping[str, float]  # a value for each scalar argument
Masks = Mapping[int, torch.Tensor]  # for each call that draws, by its number, what it drew or keeps


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRun:
    """What a graph gave: its live values, and its inputs afterwards."""

    live: tuple[torch.Tensor, ...]
    inputs: tuple[torch.Tensor, ...]


def run(graph: Graph, inputs: Tensors, scalars: Numbers, masks: Masks, double: bool = False) -> ReferenceRun:
    """Run a graph on copies of tensors.

    double: floats are computed in float64, from the same inputs; casts to fp8 and integers still round.
    """
    values: list[Any] = [_copied(t, double) for t in inputs]
    for number, call in enumerate(graph.calls):
        values += _given(number, call, values, scalars, masks, double)
    return _ran(graph, values)


Noise = Callable[[], ReferenceRun]  # what eager may be off by: worked out by who asks first, for few results need it


def judged(graph: Graph, inputs: Tensors, scalars: Numbers, masks: Masks) -> tuple[ReferenceRun, ReferenceRun, Noise]:
    """Return what eager gives, what is right (NaN where eager's casts are undefined), and what eager may be off by."""

    def both() -> tuple[Tensors, Tensors]:
        eager, truth = (run(graph, inputs, scalars, masks, double) for double in (False, True))
        return (*eager.live, *eager.inputs), (*truth.live, *truth.inputs)

    eager, truth = (
        ReferenceRun(live=tuple(found[: len(graph.live)]), inputs=tuple(found[len(graph.live) :]))
        for found in undefined_casts.defined(both)
    )
    return eager, truth, cache(partial(spread, graph, inputs, scalars, masks, truth))


def spread(graph: Graph, inputs: Tensors, scalars: Numbers, masks: Masks, truth: ReferenceRun) -> ReferenceRun:
    """Return what each element that a graph gives may be off by: root mean square over the signs of eager's roundings.

    It is infinite where a sum may overflow on the way.
    """
    offs = _offs(graph, inputs, scalars, masks)
    written = sorted(graph.written)
    drawn = Spread((*truth.live, *(truth.inputs[k] for k in written)))
    signs = Signs()
    norms = list(map(_norm_source, graph.calls))
    for draw in range(DRAWS if any(off is not None for each in offs for off in each) else 0):
        signs.begin(draw)
        values = [_copied(t, True) for t in inputs]
        for number, call in enumerate(graph.calls):
            found = _given(number, call, _moved(norms[number], values, signs.generator), scalars, masks, True)
            for tensor, off in zip(_results(call, values, found), offs[number], strict=True):
                signs.add(tensor, off, number)
            values += found
        other = _ran(graph, values)
        drawn.add((*other.live, *(other.inputs[k] for k in written)))
    roots = drawn.noise()
    of_written = dict(zip(written, roots[len(truth.live) :], strict=True))
    none = (of_written.get(k, torch.zeros(t.shape, dtype=torch.float64)) for k, t in enumerate(truth.inputs))
    return ReferenceRun(live=tuple(roots[: len(truth.live)]), inputs=tuple(none))


def _offs(graph: Graph, inputs: Tensors, scalars: Numbers, masks: Masks) -> list[list[torch.Tensor | None]]:
    """Return what each call's results may be off by, from what it was given."""
    offs: list[list[torch.Tensor | None]] = []
    values: list[Any] = [_copied(t, False) for t in inputs]
    for number, call in enumerate(graph.calls):
        wide = _Wide(values)
        exact = _results(call, wide, _given(number, call, wide, scalars, masks, True))
        found = _given(number, call, values, scalars, masks, False)
        results = zip(_results(call, values, found), exact, strict=True)
        name, source = call.operator.removeprefix("aten::"), call.given().get("self")
        may = None
        if isinstance(source, Ref):
            of = partial(_of_others, number, call, source.value, wide, scalars, masks)
            may = careful(name, values[source.value], of)
        plain = sums_within(name) and name not in STAND_INS  # those are simpler calls already
        least = _apart(number, call, values, scalars, masks, exact) if plain else None
        found_off = [rounded_off(a, b, name=name, least=may) for a, b in results]
        offs.append(found_off if least is None else [_at_least(*each) for each in zip(found_off, least, strict=True)])
        values += found
    return offs


def _of_others(
    number: int, call: GraphCall, source: int, values: Any, scalars: Numbers, masks: Masks, numbers: torch.Tensor
) -> torch.Tensor:
    """Return what a call gives in float64 where one of the values that it takes has other numbers."""
    taken = {v: values[v] for v in reads(call)} | {source: numbers}
    return _given(number, call, taken, scalars, masks, True)[0]


def _apart(
    number: int, call: GraphCall, values: Sequence[Any], scalars: Numbers, masks: Masks, exact: Tensors
) -> list[torch.Tensor] | None:
    """Return what a call that sums within may round off where it is run as the simpler calls that PyTorch has it in."""
    order = tuple(dict.fromkeys(reads(call)))
    wide = [values[v].double() if values[v].dtype in _FLOATS else values[v] for v in order]

    def alone(*taken: torch.Tensor) -> list[torch.Tensor]:
        return _given(number, call, dict(zip(order, taken, strict=True)), scalars, masks, False)

    found = rounding_noise.spread(
        alone, lambda: [values[v].clone() for v in order], lambda: [t.clone() for t in wide], [*exact, *wide]
    )
    return None if found is None else found[: len(exact)]


def _at_least(off: torch.Tensor | None, least: torch.Tensor) -> torch.Tensor | None:
    """Return what was rounded off, or what may be where that is more."""
    if off is None:
        return least.float() if bool(least.any()) else None
    return torch.where(off.double().abs() < least, least, off.double()).float()


def _norm_source(call: GraphCall) -> int | None:
    """Return the value whose mean a norm takes."""
    if "_norm" not in call.operator or "backward" in call.operator:
        return None
    return source.value if isinstance(source := call.given().get("input"), Ref) else None


def _moved(source: int | None, values: Sequence[Any], generator: torch.Generator) -> Sequence[Any]:
    """Move each number that a norm reads by a rounding: its mean is rounded as they are, however far from 0."""
    if source is None:
        return values
    tensor = values[source]
    signs = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
    return [*values[:source], tensor * (1 + signs * 2.0**-24), *values[source + 1 :]]


class _Wide:
    """Values by number, each a fresh copy, floats in float64."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values, self._made = values, dict[int, Any]()

    def __getitem__(self, number: int) -> Any:
        if number not in self._made:
            value = self._values[number]
            is_float = value.dtype in (*_FLOATS, *_CODES)
            wide = torch.complex128 if value.is_complex() else torch.float64 if is_float else value.dtype
            self._made[number] = value.to(wide, copy=True)
        return self._made[number]


def _results(call: GraphCall, values: Any, found: Tensors) -> list[torch.Tensor]:
    """Return what a call gives, or where that is nothing what it writes."""
    return list(found) or [values[v] for v in mutated(call)]


def _given(
    number: int, call: GraphCall, values: Any, scalars: Numbers, masks: Masks, double: bool
) -> list[torch.Tensor]:
    if call.operator == "aten::native_dropout":
        return _dropped(call, values, scalars, masks[number])
    if call.operator == "aten::bernoulli_":
        (written,) = mutated(call)
        return [values[written].copy_(masks[number])][: len(call.outputs)]
    if call.operator.removeprefix("aten::") in rng_checks.RANDOM:
        return _drawn(call, values, scalars, masks[number], double)
    return _called(call, values, scalars, double)


def _drawn(call: GraphCall, values: Any, scalars: Numbers, draws: torch.Tensor, double: bool) -> list[torch.Tensor]:
    """Make random numbers of given bits, rounded once."""
    numbers = {n: scalars[v.name] for n, v in call.given().items() if isinstance(v, Scalar)}
    found = rng_checks.random_numbers(call.operator, draws, numbers)
    if call.schema.mutates:
        (written,) = mutated(call)
        return [values[written].copy_(found)][: len(call.outputs)]
    return [found if double else found.to(getattr(torch, str(call.outputs[0].dtype)))]


def _ran(graph: Graph, values: Sequence[Any]) -> ReferenceRun:
    return ReferenceRun(live=tuple(values[v] for v in graph.live), inputs=tuple(values[: len(graph.inputs)]))


def _copied(tensor: torch.Tensor, double: bool) -> torch.Tensor:
    if double and tensor.dtype in (*_FLOATS, *_CODES):
        return tensor.to(torch.float64)
    copy = torch.empty_strided(tensor.shape, _dense(tensor), dtype=tensor.dtype)
    return copy.copy_(tensor)


def _dense(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return strides without gaps, in the tensor's own order of dimensions."""
    order = sorted(range(tensor.dim()), key=lambda d: (-tensor.stride(d), d))
    strides, step = [0] * tensor.dim(), 1
    for d in reversed(order):
        strides[d] = step
        step *= max(tensor.shape[d], 1)
    return tuple(strides)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What is the same each time that a call is run: spreads run a graph dozens of times."""

    call: GraphCall
    fixed: dict[str, Any]  # arguments that are the same
    taken: tuple[tuple[str, Value, bool], ...]  # the others, and whether a number has to be made a tensor
    wraps: torch.dtype | None  # of such tensors, where they are no integers
    widens: bool  # integers become floats in it
    halves: bool  # a CPU does not: the input is widened before
    run: Callable[[dict[str, Any]], list[torch.Tensor]]


def _called(call: GraphCall, values: Sequence[Any], scalars: Numbers, double: bool) -> list[torch.Tensor]:
    """Return the outputs of one call, lists laid out flat."""
    plan = _PLANS.get((id(call), double))
    if plan is None:
        if len(_PLANS) >= _MOST_PLANS:
            _PLANS.clear()
        plan = _PLANS[id(call), double] = _planned(call, double)
    given = dict(plan.fixed)
    for name, value, number in plan.taken:
        given[name] = found = _taken(value, values, scalars)
        if number:
            given[name] = torch.tensor(found, dtype=plan.wraps if isinstance(found, float) else None)
    if plan.widens:
        given = _widened(given)
    if plan.halves:
        given["self"] = given["self"] if double else given["self"].float()
    return plan.run(given)


# By the call's identity, which they keep: equal ones may differ in what is 1 and what 1.0.
_PLANS: dict[tuple[int, bool], _Plan] = {}
_MOST_PLANS = 4096


def _planned(call: GraphCall, double: bool) -> _Plan:
    fixed, taken = dict[str, Any](), []
    for argument, value in zip(call.schema.arguments, call.arguments, strict=True):
        if isinstance(value, Ref | Refs | Scalar | Scalars):
            number = call.wraps_numbers and argument.is_tensor and isinstance(value, Scalar)
            taken.append((argument.name, value, number))
        else:
            fixed[argument.name] = _fixed(argument.type, value, double)
    halves = fixed.get("half_to_float") is True
    return _Plan(
        call=call,
        fixed=fixed | ({"half_to_float": False} if halves else {}),
        taken=tuple(taken),
        wraps=torch.float64 if double else None,
        widens=double and any(spec.dtype in _FLOAT_NAMES for spec in call.outputs),
        halves=halves,
        run=_way(call, fixed, double),
    )


def _way(call: GraphCall, fixed: Mapping[str, Any], double: bool) -> Callable[[dict[str, Any]], list[torch.Tensor]]:
    """Return how a call is run on its arguments."""
    name = call.operator.removeprefix("aten::")
    function, required = _function(name, call.overload or "default")
    if not double and base_name(name).removeprefix("_foreach_") == "sqrt":
        return partial(_roots, call)
    if not double and (name.startswith("_foreach_") or base_name(name) in ROUNDED_ONCE):
        return partial(_rounded_once, call, function)
    if name in STAND_INS:
        return partial(_stood_in, call, STAND_INS[name])
    left_out = frozenset(n for n, v in fixed.items() if v is None and n not in required)
    return partial(_plain, function, left_out, len(call.outputs), double and fixed.get("dtype") in _CODES)


def _plain(
    function: Callable[..., Any], left_out: frozenset[str], outputs: int, doubles: bool, given: Mapping[str, Any]
) -> list[torch.Tensor]:
    found = function(**{n: v for n, v in given.items() if n not in left_out})
    return _flat(found.to(torch.float64) if doubles else found)[:outputs]


@cache
def _function(name: str, overload: str) -> tuple[Any, frozenset[str]]:
    """Return an operator of torch, and the names of its arguments that have no default."""
    function = getattr(getattr(torch.ops.aten, name), overload)
    return function, frozenset(a.name for a in function._schema.arguments if not a.has_default_value())


def _flat(found: Any) -> list[torch.Tensor]:
    """Return the tensors that a call gave, those of lists too."""
    if isinstance(found, torch.Tensor):
        return [found]
    return [] if found is None else [tensor for each in found for tensor in _flat(each)]


def _widened(arguments: dict[str, Any]) -> dict[str, Any]:
    """Widen the integers that a call makes floats of: it would give float32. With floats it gives what those are."""
    members = (t for v in arguments.values() for t in (v if isinstance(v, list) else [v]))
    if any(isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex()) for t in members):
        return arguments
    return {n: v.double() if isinstance(v, torch.Tensor) and n not in _ASKED else v for n, v in arguments.items()}


def _roots(call: GraphCall, arguments: Mapping[str, Any]) -> list[torch.Tensor]:
    """Return roots rounded as on a GPU, by float64: a CPU's may be off by a bit."""
    sources = _several(arguments["self"])
    found = [torch.sqrt(t.double()).float() for t in sources]
    if call.schema.mutates:
        for old, root in zip(sources, found, strict=True):
            old.copy_(root)
        return [*sources] if call.outputs else []
    return [t.to(getattr(torch, str(spec.dtype))) for t, spec in zip(found, call.outputs, strict=True)]


def _rounded_once(call: GraphCall, function: Callable[..., Any], arguments: Mapping[str, Any]) -> list[torch.Tensor]:
    """Run a call at 32 bits; round its results and what it writes to what they are, once."""
    given = {n: list(map(wide, v)) if isinstance(v, list) else wide(v) for n, v in arguments.items()}
    found = function(**{n: v for n, v in given.items() if v is not None})
    written = [call.schema.arguments[at].name for at in call.schema.mutates]
    for name in written:
        for old, new in zip(_several(arguments[name]), _several(given[name]), strict=True):
            if old is not new:
                old.copy_(new)
    if not call.outputs:
        return []
    if written:
        return list(map(arguments.__getitem__, written))
    kinds = (getattr(torch, str(spec.dtype)) for spec in call.outputs)
    return [t.to(kind) for t, kind in zip(_several(found), kinds, strict=True)]


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _stood_in(call: GraphCall, function: Callable[..., Any], arguments: Mapping[str, Any]) -> list[torch.Tensor]:
    """Run what stands in for an operator, at 32 bits or more; round where the result is narrower."""
    given = {n: wide(v) for n, v in arguments.items()}
    found = [t for t in function(**given) if t is not None][: len(call.outputs)]
    for name, value in arguments.items():  # what it wrote in place
        if given[name] is not value and name.startswith("running_"):
            value.copy_(given[name])
    kinds = (getattr(torch, str(spec.dtype)) for spec in call.outputs)
    return [t.to(kind) if t.dtype == torch.float32 else t for t, kind in zip(found, kinds, strict=True)]


def _taken(value: Value, values: Sequence[Any], scalars: Numbers) -> Any:
    if isinstance(value, Ref):
        return values[value.value]
    if isinstance(value, Refs):
        return [None if v is None else values[v] for v in value.values]
    if isinstance(value, Scalars):
        return [scalars[s.name] for s in value.values]
    assert isinstance(value, Scalar)  # noqa: S101
    return scalars[value.name]


def _fixed(kind: str, value: Value, double: bool) -> Any:
    if not isinstance(value, LiteralArg):
        return None
    if kind.startswith("ScalarType"):
        dtype = getattr(torch, str(value.value))
        return torch.float64 if double and dtype in _FLOATS else dtype
    return list(value.value) if isinstance(value.value, tuple) else value.value


def _dropped(call: GraphCall, values: Sequence[Any], scalars: Numbers, mask: torch.Tensor) -> list[torch.Tensor]:
    """Compute dropout with a given mask, by torch's formula."""
    given = call.given()
    tensor, p = given["input"], given["p"]
    assert isinstance(tensor, Ref)  # noqa: S101  (its schema says so)
    probability = scalars[p.name] if isinstance(p, Scalar) else 0.0
    scale = 0.0 if probability >= 1 else 1.0 / (1.0 - probability)
    return [values[tensor.value] * mask * scale, mask]
