"""Print nodes in Triton's language: names of ours, numbers of ours, and expressions of the table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tracemine.codegen import loop_ir as ir
from tracemine.codegen.loop_ir import BOOL, FLOAT, INT, LONG, Axis, LoopNode
from tracemine.codegen.tensor_ir import CODES, NARROW, TYPE_OF

TRITON_TYPE = {name: f"tl.{name}" for name in TYPE_OF}
TRITON_TYPE |= {"float8_e4m3fn": "tl.float8e4nv", "float8_e5m2": "tl.float8e5", "bool": "tl.int1"}
_SHORT = (*NARROW, *CODES)


def number(value: float | int | bool) -> str:
    """Return a number as source.

    >>> number(1e-6), number(float("-inf")), number(3)
    ('1e-06', "float('-inf')", '3')
    """
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)


class Names:
    """How a text calls what a program has: buffers, sizes and scalars by their own names."""

    def axis(self, axis: Axis) -> str:
        """Return the name of an axis's size."""
        return axis.name

    def other(self, name: str) -> str:
        """Return the name of a buffer or a scalar."""
        return name


class NeutralNames(Names):
    """Names by first use, so that texts that differ in names alone are equal."""

    def __init__(self) -> None:
        self._axes: dict[Axis, str] = {}
        self._others: dict[str, str] = {}

    def axis(self, axis: Axis) -> str:
        """Return the name of an axis's size."""
        return self._axes.setdefault(axis, f"size{len(self._axes)}")

    def other(self, name: str) -> str:
        """Return the name of a buffer or a scalar."""
        return self._others.setdefault(name, f"value{len(self._others)}")


class SizeNames(Names):
    """Names in a launcher, where axes in `looped` may be looped over as one; notes which sizes were used."""

    def __init__(self) -> None:
        self.looped: frozenset[Axis] = frozenset()
        self.used: set[str] = set()

    def axis(self, axis: Axis) -> str:
        """Return the name of an axis's size, or of how much of it is looped over."""
        if axis in self.looped:
            return f"{axis.name}_collapsed"
        self.used.add(axis.name)
        return axis.name


def sizes(axes: Sequence[Axis], names: Names = Names()) -> str:  # noqa: B008 (it holds nothing)
    """Return a product of sizes: pinned ones as one number, the others by name. No axes: 1.

    >>> sizes([Axis(0, 4, True), Axis(1, 8, False), Axis(2, 2, True)])
    '8 * n1'
    """
    fixed = math.prod(a.size for a in axes if a.pinned)
    free = [names.axis(a) for a in axes if not a.pinned]
    return " * ".join([str(fixed)] * (fixed != 1 or not free) + free)


def typed(text: str, from_type: str, to: str) -> str:
    """Return a value in another type.

    >>> typed("x", "float32", "bfloat16"), typed("x", "int64", "bool")
    ('x.to(tl.bfloat16)', '(x != 0)')

    Codes of 8 bits are cut from integers of 32, which takes an instruction less than from those of 16.

    >>> typed("x", "float32", "int8")
    'x.to(tl.int32).to(tl.int8)'
    >>> typed("x", "int32", "float16")
    'x.to(tl.float32).to(tl.float16)'
    """
    if from_type == to:
        return text
    if (from_type, to) == (FLOAT, "int8"):
        return f"{text}.to(tl.int32).to(tl.int8)"
    if from_type in (INT, LONG, BOOL) and to in _SHORT:  # as eager does; Triton knows no other way to all of them
        return f"{text}.to(tl.float32).to({TRITON_TYPE[to]})"
    return f"({text} != 0)" if to == BOOL else f"{text}.to({TRITON_TYPE[to]})"


def tensor(text: str, type_: str) -> str:
    """Return a number as a 0-d tensor: some functions take no other, and Triton 3.6 has no `tl.to_tensor`.

    >>> tensor("0.5", "float32")
    'tl.cast(0.5, tl.float32)'
    """
    return f"tl.cast({text}, {TRITON_TYPE[type_]})"


def index(node: LoopNode, known: dict[LoopNode, str], names: Names, inner: bool = False) -> str:
    """Print an index expression. known: loop indices, and values that were computed."""
    if node in known:
        return known[node]
    if isinstance(node, ir.Int):
        return str(node.value)
    if isinstance(node, ir.Size):
        return f"({sizes(node.axes, names)})"
    if isinstance(node, ir.IndexArithmetic):
        text = f"{index(node.left, known, names, True)} {node.symbol} {index(node.right, known, names, True)}"
        return f"({text})" if inner else text
    if isinstance(node, ir.IndirectIndex):
        value = known[node.value]
        if node.wrap is None:
            return value
        return f"tl.where({value} < 0, {value} + {index(node.wrap, known, names, True)}, {value})"
    raise AssertionError(f"{type(node).__name__} is no index")


def constant(node: ir.Constant) -> str:
    """Return a constant in the type that it is computed in."""
    if node.type == FLOAT:
        return number(float(node.value))
    return number(int(node.value)) if node.type in (INT, LONG) else str(bool(node.value))
