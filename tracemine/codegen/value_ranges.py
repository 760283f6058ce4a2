"""Interval analysis of a graph's values: it guarantees that computed indices stay in bounds.

Interval arithmetic over the calls. Where nothing is known of a value, nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, product
from typing import Any

from tracemine.codegen.graph import Graph, GraphCall, LiteralArg, Ref, Refs, Scalar, Value, mutated, settled
from tracemine.codegen.index_inputs import pointing, wraps
from tracemine.ops.facts import base_name, keeping_values

Range = tuple[float, float]  # the least and the largest, both included
_Sizes = tuple[int, int]  # elements of the first tensor that a call takes, and of the first that it gives
_Rule = Callable[[GraphCall, Mapping[str, Any], _Sizes], Range | None]

_WHOLE, _BROKEN = (2, 0, 1), (0.5, 0.0, 1.0)  # what is tried for a number that was not recorded
_MOST_TRIED = 81


def in_tables(graph: Graph) -> tuple[Graph, bool]:
    """Return the graph with unrecorded numbers for which the places that it computes lie in their tables.

    Also says whether there are such: where not, or where nothing tells, the graph is as it was.

    >>> from tracemine.codegen import GraphBuilder
    >>> b = GraphBuilder("positions")
    >>> table = b.input("table", (512, 8), "float32")
    >>> places = b.call("aten::add.Tensor", b.call("aten::arange.start_step", 0, 512, 1, dtype="int64"), 2)
    >>> graph = b.done(b.call("aten::embedding", table, places))
    >>> in_tables(graph)[1]  # the number 2 was recorded: the last places are outside
    False
    """
    unknown = [s for s in graph.scalars if not s.recorded]
    others = [_WHOLE if isinstance(s.value, int) else _BROKEN for s in unknown]
    choices = [[s.value, *(n for n in more if n != s.value)] for s, more in zip(unknown, others, strict=True)]
    for numbers in islice(product(*choices), _MOST_TRIED):
        tried = settled(graph, {s.name: n for s, n in zip(unknown, numbers, strict=True)})
        if _all_inside(tried):
            return tried, True
    return graph, False


def _all_inside(graph: Graph) -> bool:
    known, specs = ranges(graph), graph.specs
    for call in graph.calls:
        for value, below in pointing(call, specs):
            found = known[value]
            if found is None or found[1] >= below or found[0] < (-below if wraps(call) else 0):
                return False
    return True


def ranges(graph: Graph) -> list[Range | None]:
    """Return for each value of a graph the range of its elements as its call gives it; None where it is not known.

    >>> from tracemine.codegen import GraphBuilder
    >>> b = GraphBuilder("positions")
    >>> valid = b.input("valid", (4, 8), "int64", below=2)
    >>> places = b.call("aten::mul.Tensor", b.call("aten::cumsum", valid, 1), valid)
    >>> ranges(b.done(b.call("aten::add.Tensor", places, 1)))
    [(0, 1), (0, 8), (0, 8), (1, 9)]
    """
    specs = graph.specs
    known: list[Range | None] = []
    memory = graph.memory
    for entry in graph.inputs:
        below = 2 if entry.spec.dtype == "bool" else entry.below
        known.append(None if below is None else (0, max(below - 1, 0)))
    for call in graph.calls:
        first = next((a.value for a in call.arguments if isinstance(a, Ref)), None)
        sizes = (specs[first].elements if first is not None else 1, call.outputs[0].elements if call.outputs else 1)
        given = {name: _range(value, known) for name, value in call.given().items()}
        found = _called(call, given, sizes)
        for target in mutated(call):
            alike = [v for v in range(len(known)) if memory[v] == memory[target]]
            for v in alike:
                known[v] = found if len(alike) == 1 else None  # what views of what is written hold is not followed
        known += _of_outputs(call, found)
    return known


def _of_outputs(call: GraphCall, found: Range | None) -> list[Range | None]:
    """Return the range of each output of a call, whose first has `found`."""
    if base_name(call.operator) in _ALL_ALIKE:
        return [found] * len(call.outputs)
    outputs: list[Range | None] = [(0, 1) if spec.dtype == "bool" else None for spec in call.outputs]
    if outputs and outputs[0] is None:
        outputs[0] = found
    return outputs


_ALL_ALIKE = ("split", "split_with_sizes", "chunk", "unbind")


def _range(value: Value, known: Sequence[Range | None]) -> Any:
    """Return the range of a tensor or a number; of a list those of its members; a literal as it is."""
    if isinstance(value, Ref):
        return known[value.value]
    if isinstance(value, Refs):
        return [known[v] for v in value.values if v is not None]
    if isinstance(value, Scalar):
        return (value.value, value.value)
    return value.value if isinstance(value, LiteralArg) else None


def _called(call: GraphCall, given: Mapping[str, Any], sizes: _Sizes) -> Range | None:
    name = base_name(call.operator)
    rule, keeps = _RULES.get(name), name in keeping_values() or name in _SAME
    try:
        found = rule(call, given, sizes) if rule else _first(given) if keeps else None
    except (TypeError, KeyError, IndexError, ZeroDivisionError, OverflowError):  # something it takes is not known
        return None
    if found is None or any(math.isnan(n) for n in found):
        return None
    whole = bool(call.outputs) and "int" in str(call.outputs[0].dtype)
    return (math.trunc(found[0]), math.trunc(found[1])) if whole and all(map(math.isfinite, found)) else found


def _number(value: Any) -> Range:
    """Return the range of an argument that may be a literal number."""
    return (value, value) if isinstance(value, int | float) else value


def _first(given: Mapping[str, Any]) -> Any:
    return next(iter(given.values()))


def _ends(found: Iterable[float]) -> Range:
    numbers = [*found]
    return min(numbers), max(numbers)


def _sum(call: GraphCall, given: Mapping[str, Any], sizes: _Sizes) -> Range:
    sign = -1 if call.operator.startswith("aten::sub") else 1
    factors = _number(given["alpha"]) if given.get("alpha") is not None else (1, 1)
    low, high = _ends(sign * f * n for f in factors for n in given["other"])
    return given["self"][0] + low, given["self"][1] + high


def _running(call: GraphCall, given: Mapping[str, Any], sizes: _Sizes) -> Range:
    shape = call.outputs[0].shape
    count = shape[int(given["dim"])] if shape else 1
    return min(n := given["self"][0], n * count), max(n := given["self"][1], n * count)


def _clamped(call: GraphCall, given: Mapping[str, Any], sizes: _Sizes) -> Range:
    low, high = _first(given) or (-math.inf, math.inf)
    for name, held in (("min", max), ("max", min)):
        if given.get(name) is not None:
            bound = _number(given[name])
            low, high = held(low, bound[0]), held(high, bound[1])
    return low, high


def _counted(call: GraphCall, given: Mapping[str, Any], sizes: _Sizes) -> Range:
    start, step = (_number(given.get(n) if given.get(n) is not None else d)[0] for n, d in (("start", 0), ("step", 1)))
    return _ends((start, start + step * max(sizes[1] - 1, 0)))


def _filled(call: GraphCall, given: Mapping[str, Any], sizes: _Sizes) -> Range:
    plain = 1 if "ones" in call.operator else 0
    return _number(next((given[n] for n in ("fill_value", "value") if given.get(n) is not None), plain))


def _divided(call: GraphCall, given: Mapping[str, Any], sizes: _Sizes) -> Range:
    by = given["other"]
    if by[0] <= 0 <= by[1]:
        raise ZeroDivisionError
    low, high = _ends(a / b for a in given["self"] for b in by)
    return (math.floor(low), math.ceil(high)) if given.get("rounding_mode") or "floor" in call.operator else (low, high)


def _remainder(call: GraphCall, given: Mapping[str, Any], sizes: _Sizes) -> Range | None:
    low, high = given["other"]
    return (0, low) if low == high and low > 0 else None


def _either(*names: str) -> _Rule:
    return lambda call, given, sizes: _ends(n for name in names for n in _number(given[name]))


_SAME = frozenset(
    (
        *("unsqueeze", "squeeze", "transpose", "t", "reshape", "_unsafe_view", "_reshape_alias", "contiguous", "alias"),
        *("detach", "roll", "amax", "amin", "lift_fresh"),
        *_ALL_ALIKE,
    )
)
_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(("add", "sub"), _sum),
    "mul": lambda call, given, sizes: _ends(a * b for a in given["self"] for b in given["other"]),
    "sum": lambda call, given, sizes: _ends(n * (sizes[0] // max(sizes[1], 1)) for n in given["self"]),
    "cumsum": _running,
    "copy": _either("src"),
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max"), _clamped),
    **dict.fromkeys(("where", "maximum", "minimum"), _either("self", "other")),
    "masked_fill": _either("self", "value"),
    **dict.fromkeys(("cat", "stack"), lambda call, given, sizes: _ends(n for each in given["tensors"] for n in each)),
    "arange": _counted,
    **dict.fromkeys(("full", "zeros", "ones", "full_like", "zeros_like", "ones_like", "fill", "zero"), _filled),
    "neg": lambda call, given, sizes: _ends(-n for n in given["self"]),
    "abs": lambda call, given, sizes: _ends(
        [*map(abs, given["self"]), *[0] * (min(given["self"]) <= 0 <= max(given["self"]))]
    ),
    **dict.fromkeys(("div", "floor_divide"), _divided),
    "remainder": _remainder,
}
