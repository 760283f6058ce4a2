"""Which dimensions of which tensors are the same axis: by unification from calls, never by size alone.

Dimensions meet in pointwise calls (they are joined) and in views (one is split into several). A dimension is a tuple
of axes, the outermost first; of size 1, an empty one. So a view regroups axes, and one kernel can loop over them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from tracemine.codegen.graph import Unsupported
from tracemine.codegen.loop_ir import Axis

Dim = tuple[int, ...]  # numbers of axes, which may have been joined and split since
Dims = tuple[Dim, ...]


class Axes:
    """All axes of a graph.

    >>> axes = Axes()
    >>> (flat,), (heads, width) = axes.dims((96,)), axes.dims((4, 24))
    >>> axes.join(flat, heads + width)
    True
    >>> axes.leaves(flat) == axes.leaves(heads + width)
    True
    """

    def __init__(self) -> None:
        self._size: list[int] = []
        self._parent: list[int] = []
        self._parts: list[Dim] = []  # of those that were split
        self._pinned: list[bool] = []
        self._tensors = 0  # whose axes are kept apart
        self._together: list[set[int]] = []  # of each axis, the tensors among them that it is one of
        self._loops: dict[tuple[int, int], int] = {}

    def dims(self, shape: Sequence[int]) -> Dims:
        """Return new axes for a shape, one a dimension."""
        return tuple(() if size == 1 else (self._new(size),) for size in shape)

    def keep_apart(self, dims: Dims) -> None:
        """Keep the axes of one tensor's dimensions apart: no two of them may become one."""
        for leaf in self.flat(dims):
            self._together[leaf].add(self._tensors)
        self._tensors += 1

    def leaves(self, dim: Iterable[int]) -> Dim:
        """Return the axes that a dimension consists of by now."""
        found: list[int] = []
        for axis in dim:
            root = self._root(axis)
            found.extend(self.leaves(self._parts[root]) if self._parts[root] else (root,))
        return tuple(found)

    def flat(self, dims: Dims) -> Dim:
        """Return the axes of all dimensions, in order."""
        return tuple(leaf for dim in dims for leaf in self.leaves(dim))

    def size(self, dim: Iterable[int]) -> int:
        """Return the size of a dimension."""
        return prod(self._size[a] for a in dim)

    def pin(self, dims: Iterable[int]) -> None:
        """Pin axes: their sizes are part of what is computed."""
        for leaf in self.leaves(dims):
            self._pinned[leaf] = True

    def pin_all_but(self, dims: Iterable[Dims]) -> None:
        """Pin every axis that none of these tensors has: nothing would tell its size."""
        told = {leaf for each in dims for leaf in self.flat(each)}
        for axis in range(len(self._size)):
            self._pinned[axis] |= axis not in told

    def axis(self, leaf: int) -> Axis:
        """Return an axis for a kernel."""
        return Axis(leaf, self._size[leaf], self._pinned[leaf])

    def join(self, first: Dim, second: Dim) -> bool:
        """Make two dimensions of one size the same, splitting axes where it takes that.

        False where two axes of one tensor would become one: then they stay apart. Raises Unsupported where the axes
        do not nest in each other, as in a view of (6, 4) as (8, 3).
        """
        left, right = list(self.leaves(first)), list(self.leaves(second))
        pairs: list[tuple[int, int]] = []
        while left and right:
            a, b = left.pop(), right.pop()
            big, small = max(self._size[a], self._size[b]), min(self._size[a], self._size[b])
            if big != small:
                if small == 0 or big % small:
                    raise Unsupported(f"a view regroups axes of {self._size[a]} and {self._size[b]} elements")
                target, side = (a, left) if self._size[a] == big else (b, right)
                outer, inner = self._split(target, small)
                side.append(outer)
                a, b = (inner, b) if target == a else (a, inner)
            pairs.append((a, b))
        if left or right:
            raise Unsupported("a view regroups axes that do not nest")
        fits = [self._may_join(a, b) for a, b in pairs]
        if all(fits):
            for a, b in pairs:
                self._union(a, b)
        return all(fits)

    def _new(self, size: int, pinned: bool = False) -> int:
        self._size.append(size)
        self._parent.append(len(self._parent))
        self._parts.append(())
        self._pinned.append(pinned)
        self._together.append(set())
        return len(self._size) - 1

    def part(self, leaf: int, size: int) -> int:
        """Return an axis of a known size over a part of another: the same one each time."""
        if (leaf, size) not in self._loops:
            self._loops[leaf, size] = self._new(size, True)
        return self._loops[leaf, size]

    def _root(self, axis: int) -> int:
        while self._parent[axis] != axis:
            axis = self._parent[axis]
        return axis

    def _split(self, axis: int, inner: int) -> Dim:
        parts = (self._new(self._size[axis] // inner, self._pinned[axis]), self._new(inner, True))
        self._parts[axis] = parts
        for part in parts:
            self._together[part] |= self._together[axis]
        return parts

    def _may_join(self, a: int, b: int) -> bool:
        a, b = self._root(a), self._root(b)
        if a == b:
            return True
        return self._together[a].isdisjoint(self._together[b])

    def _union(self, a: int, b: int) -> None:
        a, b = self._root(a), self._root(b)
        if a != b:
            self._parent[b] = a
            self._pinned[a] |= self._pinned[b]
            self._together[a] |= self._together[b]
