"""Fusion groups: what one kernel could do in place of several, from dataflow.

groups(flow)  → Groups: their nodes, the kernel each would be, bytes before and after, and what was refused
FusedKernel   what one kernel reads, computes and writes
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from tracemine.columns import numbers
from tracemine.flow.period import NotAlike, Numbered, Period, spread_rows
from tracemine.flow.record import BoolArray, Flow, IntArray
from tracemine.fusion.candidates import ALLOWED, Pairs, pairs_of
from tracemine.fusion.kernel import FusedKernel, Unfused
from tracemine.fusion.liveness import lasting
from tracemine.fusion.merge import merge
from tracemine.fusion.nodes import FusionNodes, fusion_nodes
from tracemine.fusion.record import REFUSALS, Groups, Refusal, Refusals, of_activities
from tracemine.fusion.roles import online_softmax, steps_of
from tracemine.fusion.traffic import sized_nodes, traffic_of
from tracemine.timeline import Timeline

_OF_GROUPS = (
    *("kernel", "evidence", "bytes_before", "bytes_after", "more_reads", "more_writes", "intermediate_bytes", "flops"),
    "product_bytes",
)


def copied_groups(short: Groups, flow: Flow, period: Period) -> Groups:
    """Return the groups of all steps from those of the steps that are kept. flow: of all steps. Raises NotAlike."""
    nodes = period.nodes
    first = short.node[short.begin[:-1]]
    groups = period.by_node(first)
    sizes = np.diff(short.begin)
    members = period.by_node(np.repeat(first, sizes))
    node_group = nodes.counted(short.node_group, groups)
    begin = np.append(0, np.cumsum(groups.repeated(sizes)))
    gone = Numbered.of(groups.step(short.gone_group), nodes)
    return Groups(
        node=members.counted(short.node, nodes),
        begin=begin,
        node_group=node_group,
        kernels=short.kernels,
        node_reads=nodes.repeated(short.node_reads),
        node_writes=nodes.repeated(short.node_writes),
        refusals=_refused(short.refusals, node_group, flow, period),
        gone_group=gone.counted(short.gone_group, groups),
        gone_op_row=spread_rows(period.op_rows, short.gone_op_row, gone),
        gone_bytes=gone.repeated(short.gone_bytes),
        **of_activities(flow, node_group, len(begin) - 1),
        **{name: groups.repeated(getattr(short, name)) for name in _OF_GROUPS},
    )


def _refused(short: Refusals, node_group: IntArray, flow: Flow, period: Period) -> Refusals:
    """Return the refused pairs of all steps, in the order of the first nodes of their groups."""
    in_order = np.argsort(period.nodes.step(short.second), kind="stable")
    pairs = period.by_node(short.second[in_order])
    first, second = (pairs.counted(column[in_order], period.nodes) for column in (short.first, short.second))
    plain = {name: pairs.repeated(getattr(short, name)[in_order]) for name in ("reason", "library_code", "bytes")}
    of_group = _firsts(node_group)
    in_order = np.lexsort((of_group[second], of_group[first]))
    first, second = first[in_order], second[in_order]
    return Refusals(
        first=first,
        second=second,
        first_op_row=flow.nodes.op_row[first],
        second_op_row=flow.nodes.op_row[second],
        library=short.library,
        **{name: column[in_order] for name, column in plain.items()},
    )


def _firsts(node_group: IntArray) -> IntArray:
    """Return the first node of each node's group; itself where it stays alone."""
    node = np.arange(len(node_group))
    first = np.full(int(node_group.max(initial=-1)) + 2, len(node))
    np.minimum.at(first, node_group, node)
    return np.where(node_group >= 0, first[node_group], node)


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


__all__ = ["REFUSALS", "FusedKernel", "Groups", "Refusal", "Unfused", "groups", "online_softmax", "steps_of"]
