"""A library call's validation, asked of a process of its own, and the sizes at which it is tried.

Sizes that are equal stay equal; a size that a view puts together out of others stays their product.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from math import prod

import msgspec

from tracemine.codegen.graph import Graph, GraphCall, GraphError, GraphInput, LiteralArg, Ref, Value
from tracemine.codegen.graph_builder import infer_outputs
from tracemine.codegen.index_inputs import within
from tracemine.errors import TracemineError
from tracemine.processes import worker
from tracemine.validate.downsize import elements
from tracemine.validate.resize import reshaped
from tracemine.verify.library.record import Replacement
from tracemine.verify.library.replace import find

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


WORKER = worker("tracemine.verify.library.worker")
MOST_ELEMENTS = 1 << 20  # of the largest tensor: calls that cannot be made smaller are not tried beyond
LIBRARY_ULP = 8.0  # that a call's functions may be off by, of float32
_MOST_FREE = 4  # sizes that are tried at others, each
# All different, and no multiple of a block; the second, where products of many axes are large with the first.
_SMALL = (33, 17, 9, 5, 3, 2, 4, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16), (7, 5, 3, 2, 4, 6, 8, 9, 10, 11, 12, 13)
_ENOUGH = 1 << 14  # elements of the largest tensor, for the first

# What is asked for: a graph as MessagePack, for JSON has no infinities; `unread` as in `find`; whether with mutants.
CallJob = tuple[bytes, tuple[int, ...], bool]


class Sizes:
    """A graph made small, where its calls allow it, and other sizes for it."""

    def __init__(self, graph: Graph, unread: tuple[int, ...], replacement: Replacement | None = None) -> None:
        """replacement: of the graph as recorded; None: it is looked for where no smaller graph has one."""
        self._recorded = graph
        self._small: dict[int, int] = {}
        self.graph, self.replacement = graph, replacement
        free = free_sizes(graph)
        for sizes in _SMALL:
            small = {n: min(n, sizes[k % len(sizes)]) for k, n in enumerate(free)}
            with contextlib.suppress(TracemineError, ArithmeticError, ValueError, LookupError):
                made = within(scaled(graph, small))
                if (found := find(made, unread).replacement) is not None:
                    self.graph, self._small, self.replacement = made, small, found
            if elements(self.graph) <= _ENOUGH:
                break
        if self.replacement is None:
            self.replacement = find(graph, unread).replacement
        self.free = {n: self._small[n] for n in free[:_MOST_FREE] if n in self._small}

    def at(self, sizes: Mapping[int, int]) -> Graph:
        """Return the graph with other sizes for some. Raises TracemineError where its calls do not allow them."""
        return within(scaled(self._recorded, {**self._small, **sizes})) if sizes else self.graph


def job(graph: Graph, unread: tuple[int, ...] = (), mutants: bool = True) -> bytes:
    """Return a line that the process reads."""
    return msgspec.json.encode((msgspec.msgpack.encode(graph), unread, mutants))
