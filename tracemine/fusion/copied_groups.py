"""Copy the fusion groups of one step to the steps equal to it: no group spans steps."""

from __future__ import annotations

import numpy as np

from tracemine.flow.period import Numbered, Period, spread_rows
from tracemine.flow.record import Flow, IntArray
from tracemine.fusion.record import Groups, Refusals, of_activities

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
        refusals=_refusals(short.refusals, node_group, flow, period),
        gone_group=gone.counted(short.gone_group, groups),
        gone_op_row=spread_rows(period.op_rows, short.gone_op_row, gone),
        gone_bytes=gone.repeated(short.gone_bytes),
        **of_activities(flow, node_group, len(begin) - 1),
        **{name: groups.repeated(getattr(short, name)) for name in _OF_GROUPS},
    )


def _refusals(short: Refusals, node_group: IntArray, flow: Flow, period: Period) -> Refusals:
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
