"""What one kernel in place of a graph has to read and write: each element once, none that the graph does not need."""

from __future__ import annotations

from tracemine.codegen.graph import Graph, reads
from tracemine.ops import itemsize
from tracemine.ops.facts import VIEWS, base_name, keeping_values

# What looks up as many elements of its first tensor as it gives; what gives some or all of them, in another shape.
_LOOKUPS, _VIEWS = keeping_values("looked_up"), keeping_values(*VIEWS)


def compulsory(graph: Graph) -> tuple[int, int]:
    """Return bytes that are read and written at least: of a table, as many elements as are looked up in it.

    >>> from tracemine.codegen import GraphBuilder
    >>> b = GraphBuilder("rows")
    >>> table, ids = b.input("table", (1000, 8), "float32"), b.input("ids", (3,), "int64", below=1000)
    >>> compulsory(b.done(b.call("aten::embedding", table, ids)))
    (120, 96)
    """
    count = len(graph.inputs)
    needed = _needed(graph)
    widths = [itemsize(str(spec.dtype)) or 0 for spec in graph.specs]
    read = sum(needed[v] * widths[v] for v in range(count))
    return read, sum(distinct_elements(graph, v) * widths[v] for v in (*dict.fromkeys(graph.live), *graph.written))


def _needed(graph: Graph) -> list[int]:
    """Return elements of each value that are read."""
    found = [0] * len(graph.specs)
    for number in reversed(range(len(graph.calls))):
        call, first = graph.calls[number], graph.first_output(number)
        outputs = range(first, first + len(call.outputs))
        name = base_name(call.operator)
        for place, value in enumerate(reads(call)):
            whole = distinct_elements(graph, value)
            part = whole
            if name in _LOOKUPS and place == 0:
                part = sum(distinct_elements(graph, v) for v in outputs)
            elif name in _VIEWS:
                part = sum(distinct_elements(graph, v) if v in graph.live else found[v] for v in outputs)
            found[value] = min(found[value] + part, whole)
    return found


def distinct_elements(graph: Graph, value: int) -> int:
    """Return elements of a value, those that are repeated once."""
    spec, found = graph.specs[value], 1
    for size, stride in zip(spec.shape, spec.strides or (), strict=True):
        found *= size if stride else 1
    return found
