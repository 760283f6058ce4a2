"""Concatenations of two halves of one tensor in reverse order, as in a rotary embedding: one loop in place of two.

Element by element such a join asks which half it is in, and loads of each. Where both members are the same expression
of the same tensor, half a row apart, the other half's element is half a row on, and behind the row's end at its
beginning: each element is loaded once, whichever half it is in, and computed on once. A half may have its sign changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tracemine.codegen import loop_ir as ir
from tracemine.codegen.loop_ir import BOOL, LONG, LoopNode, Nodes


@dataclass(frozen=True, slots=True)
class RotatedHalf:
    """A join at `place` of two members of `half` elements each; `guard`: what must hold for either to be wanted.

    guards: what must hold for each of them. origins: the call that each node is of.
    """

    nodes: Nodes
    place: LoopNode
    half: int
    guard: LoopNode | None
    guards: tuple[LoopNode | None, LoopNode | None]
    origins: dict[LoopNode, int]

    def value(self, first: LoopNode, second: LoopNode) -> LoopNode | None:
        """Return what both members are at once; None where they differ in more than that."""
        if first is second:
            return first
        found = self._both(first, second)
        if found is not None and first in self.origins:
            self.origins.setdefault(found, self.origins[first])
        return found

    def _both(self, first: LoopNode, second: LoopNode) -> LoopNode | None:
        if isinstance(first, ir.Load) and isinstance(second, ir.Load):
            return self._load(first, second)
        if isinstance(first, ir.Rounded) and isinstance(second, ir.Rounded):
            return self._rounded(first, second)
        if isinstance(first, ir.Op) and isinstance(second, ir.Op) and first.operation == second.operation:
            args = _known(self.value(a, b) for a, b in zip(first.args, second.args, strict=True))
            return None if args is None else self.nodes.op(first.type, first.name, *args, brief=first.brief)
        if isinstance(first, ir.Op) and first.name == "neg":
            return self._signed(first, self.value(first.args[0], second), before=True)
        if isinstance(second, ir.Op) and second.name == "neg":
            return self._signed(second, self.value(first, second.args[0]), before=False)
        return None

    def _rounded(self, first: ir.Rounded, second: ir.Rounded) -> LoopNode | None:
        arg = self.value(first.arg, second.arg)
        same = (first.type, first.dtype) == (second.type, second.dtype)
        return self.nodes.make(ir.Rounded, first.type, arg, first.dtype) if same and arg is not None else None

    def _signed(self, signed: ir.Op, arg: LoopNode | None, *, before: bool) -> LoopNode | None:
        """Return it with the sign flipped in the half before the index or behind it."""
        if arg is None:
            return None
        left = self.nodes.make(ir.IndexValue, LONG, self.place)
        inside = self.nodes.op(BOOL, "lt", left, self.nodes.make(ir.Constant, LONG, self.half))
        negative = self.nodes.op(signed.type, "neg", arg)
        both = (negative, arg) if before else (arg, negative)
        return self.nodes.op(signed.type, "where", inside, *both)

    def _load(self, first: ir.Load, second: ir.Load) -> LoopNode | None:
        if (first.buffer, first.type) != (second.buffer, second.type):
            return None
        index = _known(self._index(a, b) for a, b in zip(first.index, second.index, strict=True))
        guards = self._guard(first.guard, second.guard)
        if index is None or guards is None:
            return None
        return self.nodes.make(ir.Load, first.type, first.buffer, index, *guards)

    def _guard(self, first: LoopNode | None, second: LoopNode | None) -> tuple[LoopNode | None] | None:
        """Return the guard for a load of either member; None where their guards differ in more than that."""
        if first is second:
            return (first,)
        if first is self.guards[0] and second is self.guards[1]:
            return (self.guard,)
        if not (isinstance(first, ir.Op) and isinstance(second, ir.Op)):
            return None
        if {first.name, second.name} != {"logical_and"} or first.args[1] is not second.args[1]:
            return None
        outer = self._guard(first.args[0], second.args[0])  # a join within asks for more, behind what this one does
        if outer is None or outer[0] is None:
            return None if outer is None else (first.args[1],)
        return (self.nodes.op(first.type, "logical_and", outer[0], first.args[1]),)

    def _index(self, first: LoopNode, second: LoopNode) -> LoopNode | None:
        make, half = self.nodes.arithmetic, self.nodes.make(ir.Int, self.half)
        if first is second:
            return first
        if first is make("+", self.place, half) and second is make("-", self.place, half):
            return make("%", first, self.nodes.make(ir.Int, 2 * self.half))
        if not (isinstance(first, ir.IndexArithmetic) and isinstance(second, ir.IndexArithmetic)):
            return None
        sides = _known((self._index(first.left, second.left), self._index(first.right, second.right)))
        return None if sides is None or first.symbol != second.symbol else make(first.symbol, *sides)


def _known(nodes: Iterable[LoopNode | None]) -> tuple[LoopNode, ...] | None:
    """Return all of them, or none if one is not known."""
    found = tuple(nodes)
    known = tuple(n for n in found if n is not None)
    return known if len(known) == len(found) else None
