"""Weights that are dequantised in every step, where it was not recorded which memory an operator reads.

A packed tensor that nothing of the recording made, that each step turns into floating point as often, and that products
take where their weight stands, is a weight.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tracemine.calls import Call, Calls, calls_of
from tracemine.causes.weight_cast import is_weight, known_sources
from tracemine.columns import sorted_unique
from tracemine.rows.arrow import rows_of
from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import IntArray, Rows, number
from tracemine.timeline import Timeline

_FLOATS: Final = frozenset({"float8_e4m3fn", "float8_e5m2"})
_PACKED: Final = _FLOATS | {"int8", "uint8"}
_SCALES: Final = frozenset({"aten::mul", "aten::sub", "aten::add", "aten::div", "aten::mul_", "aten::sub_"})
_MOST_SCALED = 2  # operators between what is unpacked and the product


def unpacked(timeline: Timeline, activities: Rows) -> IntArray:
    """Return which weight's dequantisation each activity is part of, counted from 0; −1: of none."""
    piece = np.full(activities.count, -1)
    graph = activities.graph
    if graph is None or not len(graph.activity):
        return piece
    first, calls = graph.first_activity, calls_of(timeline)
    op_row, segment = rows_of(timeline.activities["op_row"])[first], number(activities, "segment", -1)[first]
    unpacks = calls.spread(op_row, _unpacks, False, np.bool_) & known_sources(activities, graph, first)
    found = [nodes for cast in np.flatnonzero(unpacks).tolist() if (nodes := _weight(graph, calls, op_row, cast))]
    steps = sorted_unique(segment[segment > 0])
    a_step = np.array([sum(segment[nodes[0]] == step for nodes in found) for step in steps], np.int64)
    if len(steps) < 2 or not a_step.all() or (a_step != a_step[0]).any():
        return piece
    for place, nodes in enumerate(found):
        for node in nodes:
            piece[graph.activity[graph.activity_begin[node] : graph.activity_begin[node + 1]]] = place
    return piece


def _unpacks(call: Call) -> bool:
    """Return whether a call converts packed numbers to floating ones.

    >>> [_unpacks(Call("aten::copy_", None, types)) for types in (("c10::Half", "signed char"), ("c10::Half", "float"))]
    [True, False]
    """
    return call.name == "aten::copy_" and call.dtype(1) in _PACKED and "float" in (call.dtype(0) or "")


def _weight(graph: NodeGraph, calls: Calls, op_row: IntArray, cast: int) -> list[int]:
    """Return a conversion and what scales it, where products alone take the result, as their weight; else nothing."""
    nodes, source, scaled = [cast], calls.at(int(op_row[cast])), False
    for _ in range(_MOST_SCALED + 1):
        readers = graph.consumer[graph.producer == nodes[-1]].tolist()
        users = [calls.at(int(op_row[reader])) for reader in readers]
        if readers and all(is_weight(user, source) for user in users):
            narrow = None if source is None else source.dtype(1)
            return nodes if scaled or narrow in _FLOATS else []
        if len(readers) != 1 or users[0] is None or users[0].name not in _SCALES:
            return []
        scaled |= bool(users[0].shape(1))  # by a tensor: a picture is divided by a number
        nodes.append(readers[0])
    return []
