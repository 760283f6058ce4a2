"""Copies by which a program itself goes between NCHW and NHWC, next to a convolution that is called with NCHW.

    y = conv(x).permute(0, 2, 3, 1).contiguous()     # for what works along channels
    x = x + y.permute(0, 3, 1, 2).contiguous()       # back, for the next convolution

With channels_last tensors a convolution's result lies as the first wants it, and takes what the second makes a copy of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import BoolArray, Categories, IntArray

_TO_NHWC: Final = (0, 3, 1, 2)  # axes of what is copied, in the order in which they lie
_TO_NCHW: Final = (0, 2, 3, 1)
_AXES: Final = len(_TO_NHWC)
_TAKE_EITHER: Final = ("conv", "pointwise", "pool", "resample", "reduction", "copy")  # readers of either layout
_MOST_NODES: Final = 64  # that are followed from one copy
_Next = Callable[[int], list[int]]


def permuting(graph: NodeGraph, op_class: Categories, operation: Categories, converting: IntArray) -> dict[int, int]:
    """Return, by its node, the convolution that a copy serves. `converting`: nodes that convert layouts themselves."""
    owned = np.diff(graph.activity_begin) > 0
    either = owned & graph.any_of(op_class.among(*_TAKE_EITHER))
    wanted, pointwise = {*converting.tolist()}, owned & graph.all_of(op_class.among("pointwise"))
    copies = np.flatnonzero(owned & graph.all_of(operation.among("copy")))
    found = dict[int, int]()
    for order, after in ((_TO_NHWC, graph.producers), (_TO_NCHW, graph.readers)):
        for node in copies[_reordered(graph, copies, order)].tolist():
            reached = list(_reached(node, after, lambda each: bool(pointwise[each])))
            served = next((each for each in reached if each in wanted), None)
            if served is not None and (order == _TO_NHWC or all(either[each] for each in reached)):
                found[node] = served
    return found


def _reordered(graph: NodeGraph, copies: IntArray, order: tuple[int, ...]) -> BoolArray:
    """Return which copies give in order what lies otherwise: its axes, outermost first, in that order."""
    tensors = graph.tensors
    to, source = (tensors.of[place][copies] for place in ("in0", "in1"))
    shape = tensors.shape[source][:, -_AXES:]
    known = (tensors.rank[[to, source]] == _AXES).all(axis=0) & tensors.has_strides[[to, source]].all(axis=0)
    same = (shape == tensors.shape[to][:, -_AXES:]).all(axis=1) & (shape > 1)[:, 1:].all(axis=1)
    straight = tensors.strides[to][:, -_AXES:] == _strides(shape, tuple(range(_AXES)))
    turned = tensors.strides[source][:, -_AXES:] == _strides(shape, order)
    found: BoolArray = known & same & straight.all(axis=1) & turned.all(axis=1)
    return found


def _strides(shape: IntArray, order: tuple[int, ...]) -> IntArray:
    """Return the strides of tensors without gaps whose axes lie in this order.

    >>> _strides(np.array([[2, 5, 7, 3]]), (0, 3, 1, 2)).tolist()
    [[105, 7, 1, 35]]
    """
    found, step = np.empty_like(shape), np.ones(len(shape), np.int64)
    for axis in reversed(order):
        found[:, axis] = step
        step = step * shape[:, axis]
    return found


def _reached(node: int, after: _Next, passes: Callable[[int], bool]) -> Iterator[int]:
    """Yield the nodes at which paths from a node end, and those that they pass."""
    seen, left = {node}, [node]
    while left and len(seen) < _MOST_NODES:
        for each in after(left.pop(0)):
            if each not in seen:
                seen.add(each)
                left += [each] if passes(each) else []
                yield each
