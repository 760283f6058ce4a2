"""Build fusion groups from dataflow, and say which could be the epilogue of a product or convolution before them."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from tracemine.columns import numbers
from tracemine.flow.period import NotAlike
from tracemine.flow.record import BoolArray, Flow, IntArray
from tracemine.fusion.candidates import ALLOWED, Pairs, pairs_of
from tracemine.fusion.copied_groups import copied_groups
from tracemine.fusion.liveness import lasting
from tracemine.fusion.merge import merge
from tracemine.fusion.nodes import FusionNodes, fusion_nodes
from tracemine.fusion.record import REFUSALS, Groups, Refusal, Refusals, of_activities
from tracemine.fusion.traffic import sized_nodes, traffic_of
from tracemine.timeline import Timeline

_PRODUCTS = ("gemm", "conv")


def groups(flow: Flow) -> Groups:
    """Return the fusion groups of a timeline: what one kernel could legally do, those that save most bytes made first.

    Without dataflow there are none. The same input gives the same groups; time grows about linearly with the nodes.

    >>> from tracemine.flow import flow
    >>> from tracemine.timeline import Meta, Timeline
    >>> empty = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    >>> len(groups(flow(empty)))
    0
    """
    if flow.shortened is not None and flow.period is not None:
        with suppress(NotAlike):
            return copied_groups(_all_groups(flow.shortened), flow, flow.period)
    return _all_groups(flow)


def _all_groups(flow: Flow) -> Groups:
    """Return the groups, each step's found anew."""
    timeline = flow.timeline  # with the tensors that the flow speaks of
    nodes, meanings, call = fusion_nodes(timeline, flow)
    pairs = pairs_of(timeline, flow, nodes, meanings, call)
    first, stay_apart = merge(timeline, flow, nodes, pairs)
    node_group, node, begin = _numbered(first)
    count, lasts, sized = len(begin) - 1, lasting(flow), sized_nodes(timeline, flow)
    return Groups(
        node=node,
        begin=begin,
        node_group=node_group,
        product_bytes=product_bytes(timeline, flow, nodes, node_group, count, lasts),
        refusals=_refusals(flow, nodes, pairs, first, stay_apart, sized),
        **traffic_of(timeline, flow, nodes, meanings, call, node_group, count, lasts, sized),
        **of_activities(flow, node_group, count),
    )


def _numbered(first: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Groups of two or more, numbered in order: of each node its group; the nodes group by group, and their begins."""
    size = np.bincount(first, minlength=len(first)) if len(first) else np.zeros(0, np.int64)
    heads = np.flatnonzero(size >= 2)
    number = np.full(len(first), -1, np.int64)
    number[heads] = np.arange(len(heads))
    node_group = number[first] if len(first) else number
    members = np.flatnonzero(node_group >= 0)
    node = members[np.argsort(node_group[members], kind="stable")]
    return node_group, node, np.searchsorted(node_group[node], np.arange(len(heads) + 1))


def _refusals(
    flow: Flow,
    nodes: FusionNodes,
    pairs: Pairs,
    first: IntArray,
    stay_apart: dict[tuple[int, int], int],
    sized: BoolArray,
) -> Refusals:
    """Of every two groups that share data and stay apart the largest pair, with the reason."""
    reason = pairs.refused.copy()
    a, b = (first[pairs.first], first[pairs.second]) if len(first) else (pairs.first, pairs.second)
    if len(a):
        of_groups = {_ordered(first[x], first[y]): code for (x, y), code in stay_apart.items()}
        open_pairs = np.flatnonzero((reason == ALLOWED) & (a != b))
        for at in open_pairs.tolist():
            reason[at] = of_groups.get(_ordered(a[at], b[at]), ALLOWED)
    chosen = np.flatnonzero((a != b) & (reason != ALLOWED))
    order = chosen[np.lexsort((-pairs.bytes[chosen], b[chosen], a[chosen]))]
    new = np.ones(len(order), np.bool_)
    new[1:] = (a[order][1:] != a[order][:-1]) | (b[order][1:] != b[order][:-1])
    kept = order[new]
    one, other = pairs.first[kept], pairs.second[kept]
    # Of two kernels of libraries the second is asked: it is what would have to take the first one in.
    library = np.where(nodes.library_code[other] >= 0, nodes.library_code[other], nodes.library_code[one])
    return Refusals(
        first=one,
        second=other,
        first_op_row=flow.nodes.op_row[one],
        second_op_row=flow.nodes.op_row[other],
        reason=reason[kept].astype(np.int8),
        library=nodes.library,
        library_code=np.where(reason[kept] == REFUSALS.index(Refusal.LIBRARY), library, -1),
        bytes=np.where(sized[one] & sized[other], pairs.bytes[kept], -1),
    )


def _ordered(a: int, b: int) -> tuple[int, int]:
    return (int(a), int(b)) if a < b else (int(b), int(a))


def product_bytes(
    timeline: Timeline, flow: Flow, nodes: FusionNodes, node_group: IntArray, count: int, lasts: BoolArray
) -> IntArray:
    """For each group the bytes of a product's result of which it is the epilogue; 0: of none.

    Nothing else reads the result, it is not wanted afterwards, and the group computes element by element on as many
    elements. Whether the product's own library can take the group in is another question.
    """
    result_bytes = np.zeros(count, np.int64)
    edges, writes = flow.edges, flow.writes
    if not count or not len(edges.write):
        return result_bytes
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
    np.maximum.at(result_bytes, of[fits], writes.bytes[rows[fits]])
    return result_bytes
