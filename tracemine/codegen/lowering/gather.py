"""Lower what reads at computed indices: lookups, and views whose axes do not nest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from tracemine.codegen.axes import Dim, Dims
from tracemine.codegen.graph import Unsupported
from tracemine.codegen.loop_ir import LONG
from tracemine.codegen.lowering.context import Lowering
from tracemine.codegen.tensor_ir import Gather, Iota, Tensor


def gather(
    low: Lowering,
    weight: Tensor,
    indices: tuple[int | Tensor, ...],
    asked: tuple[int, ...],
    dims: Dims,
    wraps: bool = False,
) -> Tensor:
    """Return elements of a tensor at places that others hold, or that are the result's own."""
    low.axes.keep_apart(dims)
    return Gather(dims=dims, dtype=weight.dtype, origin=low.at, table=weight, indices=indices, asked=asked, wraps=wraps)


def nests(sizes: Sequence[int], shape: Sequence[int]) -> bool:
    """Return whether axes can be split and merged into others without any that overlap.

    >>> nests([6, 4], [2, 12]), nests([6, 4], [8, 3]), nests([8, 7], [7, 8])
    (True, False, False)
    """
    left, right = [n for n in sizes if n != 1], [n for n in shape if n != 1]
    while left and right:
        a, b = left.pop(), right.pop()
        big, small = max(a, b), min(a, b)
        if big != small:
            if small == 0 or big % small:
                return False
            (left if a == big else right).append(big // small)
    return not left and not right


def computed_view(low: Lowering, source: Tensor, shape: Sequence[int]) -> Tensor:
    """Return a view whose axes do not nest, as windows of an image that become a grid: which elements, is computed.

    Raises Unsupported where there are none.
    """
    if 0 in shape:
        raise Unsupported("a view regroups axes that do not nest, of no elements")
    wanted = [n for n in shape if n != 1]
    kept = [dim for dim, n in zip(source.dims, low.shape(source), strict=True) if n != 1]
    table = low.with_dims(source, tuple(kept))
    dims: list[Dim] = []
    indices: list[int | Tensor] = []
    for here, there in _segments(low.shape(table), wanted):
        if len(here) == len(there) == 1:
            indices.append(len(dims))
            dims.append(kept[here[0]])
            continue
        for d in here:
            low.axes.pin(kept[d])
        fresh = low.new_dims([wanted[d] for d in there], pinned=True)
        flat = _flat(low, fresh, len(wanted) - len(dims))
        dims += fresh
        inner = prod(low.shape(table)[d] for d in here)
        for d in here:
            size = low.shape(table)[d]
            inner //= size
            divided, wrapped = inner > 1, d != here[0]
            operation = {(True, True): "floordiv_mod", (True, False): "floordiv", (False, True): "mod"}
            numbers = [inner] * divided + [size] * wrapped
            indices.append(low.pointwise(operation.get((divided, wrapped), "identity"), [flat, *numbers], LONG))
    found = gather(low, table, tuple(indices), tuple(range(len(dims))), tuple(dims))
    rest = iter(dims)
    whole = tuple(() if n == 1 else next(rest) for n in shape)
    return found if len(whole) == len(dims) else low.with_dims(found, whole)


def _segments(sizes: Sequence[int], shape: Sequence[int]) -> Iterator[tuple[range, range]]:
    """Yield the shortest stretches of either that have as many elements."""
    begin = first = 0
    while begin < len(sizes) or first < len(shape):
        end, last = begin + 1, first + 1
        while (ours := prod(sizes[begin:end])) != (theirs := prod(shape[first:last])):
            end, last = (end + 1, last) if ours < theirs else (end, last + 1)
        yield range(begin, end), range(first, last)
        begin, first = end, last


def _flat(low: Lowering, axes: Dims, behind: int) -> Tensor:
    """Return the index along several axes as one. behind: how many dimensions a result has from the first of them."""
    steps = [Iota(dims=(axis,), dtype=LONG, origin=low.at, along=0) for axis in axes]
    upright = [low.with_dims(step, (*step.dims, *((),) * (behind - 1 - k))) for k, step in enumerate(steps)]
    sizes = [low.axes.size(low.axes.leaves(axis)) for axis in axes]
    steps_of = [prod(sizes[k + 1 :]) for k in range(len(axes))]
    terms = ["mul" if step > 1 else "identity" for step in steps_of]
    args = [arg for at, step in zip(upright, steps_of, strict=True) for arg in (at, step)[: 1 + (step > 1)]]
    return low.pointwise(" + ".join(terms), args, LONG)
