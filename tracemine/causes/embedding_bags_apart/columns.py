"""Embedding bags of one kind."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracemine.calls import Call, calls_of
from tracemine.rows.arrow import categories, named_at, rows_of
from tracemine.rows.table import Column, ColumnDoc, Columns, IntArray, Numbers, Rows, Sources, number
from tracemine.timeline import Timeline

_BAGS: Final = ("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
_MODE, _WEIGHTED = 4, 6  # arguments of these: sum, mean or max; weights of each sample


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    bags = _bags(sources.timeline, activities)
    return {"bags": Numbers(np.maximum(bags, 0), bags >= 0)}


def _bags(timeline: Timeline, activities: Rows) -> IntArray:
    """Return a number for like bags, of each bag's kernel and the offsets computed before it; −1: none.

    Of one kind are bags of one width, type and mode, all of them weighted or none.
    """
    op_row = rows_of(timeline.activities["op_row"])
    names, calls = categories(timeline.ops["name"]), calls_of(timeline)
    rows = np.flatnonzero(named_at(names, op_row, *_BAGS))
    found = np.full(len(op_row), -1, np.int64)
    if not len(rows):
        return found
    own, of = calls.distinct(op_row[rows])
    kinds = [bag_of(call) for call in own]
    code = {kind: at for at, kind in enumerate(dict.fromkeys(kinds))}
    found[rows] = np.array([*(-1 if kind is None else code[kind] for kind in kinds), -1], np.int64)[of]
    before = rows[rows > 0]
    offsets = named_at(names, op_row[before - 1], "aten::arange")
    for name in ("device", "stream", "segment"):
        place = number(activities, name, -1)
        offsets &= place[before] == place[before - 1]
    found[before[offsets] - 1] = found[before[offsets]]
    return found


def bag_of(call: Call) -> tuple[object, ...] | None:
    """Return a call's width, type, mode and whether samples have weights; None without a width.

    >>> shapes, values = ((1000, 128), (640,), (64,)), ("", "", "", "False", "1", "False", "")
    >>> bag_of(Call("aten::_embedding_bag", shapes, ("float", "long int", "long int"), None, values))
    (128, 'float32', '1', False)
    """
    table, kind = call.shape(0), call.dtype(0)
    if table is None or len(table) != 2 or kind is None:
        return None
    return table[1], kind, call.value(_MODE), bool(call.shape(_WEIGHTED))


COLUMNS = Columns(
    docs=(
        ColumnDoc("bags", "numbers", "which kind of embedding bags it is, where it looks one up, or computes the offsets right before: equal for bags of one width, type and mode, all of them weighted or none", "no such kernel, or its inputs were not recorded"),
    ),
    derive=_columns,
)  # fmt: skip
