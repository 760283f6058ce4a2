"""The loop-level language between a graph and its kernels: index arithmetic, values of one element, stores.

A kernel loops over rows × columns. Rows are spread over programs; columns are what it reduces, or the innermost axis
where it reduces nothing. Every node says what one element is, at the row and the column that the program stands at.
Nodes are made by `Nodes.make`, which gives the same object for the same fields: equal work is done once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import Any, TypeVar

import msgspec

FLOAT, INT, LONG, BOOL = "float32", "int32", "int64", "bool"  # what is computed in, whatever is stored
_FOLDED: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
_UNCHANGED = {("+", 0), ("-", 0), ("*", 1), ("//", 1)}
_SIGN = {"+": 1, "-": -1}


class Axis(msgspec.Struct, frozen=True):
    """One axis that a kernel loops over. `pinned`: its size is part of the kernel; else the launcher reads it."""

    number: int
    size: int
    pinned: bool

    @property
    def name(self) -> str:
        """How the source calls its size.

        >>> Axis(2, 64, pinned=False).name
        'n2'
        """
        return f"n{self.number}"


def elements(axes: Iterable[Axis]) -> int:
    """Return the product of the sizes of axes."""
    return prod(axis.size for axis in axes)


class LoopNode(msgspec.Struct, frozen=True, eq=False):
    """Base of index expressions and of values."""


class LoopIndex(LoopNode, frozen=True):
    """Where the program stands on an axis."""

    axis: Axis


class Int(LoopNode, frozen=True):
    """An integer."""

    value: int


class Size(LoopNode, frozen=True):
    """The product of the sizes of axes."""

    axes: tuple[Axis, ...]


class IndexArithmetic(LoopNode, frozen=True):
    """`+ - * // %` of two index expressions."""

    symbol: str
    left: LoopNode
    right: LoopNode


class IndirectIndex(LoopNode, frozen=True):
    """An index that was itself computed: an element of an index tensor. Negative ones count from `wrap`."""

    value: LoopNode
    wrap: LoopNode | None


class Value(LoopNode, frozen=True):
    """Base of what is computed; `type` is what it is computed in."""

    type: str


class Load(Value, frozen=True):
    """An element of a buffer, at an index for each of its dimensions; 0 where `guard` does not hold."""

    buffer: str
    index: tuple[LoopNode, ...]
    guard: LoopNode | None


class KernelScalar(Value, frozen=True):
    """A scalar argument of the kernel."""

    name: str


class Constant(Value, frozen=True):
    """A number that is part of the operator's meaning, never of the trace."""

    value: float | int | bool


class SizeValue(Value, frozen=True):
    """A product of sizes, as a number to compute with."""

    axes: tuple[Axis, ...]


class IndexValue(Value, frozen=True):
    """An index expression as a value."""

    index: LoopNode


class Op(Value, frozen=True):
    """An expression of the operator table, by name, over values. brief: as is good enough for 16 bits."""

    name: str
    args: tuple[LoopNode, ...]
    brief: bool

    @property
    def operation(self) -> tuple[str, bool]:
        """Return what it does to its arguments."""
        return self.name, self.brief


class Rounded(Value, frozen=True):
    """Rounded to a dtype, and computed on in `type`."""

    arg: LoopNode
    dtype: str


class Reduce(Value, frozen=True):
    """All columns of a row become one. `kind` is a row of generate's table of reductions."""

    kind: str
    arg: LoopNode


class Contraction(Value, frozen=True):
    """A sum of products along axes that are none of the kernel's columns: rows of `left`, columns of `right`.

    dtype: what both are multiplied as.
    """

    left: LoopNode
    right: LoopNode
    dtype: str
    axes: tuple[Axis, ...]


class RowSum(Value, frozen=True):
    """Sum over the rows that a program takes one after another; `axes` are the kernel's rows."""

    arg: LoopNode
    axes: tuple[Axis, ...]


class RunningSum(Value, frozen=True):
    """Running sum along the columns."""

    arg: LoopNode


class Random(Value, frozen=True):
    """An integer below 2²⁴, the same for the same seed, stream, and place: four side by side are drawn at once.

    before: how many fours come before those of the row; column: where on the row.
    """

    seed: str
    stream: int
    before: LoopNode
    column: LoopNode


class Store(msgspec.Struct, frozen=True, eq=False):
    """One element written: to which buffer, where, what."""

    buffer: str
    index: tuple[LoopNode, ...]
    value: LoopNode


class KernelBuffer(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that kernels read or write. `dims`: for each dimension the axes whose sizes multiply to its size."""

    name: str
    dtype: str
    dims: tuple[tuple[Axis, ...], ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    role: str  # input, output, scratch


class LoopKernel(msgspec.Struct, frozen=True, kw_only=True):
    """One loop over rows × columns. `level`: lower ones come first; those of one need nothing of each other."""

    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    level: int
    stores: tuple[Store, ...]
    split: Axis | None = None  # columns, or rows in turn, are looped over in so many parts, each by one program
    column_tiles: int = 1  # of the axis that the columns are one tile of: a program loops over them all
    batch: tuple[Axis, ...] = ()  # rows of which a program has one place: both operands of its products change along
    contracted: tuple[Axis, ...] = ()  # what its products sum over
    after: frozenset[str] = frozenset()  # inputs of which it reads what an earlier kernel wrote in place

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many rows, columns and batches there are, and how many numbers its products sum."""
        return tuple(map(elements, (self.rows, self.columns, self.batch, self.contracted)))


class LoopProgram(msgspec.Struct, frozen=True, kw_only=True):
    """What takes a graph's place: kernels in order, and the buffers between them. `origins`: the call a node is of."""

    name: str
    buffers: dict[str, KernelBuffer]
    kernels: tuple[LoopKernel, ...]
    outputs: tuple[str, ...]  # buffers that the launcher gives back, for each live value
    scalars: tuple[tuple[str, int | float], ...]
    unknown: tuple[str, ...] = ()  # of those: the ones whose value was not recorded
    masks: int = 0  # of the outputs, the last: what dropout kept
    ulp: float = 0.0  # by how much its expressions may be off in all
    draws: bool = False  # random numbers
    origins: dict[LoopNode, str]


N = TypeVar("N", bound=LoopNode)


class Nodes:
    """Makes nodes; equal fields give the same node."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], LoopNode] = {}

    def make(self, kind: type[N], *fields: Any) -> N:
        """Return a node of a kind.

        >>> nodes = Nodes()
        >>> nodes.make(Int, 3) is nodes.make(Int, 3)
        True
        """
        key = (kind, *((type(f), f) for f in fields))
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = kind(*fields)
        return found  # type: ignore[return-value]

    def op(self, type_: str, name: str, *args: LoopNode, brief: bool = False) -> Op:
        """Return an operation of the table."""
        return self.make(Op, type_, name, args, brief)

    def arithmetic(self, symbol: str, left: LoopNode, right: LoopNode) -> LoopNode:
        """Return an index expression, the trivial ones folded.

        >>> nodes = Nodes()
        >>> nodes.arithmetic("+", nodes.make(Int, 2), nodes.make(Int, 3)).value
        5
        """
        by = right.value if isinstance(right, Int) else None
        if isinstance(left, Int) and by is not None and (by or symbol not in ("//", "%")):
            return self.make(Int, _FOLDED[symbol](left.value, by))
        if (symbol, by) in _UNCHANGED:
            return left
        if isinstance(left, Int) and left.value == 0:
            return right if symbol == "+" else left
        if by is not None and symbol in _SIGN and isinstance(left, IndexArithmetic) and left.symbol in _SIGN:
            more = left.right
            if isinstance(more, Int):  # (x + 8) - 8
                total = _SIGN[left.symbol] * more.value + _SIGN[symbol] * by
                return self.arithmetic("+" if total >= 0 else "-", left.left, self.make(Int, abs(total)))
        return self.make(IndexArithmetic, symbol, left, right)


def mapped(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """Return a field of a node with what it has of a kind changed, alone or in a tuple; the same where nothing is."""
    if isinstance(value, kind):
        return change(value)
    after = tuple(change(v) if isinstance(v, kind) else v for v in value) if isinstance(value, tuple) else ()
    return after if any(a is not b for a, b in zip(after, value if after else (), strict=True)) else value


def children(node: LoopNode) -> tuple[LoopNode, ...]:
    """Return the nodes that a node is made of, in order."""
    found: list[LoopNode] = []
    for name in node.__struct_fields__:
        field = getattr(node, name)
        if isinstance(field, LoopNode):
            found.append(field)
        elif isinstance(field, tuple):
            found.extend(f for f in field if isinstance(f, LoopNode))
    return tuple(found)


def nodes_of(kernel: LoopKernel) -> list[LoopNode]:
    """Return every node of a kernel, once."""
    found: dict[LoopNode, None] = {}
    todo = [n for s in kernel.stores for n in (s.value, *s.index)]
    while todo:
        node = todo.pop()
        if node not in found:
            found[node] = None
            todo.extend(children(node))
    return list(found)


def every(kernel: LoopKernel, kind: type[N]) -> list[N]:
    """Return every node of a kind that a kernel has, once."""
    return [n for n in nodes_of(kernel) if isinstance(n, kind)]


def loads(kernel: LoopKernel) -> list[Load]:
    """Return every load of a kernel, once."""
    return every(kernel, Load)


def accesses(kernel: LoopKernel) -> list[tuple[str, tuple[LoopNode, ...]]]:
    """Return what a kernel loads, then what it stores: the buffer, and the index in it."""
    loaded, stored = ([(each.buffer, each.index) for each in some] for some in (loads(kernel), kernel.stores))
    return loaded + stored


def below(node: LoopNode) -> Iterator[LoopNode]:
    """Yield the nodes that a node is made of, and those that they are made of."""
    for child in children(node):
        yield child
        yield from below(child)


def buffers_of(node: LoopNode) -> set[str]:
    """Return the buffers that a node is made of."""
    return {n.buffer for n in (node, *below(node)) if isinstance(n, Load)}


def reads(node: LoopNode) -> bool:
    """Return whether a node is made of what is loaded."""
    return isinstance(node, Load) or any(map(reads, children(node)))


def bounds(place: LoopNode) -> tuple[int, int] | None:
    """Return the least and the largest value of an index that is a position on an axis of known size, plus a constant.

    >>> nodes = Nodes()
    >>> bounds(nodes.arithmetic("+", nodes.make(LoopIndex, Axis(0, 8, pinned=True)), nodes.make(Int, 3)))
    (3, 10)
    """
    if isinstance(place, Int):
        return place.value, place.value
    if isinstance(place, LoopIndex):
        return (0, place.axis.size - 1) if place.axis.pinned and place.axis.size else None
    if isinstance(place, IndexArithmetic) and place.symbol in "+-" and isinstance(place.right, Int):
        found = bounds(place.left)
        by = place.right.value if place.symbol == "+" else -place.right.value
        return None if found is None else (found[0] + by, found[1] + by)
    return None


class FreeAxes:
    """The axes that a node changes along, each node asked once.

    A reduction ends those that it loops over: `columns`.
    """

    def __init__(self, columns: Iterable[int]) -> None:
        self._columns = frozenset(columns)
        self._known: dict[LoopNode, frozenset[int]] = {}

    def __call__(self, node: LoopNode) -> frozenset[int]:
        axes = self._known.get(node)
        if axes is None:
            if isinstance(node, LoopIndex):
                axes = frozenset((node.axis.number,))
            else:
                axes = frozenset().union(*(self(child) for child in children(node)))
            if isinstance(node, Reduce):
                axes -= self._columns
            if isinstance(node, Contraction | RowSum):
                axes -= {axis.number for axis in node.axes}
            self._known[node] = axes
        return axes
