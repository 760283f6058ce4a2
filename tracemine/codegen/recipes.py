"""What recipes are made of: their arguments, the reductions that they meet first, what takes long to compute."""

from __future__ import annotations

from functools import reduce

from tracemine.codegen.axes import Axes, Dim
from tracemine.codegen.tensor_ir import Joined, Picked, Point, Reduced, Scanned, Tensor

_DEAR = ("tl.cos(", "tl.sin(")  # some 50 instructions an element, with a slow path that keeps arrays in memory


def arguments(tensor: Tensor) -> tuple[Tensor, ...]:
    """The recipes that a recipe is made of."""
    if isinstance(tensor, Point | Joined):
        return tuple(a for a in tensor.args if isinstance(a, Tensor))
    if isinstance(tensor, Picked):
        return (tensor.table, *(p for p in tensor.places if isinstance(p, Tensor)))
    arg = getattr(tensor, "arg", None)
    return () if arg is None else (arg,)


def fronts(tensor: Tensor) -> tuple[Tensor, ...]:
    """The reductions and scans that a recipe meets first, itself included."""
    found: dict[Tensor, None] = {}
    seen: set[Tensor] = set()
    todo = [tensor]
    while todo:
        here = todo.pop()
        if here in seen:
            continue
        seen.add(here)
        if isinstance(here, Reduced | Scanned):
            found[here] = None
        else:
            todo.extend(reversed(arguments(here)))
    return tuple(found)


def dear(tensor: Tensor) -> tuple[Tensor, ...]:
    """The recipes that take long to compute among those that a recipe is made of, short of reductions."""
    found: list[Tensor] = []
    seen: set[Tensor] = set()
    todo = [tensor]
    while todo:
        here = todo.pop()
        if here in seen or isinstance(here, Reduced | Scanned):
            continue
        seen.add(here)
        if isinstance(here, Point) and any(name in here.template for name in _DEAR):
            found.append(here)
        todo.extend(arguments(here))
    return tuple(found)


def columns_of(axes: Axes, tensor: Tensor) -> Dim:
    """The axes that a reduction or a scan walks, in the order of its argument's dimensions."""
    assert isinstance(tensor, Reduced | Scanned)  # noqa: S101  (what `fronts` gives)
    over = tensor.over if isinstance(tensor, Reduced) else (tensor.along,)
    return reduce(lambda found, d: found + axes.leaves(tensor.arg.dims[d]), over, ())
