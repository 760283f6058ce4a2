"""Inline tensor IR into loop IR for one kernel: what one element is, in a loop over given columns.

The question "which element" goes down from what is stored to what is loaded. What this kernel cannot compute on the
way (a reduction over other axes, or one needed at another row) is demanded of an earlier kernel and loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

from tracemine.codegen import loop_ir as ir
from tracemine.codegen import tensor_ir as tir
from tracemine.codegen.axes import Axes, Dim
from tracemine.codegen.contraction import ProductMath
from tracemine.codegen.indexing import Index
from tracemine.codegen.loop_ir import BOOL, FLOAT, INT, LONG, LoopNode, Nodes
from tracemine.codegen.operators import expression
from tracemine.codegen.passes.rotate_half import RotatedHalf
from tracemine.codegen.tensor_ir import Tensor

# Elements that are asked for so often, and take long to compute, are computed once, stored and loaded.
_REPEATS = 4


ColumnTile = tuple[int, int]  # an axis, and where in it a part begins that is as long as the kernel's columns


class Inliner(ProductMath):
    """Emits the values of one kernel. `rounds`: the build that rounds after every call, as eager does.

    large: elements from which on it takes longer to compute what is repeated than to launch a kernel for it.
    """

    def __init__(
        self,
        axes: Axes,
        nodes: Nodes,
        origins: dict[LoopNode, int],
        columns: Dim,
        rounds: bool,
        large: int,
        in_place: Collection[Tensor] = (),
        products: Mapping[Tensor, tuple[Tensor, Tensor]] = {},
    ) -> None:
        super().__init__(axes, nodes, columns, products)
        self.in_place = in_place  # what inputs hold at the end
        self.origins, self.rounds = origins, rounds
        self.large = large
        self.demanded: dict[Tensor, str] = {}
        self._root: Tensor | None = None
        self.scans = False
        self.boundaries: set[int] = set()  # columns at which a join goes from one member to the next
        self._known: dict[tuple[object, ...], LoopNode] = {}

    def store(self, tensor: Tensor, buffer: str, tile: ColumnTile | None = None) -> ir.Store:
        """Store an expression's element at its own index; of `tile` alone, where the columns are a part of an axis."""
        self._root = tensor
        self._part = tensor.part if isinstance(tensor, tir.Reduction) else ()
        leaves = {*self.axes.flat(tensor.dims)}
        self._elements = self.axes.size(leaves if tile is not None else leaves | {*self.columns})
        index = self.own(tensor, tile)
        return ir.Store(buffer, self.by_dim(tensor.dims, index), self.value(tensor, index, None))

    def own(self, tensor: Tensor, tile: ColumnTile | None = None) -> Index:
        """Return the index at which the kernel stands."""
        return tuple(self._at(leaf, tile) for leaf in self.axes.flat(tensor.dims))

    def _at(self, leaf: int, tile: ColumnTile | None) -> LoopNode:
        if tile is None or leaf != tile[0]:
            return self.nodes.make(ir.LoopIndex, self.axes.axis(leaf))
        place = self.nodes.make(ir.LoopIndex, self.axes.axis(self.columns[0]))
        return self.nodes.arithmetic("+", place, self.nodes.make(ir.Int, tile[1]))

    def value(self, tensor: Tensor, index: Index, guard: LoopNode | None) -> LoopNode:
        """Return one element. `guard`: what must hold for it to be wanted; else it may be anything."""
        key = (tensor, index, guard)
        found = self._known.get(key)
        if found is None:
            if tensor is not self._root and self._belongs_elsewhere(tensor, index):
                found = self.demand(tensor, index, guard)
            else:
                found = _INLINE[type(tensor)](self, tensor, index, guard)
            self._known[key] = found
            if tensor.origin >= 0 and isinstance(
                found, ir.Op | ir.Rounded | ir.Reduce | ir.RunningSum | ir.Contraction
            ):
                self.origins.setdefault(found, tensor.origin)
        return found

    # What this kernel cannot compute.

    def foreign(self, tensor: Tensor) -> bool:
        """Return whether it loops over other columns than this kernel."""
        return set(tir.columns_of(self.axes, tensor)) != set(self.columns)

    def _belongs_elsewhere(self, tensor: Tensor, index: Index) -> bool:
        """Return whether to load: expensive and repeated, or built on reductions over other columns and no larger.

        Also what is written in place and built on such: what it is computed of is gone by then.
        """
        if tensor in self.in_place and any(self.foreign(t) for t in tir.nearest_reductions(tensor)):
            return True
        if not isinstance(tensor, tir.Pointwise | tir.Cast):
            return False
        if self._is_table(tensor, index):
            return True
        others = [
            t
            for t in tir.nearest_reductions(tensor)
            if self.foreign(t) and not (isinstance(t, tir.Reduction) and t.part) and not self.met_once(t)
        ]
        leaves = set(self.axes.flat(tensor.dims))
        return bool(others) and all(leaves <= set(self.axes.flat(t.dims)) for t in others)

    def _is_table(self, tensor: Tensor, index: Index) -> bool:
        """Return whether it varies along the columns, is expensive, and is asked for the same elements repeatedly."""
        size = self.elements_of(tensor)
        if self._elements < max(self.large, _REPEATS * size) or not any(
            self.free_axes(node) & {*self.columns} for node in index
        ):
            return False
        return any(self.elements_of(t) == size for t in tir.expensive_parts(tensor))

    def demand(self, tensor: Tensor, index: Index, guard: LoopNode | None) -> LoopNode:
        buffer = self.demanded.setdefault(tensor, f"part_{id(tensor)}")
        return self.nodes.make(ir.Load, tensor.type, buffer, self.by_dim(tensor.dims, index), guard)

    # One method a kind of expression.

    def input(self, tensor: tir.Input, index: Index, guard: LoopNode | None) -> LoopNode:
        return self.nodes.make(ir.Load, tensor.type, tensor.buffer, self.by_dim(tensor.dims, index), guard)

    def pointwise(self, tensor: tir.Pointwise, index: Index, guard: LoopNode | None) -> LoopNode:
        args: list[LoopNode] = []
        for place, arg in enumerate(tensor.args):
            if isinstance(arg, tir.ScalarArg):
                args.append(self._number(arg, LONG if place in tensor.as_is else tensor.compute))
            else:
                there = self.broadcast(tensor.dims, index, arg.dims)
                value = self.value(arg, there, guard)
                args.append(value if place in tensor.as_is else self.converted(value, tensor.compute))
        if tensor.operation == "identity":
            return args[0]
        return self.nodes.op(tensor.dtype, tensor.operation, *args)

    def _number(self, number: tir.ScalarArg, type_: str) -> LoopNode:
        """Return a number in a type of computing; of a float among integers the integer part, as eager."""
        if number.name is None:
            return self.nodes.make(ir.Constant, type_, number.value)
        cut = isinstance(number.value, float) and type_ in (INT, LONG)
        made = self.nodes.make(ir.KernelScalar, FLOAT if cut else type_, number.name)
        return self.converted(made, type_)

    def cast(self, tensor: tir.Cast, index: Index, guard: LoopNode | None) -> LoopNode:
        value = self.value(tensor.arg, index, guard)
        target = tir.TYPE_OF[tensor.dtype]
        if isinstance(value, ir.Constant) and value.value in (0, 1):
            return self.converted(value, target)
        if tensor.dtype in tir.NARROW and not (self.rounds or tensor.always):
            return self.converted(self._brief(value), target)
        if tensor.dtype == target or (isinstance(value, ir.Rounded) and value.dtype == tensor.dtype):
            return self.converted(value, target)
        return self.nodes.make(ir.Rounded, target, value, tensor.dtype)

    def _brief(self, node: LoopNode) -> LoopNode:
        """Return a value that eager rounds to 16 bits, by fewer instructions where there are such."""
        if isinstance(node, ir.Op) and expression(node.name).brief is not None:
            return self.nodes.op(node.type, node.name, *node.args, brief=True)
        return node

    def reduction(self, tensor: tir.Reduction, index: Index, guard: LoopNode | None) -> LoopNode:
        here = tensor.part in ((), self._part) and guard is None and self.met_once(tensor)
        if here and (made := self.contraction(tensor, index)) is not None:
            return made
        crossed = any(self.free_axes(node) & set(self.columns) for node in index)
        if self.foreign(tensor) or tensor.part != self._part or crossed:
            return self.demand(tensor, index, guard)
        self.reduces.add(tensor)
        if guard is not None and self.free_axes(guard) & set(self.columns):
            guard = None  # what is wanted of a column says nothing of the whole row
        arg = self.converted(self.value(tensor.arg, self.inner(tensor, index), guard), tensor.dtype)
        if tensor.kind == "max" and any(isinstance(node, ir.Contraction) for node in ir.below(arg)):
            return self.risen(arg, {*self.columns})
        return self.nodes.make(ir.Reduce, tensor.dtype, tensor.kind, arg)

    def scan(self, tensor: tir.CumulativeSum, index: Index, guard: LoopNode | None) -> LoopNode:
        columns = tuple(self.nodes.make(ir.LoopIndex, self.axes.axis(leaf)) for leaf in self.columns)
        groups = [group for group, _ in self.groups(tensor.dims, index)]
        rest = [node for d, group in enumerate(groups) if d != tensor.along for node in group]
        crossed = any(self.free_axes(node) & set(self.columns) for node in rest)
        if self.foreign(tensor) or self._part or groups[tensor.along] != columns or crossed:
            return self.demand(tensor, index, guard)
        arg = self.converted(self.value(tensor.arg, index, guard), tensor.dtype)
        self.scans = True
        return self.nodes.make(ir.RunningSum, tensor.dtype, arg)

    def reshape(self, tensor: tir.Reshape, index: Index, guard: LoopNode | None) -> LoopNode:
        return self.value(tensor.arg, index, guard)

    def permute(self, tensor: tir.Permute, index: Index, guard: LoopNode | None) -> LoopNode:
        groups = [group for group, _ in self.groups(tensor.dims, index)]
        place = {d: at for at, d in enumerate(tensor.source) if d is not None}
        inner = tuple(n for d in range(len(tensor.arg.dims)) for n in (groups[place[d]] if d in place else ()))
        return self.value(tensor.arg, inner, guard)

    def slice(self, tensor: tir.SliceOf, index: Index, guard: LoopNode | None) -> LoopNode:
        make = self.nodes.arithmetic
        inner: list[LoopNode] = []
        for d, (group, leaves) in enumerate(self.groups(tensor.dims, index)):
            if d != tensor.dim:
                inner.extend(group)
                continue
            place = make("*", self.linear(group, leaves), self.nodes.make(ir.Int, tensor.step))
            place = make("+", place, self.nodes.make(ir.Int, tensor.start))
            if tensor.turns:
                place = make("%", place, self.size(self.axes.leaves(tensor.arg.dims[d])))
            inner.extend(self.spread(place, self.axes.leaves(tensor.arg.dims[d])))
        return self.value(tensor.arg, tuple(inner), guard)

    def concat(self, tensor: tir.Concat, index: Index, guard: LoopNode | None) -> LoopNode:
        groups = self.groups(tensor.dims, index)
        place = self.linear(*groups[tensor.dim])
        ends = tuple(accumulate(tensor.sizes))
        self._note_boundaries(place, ends)
        low, high = ir.bounds(place) or (0, ends[-1] - 1)
        found: LoopNode | None = None
        behind: LoopNode | None = None  # what must hold for what was found before
        end = ends[-1]
        for member, size in reversed(list(zip(tensor.args, tensor.sizes, strict=True))):
            start = end - size
            if start > high or end <= low:
                end = start
                continue  # the kernel's columns are a part of the join that has nothing of this member
            here = self.nodes.arithmetic("-", place, self.nodes.make(ir.Int, start))
            inside = self._between(place, start if start > low else 0, end, high + 1)
            both = inside if guard is None else self._both(guard, inside)
            inner: list[LoopNode] = []
            for d, (group, leaves) in enumerate(groups):
                wanted = self.axes.leaves(member.dims[d])
                if d == tensor.dim:
                    inner.extend(self.spread(here, wanted))
                elif wanted:
                    inner.extend(self.regrouped(group, leaves, wanted))
            value = self.value(member, tuple(inner), both)
            if found is None:
                found = value
            elif (both_halves := self._turned(tensor, place, (guard, both, behind), value, found)) is not None:
                found = both_halves
            else:
                before = self._compare("lt", place, end)
                found = self.nodes.op(tensor.type, "where", before, value, found)
            end, behind = start, both
        assert found is not None  # noqa: S101  (a join has members)
        return found

    def _turned(
        self, tensor: tir.Concat, place: LoopNode, guards: Sequence[LoopNode | None], first: LoopNode, second: LoopNode
    ) -> LoopNode | None:
        """Return both members of a join at once, if they are two halves of one tensor that change places.

        guards: what must hold for either to be wanted, for the first, and for the second.
        """
        size = tensor.sizes[0]
        if tensor.sizes != (size, size) or ir.bounds(place) != (0, 2 * size - 1):
            return None
        guard, *each = guards
        return RotatedHalf(self.nodes, place, size, guard, (each[0], each[1]), self.origins).value(first, second)

    def _note_boundaries(self, place: LoopNode, ends: Sequence[int]) -> None:
        """Note where a concatenation along the columns goes from one member to the next."""
        found = ir.bounds(place)
        if found is not None and self.free_axes(place) == {*self.columns}:
            low, high = found
            self.boundaries.update(end - low for end in ends if low < end <= high)

    def _compare(self, operation: str, place: LoopNode, bound: int) -> LoopNode:
        left = self.nodes.make(ir.IndexValue, LONG, place)
        return self.nodes.op(BOOL, operation, left, self.nodes.make(ir.Constant, LONG, bound))

    def _between(self, place: LoopNode, start: int, end: int, whole: int) -> LoopNode | None:
        above = self._compare("ge", place, start) if start > 0 else None
        below = self._compare("lt", place, end) if end < whole else None
        return self._both(above, below)

    def _both(self, first: LoopNode | None, second: LoopNode | None) -> LoopNode | None:
        if first is None or second is None:
            return first or second
        return self.nodes.op(BOOL, "logical_and", first, second)

    def gather(self, tensor: tir.Gather, index: Index, guard: LoopNode | None) -> LoopNode:
        groups = self.groups(tensor.dims, index)
        asked = tuple(n for d in tensor.asked for n in groups[d][0])
        asked_dims = tuple(tensor.dims[d] for d in tensor.asked)
        inner: list[LoopNode] = []
        for place, dim in zip(tensor.indices, tensor.table.dims, strict=True):
            leaves = self.axes.leaves(dim)
            if isinstance(place, int):
                inner.extend(self.regrouped(*groups[place], leaves) if leaves else ())
                continue
            there = self.broadcast(asked_dims, asked, place.dims)
            found = self.converted(self.value(place, there, guard), LONG)
            wrap = self.size(leaves) if tensor.wraps else None
            fetched = self.nodes.make(ir.IndirectIndex, found, wrap)
            inner.extend(self.spread(fetched, leaves))
        return self.value(tensor.table, tuple(inner), guard)

    def random_bits(self, tensor: tir.RandomBits, index: Index, guard: LoopNode | None) -> LoopNode:
        """Return each row of the innermost dimension has fours of its own."""
        make = self.nodes.arithmetic
        *outer, (group, leaves) = self.groups(tensor.dims, index) or [((), ())]
        column = self.linear(group, leaves)
        row = self.linear(*(tuple(chain.from_iterable(parts)) for parts in zip(*outer, strict=True))) if outer else None
        quarters = make("//", make("+", self.size(leaves), self.nodes.make(ir.Int, 3)), self.nodes.make(ir.Int, 4))
        before = self.nodes.make(ir.Int, 0) if row is None else make("*", row, quarters)
        return self.nodes.make(ir.Random, INT, tensor.seed, tensor.stream, before, column)

    def iota(self, tensor: tir.Iota, index: Index, guard: LoopNode | None) -> LoopNode:
        return self.nodes.make(ir.IndexValue, LONG, self.linear(*self.groups(tensor.dims, index)[tensor.along]))

    def num_elements(self, tensor: tir.NumElements, index: Index, guard: LoopNode | None) -> LoopNode:
        leaves = self.axes.leaves(tensor.over)
        return self.nodes.make(ir.SizeValue, FLOAT, tuple(self.axes.axis(leaf) for leaf in leaves))


_INLINE: dict[type[Tensor], Callable[[Inliner, Any, Index, LoopNode | None], LoopNode]] = {
    tir.Input: Inliner.input,
    tir.Pointwise: Inliner.pointwise,
    tir.Cast: Inliner.cast,
    tir.Reduction: Inliner.reduction,
    tir.CumulativeSum: Inliner.scan,
    tir.Reshape: Inliner.reshape,
    tir.Permute: Inliner.permute,
    tir.SliceOf: Inliner.slice,
    tir.Concat: Inliner.concat,
    tir.Gather: Inliner.gather,
    tir.RandomBits: Inliner.random_bits,
    tir.Iota: Inliner.iota,
    tir.NumElements: Inliner.num_elements,
}
