"""Find index tensors of a graph, the tensor that each one indexes, and the bound of its indices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tracemine.codegen.graph import Graph, GraphCall, Ref, Refs
from tracemine.ops.facts import base_name, keeping_values
from tracemine.ops.infer import TensorSpec

# Which argument holds places in which: of the operator, the index argument, and of what, along which argument's axis.
_POINTS: Mapping[str, tuple[str, str, str | None]] = {
    "embedding": ("indices", "weight", None),
    **dict.fromkeys(("index_select", "gather", "scatter", "scatter_add"), ("index", "self", "dim")),
    **dict.fromkeys(("index_add", "index_copy", "index_fill"), ("index", "self", "dim")),
    **dict.fromkeys(
        (f"nll_loss{d}_{way}" for d in ("", "2d") for way in ("forward", "backward")), ("target", "self", "1")
    ),
}


def pointing(call: GraphCall, specs: Sequence[TensorSpec]) -> list[tuple[int, int]]:
    """Index tensors of a call, each with the number of places that it may point to."""
    base = base_name(call.operator)
    named = call.given()
    if base in ("index", "_unsafe_index", "index_put", "_index_put_impl"):
        source, indices = named.get("self"), named.get("indices")
        if not isinstance(source, Ref) or not isinstance(indices, Refs):
            return []
        shape = specs[source.value].shape
        return [
            (v, shape[at])
            for at, v in enumerate(indices.values)
            if v is not None and at < len(shape) and specs[v].dtype not in ("bool", "uint8")
        ]
    if base not in _POINTS:
        return _rows_of_gradient(base, named)
    index_name, table_name, axis = _POINTS[base]
    index, source = named.get(index_name), named.get(table_name)
    if not isinstance(index, Ref) or not isinstance(source, Ref):
        return []
    shape = specs[source.value].shape
    along: Any = 0
    if axis is not None:
        along = int(axis) if axis.isdigit() else getattr(named.get(axis), "value", 0)
    if not shape or not isinstance(along, int) or not -len(shape) <= along < len(shape):
        return []
    return [(index.value, shape[along])]


def _rows_of_gradient(base: str, named: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return the indices that an embedding's gradient is added up by, and how many rows there are; of others none."""
    if base != "embedding_dense_backward":
        return []
    indices, count = named.get("indices"), getattr(named.get("num_weights"), "value", None)
    return [(indices.value, count)] if isinstance(indices, Ref) and isinstance(count, int) else []


def wraps(call: GraphCall) -> bool:
    """Return whether negative places count from the end."""
    return base_name(call.operator) in ("index", "index_put", "_index_put_impl")


def within(graph: Graph) -> Graph:
    """Return the graph with index tensors kept within what they point into, at the sizes that it has now."""
    inputs = list(graph.inputs)
    for value, below in _origins(graph):
        if value < len(inputs) and (known := inputs[value].below) is not None:
            inputs[value] = msgspec.structs.replace(inputs[value], below=min(known, below))
    return msgspec.structs.replace(graph, inputs=tuple(inputs))


def computed(graph: Graph) -> list[int]:
    """Return how many places there are for each index that the graph computes itself: no smaller table would do."""
    return [below for value, below in _origins(graph) if value >= len(graph.inputs)]


def _origins(graph: Graph) -> Iterator[tuple[int, int]]:
    """Yield, for each index tensor, the value that it is a view or a copy of, and the bound of its indices.

    What was copied into that value, or into a view of it, is another.
    """
    specs = graph.specs
    givers = {graph.first_output(n) + k: call for n, call in enumerate(graph.calls) for k in range(len(call.outputs))}

    for number, call in enumerate(graph.calls):
        for value, below in pointing(call, specs):
            source = origin(value, givers.get)
            for held in (source, *copied(graph.calls[:number], source, givers.get)):
                yield held, below


def origin(value: int, giver: Callable[[int], GraphCall | None]) -> int:
    """Return the value of which another is a view or a copy. giver: the call that gives a value; None of an input."""
    while (call := giver(value)) is not None and base_name(call.operator) in keeping_values():
        first = call.arguments[0]
        if not isinstance(first, Ref):
            break
        value = first.value
    return value


def copied(calls: Iterable[GraphCall], into: int, giver: Callable[[int], GraphCall | None]) -> Iterator[int]:
    """Yield what calls copy into a value or into views of it, and what they copied into that before."""
    copies = [call.given() for call in calls if call.operator == "aten::copy_"]
    found, todo = {into}, [into]
    while todo:
        at = todo.pop()
        for given in copies:
            target, source = given.get("self"), given.get("src")
            if isinstance(target, Ref) and isinstance(source, Ref) and origin(target.value, giver) == at:
                held = origin(source.value, giver)
                if held not in found:
                    found.add(held)
                    todo.append(held)
                    yield held
