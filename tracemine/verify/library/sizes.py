"""A graph at other sizes, by what its views say of them, where no kernel says which are free.

Sizes that are equal stay equal; a size that a view puts together out of others stays their product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tracemine.codegen.graph import Graph, GraphCall, GraphError, GraphInput, LiteralArg, Ref, Value
from tracemine.codegen.graph_builder import infer_outputs
from tracemine.validate.resize import reshaped

_VIEWS = frozenset({"aten::view", "aten::_unsafe_view", "aten::reshape"})
_CUTS = frozenset({"aten::slice"})
_SIZES = frozenset({"size", "shape", "normalized_shape"})
_PLACES = frozenset({"start", "end"})


def composed(graph: Graph) -> dict[int, tuple[int, ...]]:
    """Return sizes that views put together, and out of which; of what is cut into equal parts, the part and how many.

    How many parts there are stays: it is a negative number.

    >>> from tracemine.codegen import GraphBuilder
    >>> b = GraphBuilder("heads")
    >>> x = b.input("x", (12, 5, 7), "float32")
    >>> composed(b.done(b.call("aten::view", x, [3, 4, 5, 7])))
    {12: (3, 4)}
    >>> b = GraphBuilder("halves")
    >>> x = b.input("x", (5, 8), "float32")
    >>> composed(b.done(b.call("aten::slice.Tensor", x, 1, 0, 4)))
    {8: (4, -2)}
    """
    specs = graph.specs
    found: dict[int, tuple[int, ...]] = {}
    for number, call in enumerate(graph.calls):
        source = call.arguments[0] if call.operator in (*_VIEWS, *_CUTS) else None
        if not isinstance(source, Ref):
            continue
        before, after = specs[source.value].shape, specs[graph.first_output(number)].shape
        if call.operator in _CUTS:
            cut = ((n, part) for n, part in zip(before, after, strict=True) if part not in (0, n) and n % part == 0)
            found.update((n, (part, -(n // part))) for n, part in cut if n not in found)
        else:
            for one, many in (*_merged(before, after), *_merged(after, before)):
                found.setdefault(one, many)
    return found


def _merged(wide: Sequence[int], narrow: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
    """Return axes of the first shape that are several neighbouring axes of the second, in order."""
    found: list[tuple[int, tuple[int, ...]]] = []
    rest = [n for n in narrow if n != 1]
    at = 0
    for size in (n for n in wide if n != 1):
        parts: list[int] = []
        while at < len(rest) and prod(parts) * rest[at] <= size and prod(parts) != size:
            parts.append(rest[at])
            at += 1
        if prod(parts) != size:
            return found
        if len(parts) > 1:
            found.append((size, tuple(parts)))
    return found


def free_sizes(graph: Graph) -> tuple[int, ...]:
    """Return sizes that may be others, largest first: all but 1, and those that views put together."""
    parts = composed(graph)
    found = {n for e in graph.inputs for n in _parts(e.spec.shape, parts)}
    return tuple(sorted((n for n in found - parts.keys() if n > 1), reverse=True))


def _parts(shape: Sequence[int], parts: Mapping[int, tuple[int, ...]]) -> list[int]:
    found: list[int] = []
    todo = list(shape)
    while todo:
        size = todo.pop()
        found.append(size)
        todo.extend(parts.get(size, ()))
    return found


def scaled(graph: Graph, sizes: Mapping[int, int]) -> Graph:
    """Return the graph with other sizes. Raises GraphError where its calls do not allow them."""
    parts = composed(graph)

    def now(size: int) -> int:
        if size in sizes or size < 0:
            return sizes.get(size, -size)
        return prod(map(now, parts[size])) if size in parts else size

    inputs = tuple(
        GraphInput(e.name, reshaped(e.spec, tuple(map(now, e.spec.shape))), None if e.below is None else now(e.below))
        for e in graph.inputs
    )
    specs = [e.spec for e in inputs]
    calls: list[GraphCall] = []
    for call in graph.calls:
        names = [a.name for a in call.schema.arguments]
        arguments = tuple(_argument(n, v, now) for n, v in zip(names, call.arguments, strict=True))
        made = GraphCall(call.operator, call.overload, arguments, ())
        outputs = infer_outputs(made, specs)[: len(call.outputs)] if call.outputs else ()
        for before, after in zip(call.outputs, outputs, strict=True):
            if len(after.shape) != len(before.shape) or after.dtype != before.dtype:
                raise GraphError(f"{call.label} gives something else")
        calls.append(GraphCall(call.operator, call.overload, arguments, outputs))
        specs += outputs
    return Graph(graph.name, inputs, tuple(calls), graph.live)


def _argument(name: str, value: Value, now: object) -> Value:
    assert callable(now)  # noqa: S101
    if isinstance(value, LiteralArg) and name in _SIZES and isinstance(value.value, tuple):
        return LiteralArg(tuple(now(n) if n > 0 else n for n in value.value))
    if isinstance(value, LiteralArg) and name in _PLACES and type(value.value) is int:
        return LiteralArg(now(value.value))
    return value
