"""Concatenations of two halves of one tensor in reverse order, as in a rotary embedding: one loop in place of two.

Element by element such a join asks which half it is in, and loads of each. Where both members are the same expression
of the same tensor, half a row apart, the other half's element is half a row on, and behind the row's end at its
beginning: each element is loaded once, whichever half it is in, and computed on once. A half may have its sign changed.
"""

from __future__ import annotations

import msgspec

from tracemine.codegen import loop_ir as ir
from tracemine.codegen.loop_ir import BOOL, LONG, LoopNode, Nodes


class _DifferError(Exception):
    """Two members differ in more than which half they are."""


class RotatedHalf(msgspec.Struct, frozen=True):
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
        try:
            return self._one(first, second)
        except _DifferError:
            return None

    def _one(self, first: LoopNode, second: LoopNode) -> LoopNode:
        if first is second:
            return first
        found = self._both(first, second)
        if first in self.origins:
            self.origins.setdefault(found, self.origins[first])
        return found

    def _both(self, first: LoopNode, second: LoopNode) -> LoopNode:
        if isinstance(first, ir.Load) and isinstance(second, ir.Load) and first.buffer == second.buffer:
            index = tuple(self._index(a, b) for a, b in zip(first.index, second.index, strict=True))
            return self.nodes.make(ir.Load, first.type, first.buffer, index, self._guard(first.guard, second.guard))
        if isinstance(first, ir.Rounded) and isinstance(second, ir.Rounded) and first.dtype == second.dtype:
            return self.nodes.make(ir.Rounded, first.type, self._one(first.arg, second.arg), first.dtype)
        if isinstance(first, ir.Op) and isinstance(second, ir.Op) and first.operation == second.operation:
            args = (self._one(a, b) for a, b in zip(first.args, second.args, strict=True))
            return self.nodes.op(first.type, first.name, *args, brief=first.brief)
        if isinstance(first, ir.Op) and first.name == "neg":
            return self._signed(first, self._one(first.args[0], second), before=True)
        if isinstance(second, ir.Op) and second.name == "neg":
            return self._signed(second, self._one(first, second.args[0]), before=False)
        raise _DifferError

    def _signed(self, signed: ir.Op, arg: LoopNode, *, before: bool) -> LoopNode:
        """Return it with the sign flipped in the half before the index or behind it."""
        left = self.nodes.make(ir.IndexValue, LONG, self.place)
        inside = self.nodes.op(BOOL, "lt", left, self.nodes.make(ir.Constant, LONG, self.half))
        negative = self.nodes.op(signed.type, "neg", arg)
        both = (negative, arg) if before else (arg, negative)
        return self.nodes.op(signed.type, "where", inside, *both)

    def _guard(self, first: LoopNode | None, second: LoopNode | None) -> LoopNode | None:
        """Return the guard for a load of either member."""
        if first is second:
            return first
        if first is self.guards[0] and second is self.guards[1]:
            return self.guard
        if not (isinstance(first, ir.Op) and isinstance(second, ir.Op)) or {first.name, second.name} != {"logical_and"}:
            raise _DifferError
        if first.args[1] is not second.args[1]:
            raise _DifferError
        outer = self._guard(first.args[0], second.args[0])  # a join within asks for more, behind what this one does
        return first.args[1] if outer is None else self.nodes.op(first.type, "logical_and", outer, first.args[1])

    def _index(self, first: LoopNode, second: LoopNode) -> LoopNode:
        make, half = self.nodes.arithmetic, self.nodes.make(ir.Int, self.half)
        if first is second:
            return first
        if first is make("+", self.place, half) and second is make("-", self.place, half):
            return make("%", first, self.nodes.make(ir.Int, 2 * self.half))
        if not isinstance(first, ir.IndexArithmetic) or not isinstance(second, ir.IndexArithmetic):
            raise _DifferError
        if first.symbol != second.symbol:
            raise _DifferError
        return make(first.symbol, self._index(first.left, second.left), self._index(first.right, second.right))
