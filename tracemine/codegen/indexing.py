"""Where an element lies: the places along a tensor's dimensions, and along the axes that these consist of."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.codegen import loop_ir as ir
from tracemine.codegen.axes import Axes, Dim, Dims
from tracemine.codegen.loop_ir import Node, Nodes

Index = tuple[Node, ...]  # one for each axis of a tensor, over all its dimensions


class Places:
    """Index arithmetic: makes the nodes of places."""

    def __init__(self, axes: Axes, nodes: Nodes) -> None:
        self.axes, self.nodes = axes, nodes

    def by_dim(self, dims: Dims, index: Index) -> tuple[Node, ...]:
        """One index expression for each dimension."""
        return tuple(self.linear(group, leaves) for group, leaves in self.groups(dims, index))

    def groups(self, dims: Dims, index: Index) -> list[tuple[Index, Dim]]:
        """The part of an index that belongs to each dimension, and its axes."""
        found, at = [], 0
        for dim in dims:
            leaves = self.axes.leaves(dim)
            found.append((index[at : at + len(leaves)], leaves))
            at += len(leaves)
        return found

    def linear(self, group: Index, leaves: Dim) -> Node:
        """The place along a dimension, from those along its axes."""
        place: Node = self.nodes.make(ir.Int, 0)
        for node, leaf in zip(group, leaves, strict=True):
            place = self.nodes.arithmetic("+", self.nodes.arithmetic("*", place, self.size((leaf,))), node)
        return place

    def spread(self, place: Node, leaves: Dim) -> Index:
        """The places along a dimension's axes, from that along the dimension."""
        found: list[Node] = []
        for leaf in reversed(leaves[1:]):
            found.append(self.nodes.arithmetic("%", place, self.size((leaf,))))
            place = self.nodes.arithmetic("//", place, self.size((leaf,)))
        return (*((place,) if leaves else ()), *reversed(found))

    def size(self, leaves: Sequence[int]) -> Node:
        """The size of axes: a number where all are pinned."""
        found = [self.axes.axis(leaf) for leaf in leaves]
        if all(a.pinned for a in found):
            return self.nodes.make(ir.Int, self.axes.size(leaves))
        return self.nodes.make(ir.Size, tuple(found))

    def regrouped(self, group: Index, leaves: Dim, wanted: Dim) -> Index:
        """The same place along axes that a dimension of the same size is split into otherwise."""
        if leaves == wanted or [self.axes.size((a,)) for a in leaves] == [self.axes.size((a,)) for a in wanted]:
            return group
        return self.spread(self.linear(group, leaves), wanted)

    def broadcast(self, dims: Dims, index: Index, wanted: Dims) -> Index:
        """The index in a tensor that is broadcast to `dims`."""
        groups = self.groups(dims, index)
        found: list[Node] = []
        for dim, (group, leaves) in zip(wanted, groups[len(groups) - len(wanted) :], strict=True):
            target = self.axes.leaves(dim)
            found.extend(self.regrouped(group, leaves, target) if target else ())
        return tuple(found)
