"""Which groups could ride on the matrix product or convolution in front of them, as its epilogue."""

from __future__ import annotations

import numpy as np

from tracemine.columns import numbers
from tracemine.flow.record import BoolArray, Flow, IntArray
from tracemine.fusion.nodes import FusionNodes
from tracemine.timeline import Timeline

_PRODUCTS = ("gemm", "conv")


def product_bytes(
    timeline: Timeline, flow: Flow, nodes: FusionNodes, node_group: IntArray, count: int, lasts: BoolArray
) -> IntArray:
    """For each group the bytes of a product's result of which it is the epilogue; 0: of none.

    Nothing else reads the result, it is not wanted afterwards, and the group computes element by element on as many
    elements. Whether the product's own library can take the group in is another question.
    """
    found = np.zeros(count, np.int64)
    edges, writes = flow.edges, flow.writes
    if not count or not len(edges.write):
        return found
    product = np.isin(nodes.library_code, [nodes.library.index(key) for key in _PRODUCTS if key in nodes.library])
    group = node_group[edges.consumer]
    least, most = np.full(len(writes), count, np.int64), np.full(len(writes), -2, np.int64)
    np.minimum.at(least, edges.write, group)
    np.maximum.at(most, edges.write, group)
    alone = (least == most) & (most >= 0) & product[writes.node] & writes.fresh & ~lasts
    full, reduces = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    members = np.flatnonzero(node_group >= 0)
    np.maximum.at(full, node_group[members], nodes.size[members])
    reduces[node_group[members[nodes.rows[members] > 0]]] = True
    rows = np.flatnonzero(alone)
    of = most[rows]
    fits = (numbers(timeline.tensors.column("numel"), 0)[writes.tensor_row[rows]] == full[of]) & ~reduces[of]
    np.maximum.at(found, of[fits], writes.bytes[rows[fits]])
    return found
