"""Which forward operator each node of autograd belongs to, by sequence numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracemine.columns import MISSING, numbers, string_ids
from tracemine.flow.inferred.rules import rules
from tracemine.flow.order import Order
from tracemine.flow.record import BoolArray, IntArray
from tracemine.timeline import Timeline

_NODE = "autograd::engine::evaluate_function: "


class GradientNode(Struct, frozen=True):
    """One node of autograd. Positions in the Order; −1: not recorded."""

    kind: str  # its name without "Backward" and number
    accumulates: bool  # into a leaf
    record: int  # the operator inside that was given the gradients
    forward: int  # root around the forward operator
    forward_place: int  # the forward operator and its root, counted through their thread
    root_place: int
    keeps: bool  # something of the forward operator
    keeps_results: bool
    roots: tuple[int, ...]  # the operators inside the record that are run on their own


class Gradients(Struct, frozen=True):
    """The nodes of autograd."""

    positions: IntArray
    around: IntArray  # for each operator the position of the node around it, −1: none
    saves: dict[int, list[int]]  # roots with forward operators, and the nodes of these in the order in which they run
    _nodes: dict[int, GradientNode]

    def node(self, position: int) -> GradientNode:
        """Return the node at a position."""
        return self._nodes[position]

    @staticmethod
    def of(timeline: Timeline, order: Order, roots: IntArray, place: IntArray) -> Gradients:
        """`roots`: positions of the operators that are run on their own; `place`: counted through their threads."""
        is_node, ids, texts = _nodes(timeline, order)
        count = len(order.row)
        around = order.inherited(np.where(is_node, np.arange(count), -1))
        positions = np.flatnonzero(is_node & (around == np.arange(count)))
        if not len(positions):
            return Gradients(positions, around, {}, {})
        sequence = numbers(timeline.ops.column("sequence_number"))[order.row]
        tid = numbers(timeline.ops.column("tid"))[order.row]
        forwards = np.flatnonzero((sequence != MISSING) & (around < 0))
        root_of = np.full(count, -1)
        root_of[roots] = roots
        root_of = order.inherited(root_of)
        last = _last_of(sequence[forwards], forwards, tid)
        record = _records(order, is_node)
        inside = defaultdict(list)
        for root, node in zip(roots.tolist(), around[roots].tolist(), strict=True):
            if node >= 0 and order.parent[root] != node:
                inside[node].append(root)
        nodes, table = {}, rules()
        for position in positions.tolist():
            name = texts[ids[order.row[position]]].removeprefix(_NODE)
            kind = name.rstrip("0123456789").removesuffix("Backward")
            forward = last.get(int(sequence[position]), -1) if sequence[position] != MISSING else -1
            root = int(root_of[forward]) if forward >= 0 else -1
            nodes[position] = GradientNode(
                kind=kind,
                accumulates="AccumulateGrad" in name,
                record=int(record[position]),
                forward=root,
                forward_place=int(place[forward]) if root >= 0 else -1,
                root_place=int(place[root]) if root >= 0 else -1,
                keeps=kind not in table.keeps_nothing,
                keeps_results=kind.startswith(table.keeps_results),
                roots=tuple(inside[position]),
            )
        saves = defaultdict(list)
        for position in sorted(nodes, key=lambda position: nodes[position].forward_place):
            if nodes[position].forward >= 0:
                saves[nodes[position].forward].append(position)
        return Gradients(positions, around, dict(saves), nodes)


def _last_of(sequence: IntArray, forwards: IntArray, tid: IntArray) -> dict[int, int]:
    """Return by sequence number the last forward operator that has it; −1 for one that two threads have."""
    last: dict[int, int] = {}
    for position, number in zip(forwards.tolist(), sequence.tolist(), strict=True):
        known = last.get(number)
        last[number] = position if known is None or (known >= 0 and tid[known] == tid[position]) else -1
    return last


def is_record(timeline: Timeline, order: Order) -> BoolArray:
    """Return for each operator whether it says which gradients a node of autograd was given."""
    is_node = _nodes(timeline, order)[0]
    records = _records(order, is_node)[is_node]
    found = np.zeros(len(order.row), np.bool_)
    found[records[records >= 0]] = True
    return found


def _nodes(timeline: Timeline, order: Order) -> tuple[BoolArray, IntArray, Sequence[str]]:
    """Return for each operator whether it is a node, and its name: a number, and the texts."""
    ids, texts = string_ids(timeline.ops.column("name"))
    is_node: BoolArray = np.array([*(text.startswith(_NODE) for text in texts), False], np.bool_)[ids[order.row]]
    return is_node, ids, texts


def _records(order: Order, is_node: BoolArray) -> IntArray:
    """Return the first operator inside each node."""
    found = np.full(len(is_node), -1)
    inside = np.flatnonzero((order.parent >= 0) & is_node[order.parent])
    found[order.parent[inside[::-1]]] = inside[::-1]
    return found
