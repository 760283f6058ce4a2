"""Which fusion groups go across the grain: elements side by side in one tensor of a call and not in another."""

from __future__ import annotations

import numpy as np

from tracemine.columns import lists, numbers
from tracemine.flow.record import BoolArray, Flow, IntArray
from tracemine.fusion.nodes import FusionNodes
from tracemine.timeline import Timeline


def across_the_grain(
    timeline: Timeline, flow: Flow, nodes: FusionNodes, node_group: IntArray, full: IntArray
) -> BoolArray:
    """For each group whether one of its members does; `full`: elements of each group's full-size tensors.

    Axes are compared within one call alone, whose tensors have the same ones: what a view in between permuted is no
    change of order. A tensor that is read in part, or repeated along an axis, has no grain of its own.
    """
    inner, item = innermost(timeline)
    node, row, nbytes = (
        np.concatenate((getattr(flow.reads, name), getattr(flow.writes, name)))
        for name in ("node", "tensor_row", "bytes")
    )
    size = nodes.size[node]
    own = np.flatnonzero((node_group[node] >= 0) & (inner[row] >= 0) & (nbytes >= size * np.maximum(item[row], 1)))
    own = own[size[own] >= full[node_group[node[own]]]]
    least = np.full(len(node_group), np.iinfo(np.int64).max)
    most = np.full(len(node_group), -1, np.int64)
    np.minimum.at(least, node[own], inner[row[own]])
    np.maximum.at(most, node[own], inner[row[own]])
    found = np.zeros(len(full), np.bool_)
    found[node_group[most > least]] = True
    return found


def innermost(timeline: Timeline) -> tuple[IntArray, IntArray]:
    """For each tensor the axis whose elements lie side by side, counted from the last one, −1 where strides were not
    recorded or there is none; and bytes an element.
    """
    table = timeline.tensors
    shape, ends, _ = lists(table.column("shape"))
    strides, stride_ends, there = lists(table.column("strides"))
    inner = np.full(table.num_rows, -1, np.int64)
    lengths = np.diff(ends)
    sound = there & (lengths == np.diff(stride_ends)) & (lengths > 0)
    flat = np.repeat(sound, lengths)
    tensor = np.repeat(np.arange(table.num_rows), np.where(sound, lengths, 0))
    from_last = (np.repeat(ends[1:], lengths) - 1 - np.arange(len(shape)))[flat]
    size, step = shape[flat], strides[np.repeat(sound, np.diff(stride_ends))]
    real = (size > 1) & (step > 0)
    tensor, from_last, step = tensor[real], from_last[real], step[real]
    order = np.lexsort((from_last, step, tensor))
    first = order[np.concatenate(([True], np.diff(tensor[order]) > 0))] if len(order) else order
    inner[tensor[first]] = from_last[first]
    return inner, numbers(table.column("itemsize_bytes"), 1)
