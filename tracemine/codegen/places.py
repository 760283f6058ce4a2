"""Which indices of a kernel are places on axes that it walks as one: on one of them, or on several in a row."""

from __future__ import annotations

from math import prod

from tracemine.codegen import loop_ir as ir
from tracemine.codegen.loop_ir import Axis, Kernel, Node

Span = tuple[tuple[Axis, ...], int, int]  # the axes of the rows or of the columns; which of them: from, up to


def spans(kernel: Kernel) -> dict[tuple[Axis, ...], dict[Node, tuple[int, int]]]:
    """For rows and for columns, the indices that are asked for, and on which of their axes each is the place."""
    found: dict[tuple[Axis, ...], dict[Node, tuple[int, int]]] = {}
    seen: set[Node] = set()
    todo = [n for s in kernel.stores for n in (*s.index, s.value)]
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        span = span_of(kernel, node)
        if span is None:
            todo.extend(ir.children(node))
        else:
            found.setdefault(span[0], {})[node] = span[1:]
    return {axes: dict(sorted(asked.items(), key=lambda item: item[1])) for axes, asked in found.items()}


def span_of(kernel: Kernel, node: Node) -> Span | None:
    """The axes along which an index is the place: as `row // 7 % 7 * 7 + row % 7` is along two."""
    if isinstance(node, ir.At):
        for axes in (kernel.rows, kernel.columns):
            if node.axis in axes:
                return axes, axes.index(node.axis), axes.index(node.axis) + 1
    if not (isinstance(node, ir.Arithmetic) and isinstance(node.left, ir.Arithmetic) and node.symbol == "+"):
        return None
    outer, inner, by = span_of(kernel, node.left.left), span_of(kernel, node.right), node.left.right
    if node.left.symbol != "*" or outer is None or inner is None or outer[0] != inner[0] or outer[2] != inner[1]:
        return None
    passed = outer[0][inner[1] : inner[2]]
    pinned = isinstance(by, ir.Int) and all(a.pinned for a in passed) and by.value == prod(a.size for a in passed)
    return (outer[0], outer[1], inner[2]) if pinned or (isinstance(by, ir.Size) and by.axes == passed) else None
