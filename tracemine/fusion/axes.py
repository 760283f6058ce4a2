"""Which rows an operator reduces where its axes were not recorded: known by shapes, or by the name of its kernel.

A reduction's output lacks the axes that were reduced. PyTorch runs its kernels for contiguous rows of a softmax only
where nothing lies behind the axis (`inner_size == 1` in aten/src/ATen/native/cuda/SoftMax.cu).
"""

from __future__ import annotations

from math import prod

import numpy as np

from tracemine.columns import lists, numbers, rows_that
from tracemine.flow.record import BoolArray, Flow, IntArray
from tracemine.fusion.iteration_space import Space
from tracemine.patterns import deferred
from tracemine.timeline import Timeline

_ALONG_THE_LAST = deferred(r"softmax_warp_(?:for|back)ward|cunn_SoftMax(?:For|Back)ward")
_MOST_AXES = 16

Shape = tuple[int, ...]


def rows_told(timeline: Timeline, flow: Flow, nodes: IntArray) -> list[Space | None]:
    """Return for each of some nodes the rows that it reduces; None where neither shapes nor its kernel tell."""
    if not len(nodes):
        return []
    last = _along_the_last(timeline, flow)[nodes].tolist()
    inputs = _first_shapes(timeline, flow.reads.node, flow.reads.tensor_row, nodes)
    outputs = _first_shapes(timeline, flow.writes.node, flow.writes.tensor_row, nodes)
    known: dict[tuple[Shape | None, Shape | None, bool], Space | None] = {}
    found = []
    for facts in zip(inputs, outputs, last, strict=True):
        if facts not in known:
            known[facts] = _told(*facts)
        found.append(known[facts])
    return found


def _told(source: Shape | None, result: Shape | None, along_the_last: bool) -> Space | None:
    if source is None or not prod(source):
        return None
    if along_the_last:
        return Space(prod(source) // source[-1], source[-1]) if source and source[-1] > 1 else None
    return None if result is None or result == source else told_by_shapes(source, result)


def told_by_shapes(source: Shape, result: Shape) -> Space | None:
    """The rows that a reduction from one shape to another walks; None where more than one set of axes fits, or none.

    >>> told_by_shapes((4, 8), (4, 1)), told_by_shapes((4, 8), (8,))
    (Space(rows=4, length=8, columns=False), Space(rows=8, length=4, columns=True))
    >>> told_by_shapes((8, 8), (8,)) is told_by_shapes((4, 8), (3,)) is None
    True
    """
    if len(source) > _MOST_AXES:
        return None
    if len(source) == len(result):
        kept = [a == b for a, b in zip(source, result, strict=True)]
        ways = [kept] if all(same or b == 1 for same, b in zip(kept, result, strict=True)) else []
    else:
        ways = _embeddings(source, result)
    if len(ways) != 1:
        return None
    reduced = [axis for axis, stays in enumerate(ways[0]) if not stays and source[axis] > 1]
    inner = max((axis for axis, size in enumerate(source) if size > 1), default=0)
    length = prod(source[axis] for axis in reduced)
    return Space(prod(source) // length, length, columns=bool(reduced) and inner not in reduced)


def _embeddings(source: Shape, result: Shape) -> list[list[bool]]:
    """At most two ways to keep some axes of one shape and get the other; axes of one element do not count."""
    axes = [axis for axis, size in enumerate(source) if size > 1]
    wanted = [size for size in result if size > 1]
    ways: list[list[bool]] = []
    waiting: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    while waiting and len(ways) < 2:
        at, kept = waiting.pop()
        if len(kept) == len(wanted):
            ways.append([axis in kept or size == 1 for axis, size in enumerate(source)])
            continue
        if len(axes) - at < len(wanted) - len(kept):
            continue
        waiting.append((at + 1, kept))
        if source[axes[at]] == wanted[len(kept)]:
            waiting.append((at + 1, (*kept, axes[at])))
    return ways


def _along_the_last(timeline: Timeline, flow: Flow) -> BoolArray:
    """Return for each node whether it ran a kernel that only walks the last axis."""
    told = rows_that(timeline.activities.column("name"), lambda name: _ALONG_THE_LAST.search(name[:512]) is not None)
    found = np.zeros(len(flow.nodes), np.bool_)
    found[flow.activity_node[np.flatnonzero(told & (flow.activity_node >= 0))]] = True
    return found


def _first_shapes(timeline: Timeline, node: IntArray, tensor_row: IntArray, wanted: IntArray) -> list[Shape | None]:
    """Return the shape of each node's first argument or output, where that is a tensor whose shape is known."""
    position = numbers(timeline.tensors.column("position"), 0)[tensor_row]
    rows = np.flatnonzero(position == 0)
    row_of = np.full(int(max(node.max(initial=-1), wanted.max(initial=-1))) + 1, -1, np.int64)
    row_of[node[rows][::-1]] = tensor_row[rows][::-1]
    sizes, ends, there = lists(timeline.tensors.column("shape"))
    return [
        tuple(sizes[ends[row] : ends[row + 1]].tolist()) if row >= 0 and there[row] else None
        for row in row_of[wanted].tolist()
    ]
