"""Index arithmetic: where an element lies along a tensor's dimensions, along the axes that these consist of, and which
indices of a kernel run along several of its axes at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.codegen import loop_ir as ir
from tracemine.codegen.axes import Axes, Dim, Dims
from tracemine.codegen.loop_ir import Axis, LoopKernel, LoopNode, Nodes

Index = tuple[LoopNode, ...]  # one for each axis of a tensor, over all its dimensions


class IndexMath:
    """Index arithmetic: makes the nodes of places."""

    def __init__(self, axes: Axes, nodes: Nodes) -> None:
        self.axes, self.nodes = axes, nodes

    def by_dim(self, dims: Dims, index: Index) -> tuple[LoopNode, ...]:
        """Return one index expression for each dimension."""
        return tuple(self.linear(group, leaves) for group, leaves in self.groups(dims, index))

    def groups(self, dims: Dims, index: Index) -> list[tuple[Index, Dim]]:
        """Return the part of an index that belongs to each dimension, and its axes."""
        found, at = [], 0
        for dim in dims:
            leaves = self.axes.leaves(dim)
            found.append((index[at : at + len(leaves)], leaves))
            at += len(leaves)
        return found

    def linear(self, group: Index, leaves: Dim) -> LoopNode:
        """Return the place along a dimension, from those along its axes."""
        place: LoopNode = self.nodes.make(ir.Int, 0)
        for node, leaf in zip(group, leaves, strict=True):
            place = self.nodes.arithmetic("+", self.nodes.arithmetic("*", place, self.size((leaf,))), node)
        return place

    def spread(self, place: LoopNode, leaves: Dim) -> Index:
        """Return the places along a dimension's axes, from that along the dimension."""
        found: list[LoopNode] = []
        for leaf in reversed(leaves[1:]):
            found.append(self.nodes.arithmetic("%", place, self.size((leaf,))))
            place = self.nodes.arithmetic("//", place, self.size((leaf,)))
        return (*((place,) if leaves else ()), *reversed(found))

    def size(self, leaves: Sequence[int]) -> LoopNode:
        """Return the size of axes: a number where all are pinned."""
        found = [self.axes.axis(leaf) for leaf in leaves]
        if all(a.pinned for a in found):
            return self.nodes.make(ir.Int, self.axes.size(leaves))
        return self.nodes.make(ir.Size, tuple(found))

    def regrouped(self, group: Index, leaves: Dim, wanted: Dim) -> Index:
        """Return the same place along axes that a dimension of the same size is split into otherwise."""
        if leaves == wanted or [self.axes.size((a,)) for a in leaves] == [self.axes.size((a,)) for a in wanted]:
            return group
        return self.spread(self.linear(group, leaves), wanted)

    def broadcast(self, dims: Dims, index: Index, wanted: Dims) -> Index:
        """Return the index in a tensor that is broadcast to `dims`."""
        groups = self.groups(dims, index)
        found: list[LoopNode] = []
        for dim, (group, leaves) in zip(wanted, groups[len(groups) - len(wanted) :], strict=True):
            target = self.axes.leaves(dim)
            found.extend(self.regrouped(group, leaves, target) if target else ())
        return tuple(found)


Span = tuple[tuple[Axis, ...], int, int]  # the axes of the rows or of the columns; which of them: from, up to


def spans(kernel: LoopKernel) -> dict[tuple[Axis, ...], dict[LoopNode, tuple[int, int]]]:
    """Return for rows and for columns, the indices that are asked for, and on which of their axes each is the place."""
    found: dict[tuple[Axis, ...], dict[LoopNode, tuple[int, int]]] = {}
    seen: set[LoopNode] = set()
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


def span_of(kernel: LoopKernel, node: LoopNode) -> Span | None:
    """Return the axes along which an index is the place: as `row // 7 % 7 * 7 + row % 7` is along two."""
    if isinstance(node, ir.LoopIndex):
        for axes in (kernel.rows, kernel.columns, kernel.batch, kernel.contracted):
            if node.axis in axes:
                return axes, axes.index(node.axis), axes.index(node.axis) + 1
    if not (isinstance(node, ir.IndexArithmetic) and isinstance(node.left, ir.IndexArithmetic) and node.symbol == "+"):
        return None
    outer, inner, by = span_of(kernel, node.left.left), span_of(kernel, node.right), node.left.right
    if node.left.symbol != "*" or outer is None or inner is None or outer[0] != inner[0] or outer[2] != inner[1]:
        return None
    return (outer[0], outer[1], inner[2]) if _is_size_of(by, outer[0][inner[1] : inner[2]]) else None


def _is_size_of(by: LoopNode, axes: tuple[Axis, ...]) -> bool:
    if isinstance(by, ir.Size):
        return by.axes == axes
    return isinstance(by, ir.Int) and all(a.pinned for a in axes) and by.value == ir.elements(axes)
