"""Inline matrix products: what a kernel multiplies, what is taken out of the sum, what is left of a largest number."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tracemine.codegen import loop_ir as ir
from tracemine.codegen.axes import Axes, Dim
from tracemine.codegen.indexing import Index, IndexMath
from tracemine.codegen.loop_ir import FLOAT, LoopNode, Nodes
from tracemine.codegen.tensor_ir import Cast, Reduction, Tensor, columns_of, expensive_parts

# Expressions that never fall as these arguments rise; and those of them that are NaN below 0, or may be.
_RISES = {"relu": (0,), "add": (0, 1), "sub": (0,), "log1p": (0,), "sqrt": (0,), "log": (0,)}
_OF_POSITIVE = frozenset({"log1p", "sqrt", "log"})


class ProductMath(IndexMath):
    """What products of one kernel are made of. products: sums that are made as such, and what they multiply."""

    def __init__(
        self, axes: Axes, nodes: Nodes, columns: Dim, products: Mapping[Tensor, tuple[Tensor, Tensor]]
    ) -> None:
        super().__init__(axes, nodes)
        self.columns, self.products = columns, products
        self.reduces: set[Reduction] = set()  # what the kernel reduces itself
        self.free_axes = ir.FreeAxes(columns)
        self._elements = 0  # that the kernel loops over for what it stores
        self._part: Dim = ()  # the axis of parts, where it is what a part gives

    def value(self, tensor: Tensor, index: Index, guard: LoopNode | None) -> LoopNode:
        """Return one element. `guard`: what must hold for it to be wanted; else it may be anything."""
        raise NotImplementedError

    def demand(self, tensor: Tensor, index: Index, guard: LoopNode | None) -> LoopNode:
        """Return a load of what an earlier kernel has to store."""
        raise NotImplementedError

    def converted(self, node: LoopNode, type_: str) -> LoopNode:
        """Return the value in another type of computing."""
        assert isinstance(node, ir.Value)  # noqa: S101  (expressions give values)
        if isinstance(node, ir.Constant) and node.value in (0, 1):  # the same number in every type
            return self.nodes.make(ir.Constant, type_, node.value)
        return node if node.type == type_ else self.nodes.make(ir.Rounded, type_, node, type_)

    def elements_of(self, tensor: Tensor) -> int:
        return self.axes.size(self.axes.flat(tensor.dims))

    def met_once(self, tensor: Tensor) -> bool:
        """Return whether it is a product of which the kernel meets each element once, so that none is made again."""
        if tensor not in self.products:
            return False
        apart = {*self._part} - {*self.axes.flat(tensor.dims)}
        return self.elements_of(tensor) * self.axes.size(apart) >= self._elements

    def contraction(self, tensor: Reduction, index: Index) -> LoopNode | None:
        """Return an element of a product, what does not change along its sum taken out; None where it is loaded."""
        each = tensor.arg
        while isinstance(each, Cast):
            each = each.arg
        inner = self.inner(tensor, index)
        sides: list[tuple[LoopNode, bool]] = []
        for operand in self.products[tensor]:
            there = self.broadcast(each.dims, inner, operand.dims)
            dear = any(self.elements_of(t) == self.elements_of(operand) for t in expensive_parts(operand))
            node = self.demand(operand, there, None) if dear else self.value(operand, there, None)
            sides.append((self.converted(node, FLOAT), bool(self.free_axes(node) & {*self.columns})))
        (left, left_across), (right, right_across) = sides
        if left_across == right_across or any(map(_loops, (left, right))):
            return None
        axes = tuple(self.axes.axis(leaf) for leaf in columns_of(self.axes, tensor))
        (left, outer), (right, beside) = (self._factored(node, {*axes}) for node in (left, right))
        pair = (right, left) if left_across else (left, right)
        found: LoopNode = self.nodes.make(ir.Contraction, FLOAT, *pair, self.products[tensor][0].dtype, axes)
        self.reduces.add(tensor)
        for factor in outer + beside:
            found = self.nodes.op(FLOAT, "mul", found, factor)
        return found

    def _factored(self, node: LoopNode, axes: Collection[ir.Axis]) -> tuple[LoopNode, list[LoopNode]]:
        """Return a factor of a sum without what does not change along axes, and that: scales of codes."""
        numbers, taken = {axis.number for axis in axes}, list[LoopNode]()
        while isinstance(node, ir.Op) and node.name == "mul":
            still = [arg for arg in node.args if not self.free_axes(arg) & numbers]
            if len(still) != 1:
                break
            taken += still
            node = next(arg for arg in node.args if arg is not still[0])
        return node, taken

    def inner(self, tensor: Reduction, index: Index) -> Index:
        """Return the index in what a reduction reduces: its loop's own along what it loops over."""
        groups = self.groups(tensor.dims, index)
        kept = {d: group for (group, _), d in zip(groups, tensor.kept, strict=True) if d is not None}
        inner: list[LoopNode] = []
        for d, dim in enumerate(tensor.arg.dims):
            leaves = self.axes.leaves(dim)
            here = tuple(self.nodes.make(ir.LoopIndex, self.axes.axis(leaf)) for leaf in leaves)
            inner.extend(here if d in tensor.over else kept.get(d, ()))
        return tuple(inner)

    def risen(self, node: LoopNode, columns: Collection[int]) -> LoopNode:
        """Return the largest of a row, with what never falls as it rises computed of that one alone.

        Equal numbers stay equal, and NaN is the largest of either. Not where another argument changes along the row:
        then the largest may be of another number.
        """
        if isinstance(node, ir.Op) and node.name in _RISES:
            moving = [at for at, arg in enumerate(node.args) if self.free_axes(arg) & {*columns}]
            inner = node.args[moving[0]] if len(moving) == 1 and moving[0] in _RISES[node.name] else None
            positive = isinstance(inner, ir.Op) and inner.name == "relu"
            if inner is not None and (positive or node.name not in _OF_POSITIVE):
                top = self.risen(inner, columns)
                args = tuple(top if at == moving[0] else arg for at, arg in enumerate(node.args))
                return self.nodes.op(node.type, node.name, *args, brief=node.brief)
        return self.nodes.make(ir.Reduce, FLOAT, "max", node)


def _loops(node: LoopNode) -> bool:
    """Return whether a value is itself made in a loop."""
    return isinstance(node, ir.Contraction | ir.Reduce | ir.RunningSum | ir.Random) or any(
        map(_loops, ir.children(node))
    )
