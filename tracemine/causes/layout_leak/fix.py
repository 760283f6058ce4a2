"""The same calls on inputs that lie contiguous."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.codegen.graph import Graph
from tracemine.verify.fixes.by_rule import Maker
from tracemine.verify.fixes.record import Around, Fixed, NoFixedForm


def contiguous(graph: Graph, around: Around) -> Fixed:
    """Return the same calls on tensors that lie in the order of their axes: what makes them writes them so."""
    if not any(not _in_order(i.spec.shape, i.spec.strides or ()) for i in graph.inputs):
        raise NoFixedForm("all that it reads is contiguous already")
    return Fixed(ways=("contiguous",), assumptions=("what makes its inputs can write them contiguous as fast",))


def _in_order(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=False):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


FIX = Maker(contiguous, whole=True)
