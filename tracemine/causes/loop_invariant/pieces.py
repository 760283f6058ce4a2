"""Pieces of work that need not be done: all that leads to what something else reads, and what is left to be fused."""

from __future__ import annotations

import numpy as np

from tracemine.flow.record import Flow
from tracemine.flow.value_numbers import MayRepeat, again, untouched
from tracemine.fusion.record import Groups
from tracemine.rows.ancestors import nearest, outermost
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.table import BoolArray, FloatArray, IntArray

_LEAST_AGAIN = 4  # times: a loop's turns, or layers


def done_again(flow: Flow, known: MayRepeat, silent: IntArray, of_engine: BoolArray) -> BoolArray:
    """Return nodes that compute what an earlier one of their step has, and all before them, where something reads it
    that does not: the earlier result would do. `silent`: before each node how much has run whose writes are unknown.
    What an operator that the program calls makes for itself alone cannot be handed to it.
    """
    first, edges, step = again(flow, known, of_engine, _LEAST_AGAIN), flow.edges, flow.nodes.step_row
    one = first >= 0
    keeps = untouched(flow, one, silent)
    keeps &= keeps[first] & (first != np.arange(len(first)))
    used = keeps[edges.producer] & ~one[edges.consumer] & ~of_engine[edges.consumer]
    used &= step[edges.producer] == step[edges.consumer]
    called = _called(flow)
    used &= called[edges.producer] != called[edges.consumer]
    wanted = np.zeros(len(one), np.bool_)
    wanted[edges.producer[used]] = True
    return before_others(flow, wanted, keeps)


def _called(flow: Flow) -> IntArray:
    """Return the operator of each node that the program itself calls."""
    ops = flow.timeline.ops
    parent = rows_of(ops["parent_row"])
    return outermost(nearest(parent, categories(ops["kind"]).among("op")), parent)[flow.nodes.op_row]


def before_others(flow: Flow, wanted: BoolArray, keeps: BoolArray) -> BoolArray:
    """Return `wanted` nodes with all producers that could be kept, and all that write into one of these."""
    found, edges = np.zeros(len(wanted), np.bool_), flow.edges
    fresh = wanted
    while fresh.any():
        found |= fresh
        above = _alongside(flow, fresh)
        above[edges.producer[fresh[edges.consumer]]] = True
        fresh = above & keeps & ~found
    return found


def _alongside(flow: Flow, nodes: BoolArray) -> BoolArray:
    """Return all nodes that write into what one of `nodes` writes into."""
    writes, found = flow.writes, np.zeros(len(nodes), np.bool_)
    buffers = np.zeros(int(writes.buffer.max(initial=-1)) + 1, np.bool_)
    buffers[writes.buffer[nodes[writes.node]]] = True
    found[writes.node[buffers[writes.buffer]]] = True
    return found


def without_fused(flow: Flow, kept: BoolArray, spent: FloatArray, groups: Groups | None) -> BoolArray:
    """Drop what one kernel could do together with what has to run in every step, where that takes longer: fusing saves
    more there. What is computed from what goes, or is part of one tensor with it, goes too.
    """
    if groups is None or not len(groups):
        return kept
    group, kept = groups.node_group, kept.copy()
    while True:
        own, others = (
            np.bincount(group[chosen], spent[chosen], len(groups))
            for chosen in ((group >= 0) & kept, (group >= 0) & ~kept)
        )
        gone = kept & np.append(others > own, False)[group]
        if not gone.any():
            return kept
        while gone.any():
            kept &= ~gone
            below = _alongside(flow, gone)
            below[flow.edges.consumer[gone[flow.edges.producer]]] = True
            gone = below & kept


def joined(flow: Flow, kept: BoolArray) -> IntArray:
    """Return the first node of each connected piece, by reads and by writes into one tensor. −1: not kept."""
    edges, writes = flow.edges, flow.writes
    here = kept[edges.producer] & kept[edges.consumer]
    into = np.argsort(writes.buffer, kind="stable")
    into = into[kept[writes.node[into]]]
    same = writes.buffer[into][1:] == writes.buffer[into][:-1]
    one = np.concatenate((edges.producer[here], writes.node[into][:-1][same]))
    other = np.concatenate((edges.consumer[here], writes.node[into][1:][same]))
    found = np.where(kept, np.arange(len(kept)), -1)
    while True:
        before = found.copy()
        np.minimum.at(found, other, found[one])
        np.minimum.at(found, one, found[other])
        found = np.where(kept, found[found], -1)
        if (found == before).all():
            return found
