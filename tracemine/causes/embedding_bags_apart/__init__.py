"""Embedding bags over many tables, a call each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tracemine.calls import Call, calls_of
from tracemine.calls.call import Extents
from tracemine.causes.cause import Cause
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.lists import LONGEST, ListedCall
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Curves, Estimate, Traffic
from tracemine.perfmodel.ranges import outwards
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

_BAG_RATE = 1.1  # of moving the bytes of many bags in one kernel, at best
_BAGS_APART = 0.8  # how far, by the logarithm, from that to the bags apart: on an H100 0.76 and 0.92 of two programs


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate bags of many tables looked up at once."""
    facts, members = context.facts["activities"], matrix[0]
    calls = context.lists.calls(facts.op_row[members], [""] * len(members))
    if len(calls) < len(members):
        return Abstained("bytes_unknown")
    moved = [bag_bytes(call, context.lists.shapes(call.row)) for call in calls if call.name != "arange"]
    if any(each is None for each in moved):
        return Abstained("bytes_unknown")
    reads, writes = (sum(each[at] for each in moved if each is not None) for at in (0, 1))
    measured_ns = float(facts.dur_ns[matrix].mean(axis=0).sum())
    return on_gpu(context, matrix, one_table(reads, writes, measured_ns, context.curves))


def bag_bytes(call: ListedCall, shapes: Sequence[Extents]) -> tuple[int, int] | None:
    """Return bytes that a call of `_embedding_bag` reads and writes: a row for each index, and a row for each bag.

    >>> bag_bytes(ListedCall(0, "_embedding_bag", ((640,), (32,), (8,)), 4), ((10, 64), (32,), (8,)))
    (8512, 2048)
    """
    table = shapes[0] if shapes else ()
    if call.sizes is None or len(call.sizes) < 3 or len(table) != 2:
        return None
    width = table[1]
    if not isinstance(width, int) or not 0 <= width < LONGEST:
        return None
    indices, bags, row = call.sizes[1][0], call.sizes[2][0], (call.item_bytes or 4) * width
    return indices * (row + 8) + 8 * bags, bags * row


def one_table(reads: int, writes: int, measured_ns: float, curves: Curves | None) -> Estimate | Abstained:
    """Estimate bags of many tables looked up by one kernel: at best as fast as the bytes, at worst as long as now."""
    if curves is None:
        return Abstained("device_unknown")
    low = min(_BAG_RATE * curves.memory_ns(reads, writes, 0.0), measured_ns)
    return Estimate(
        after_ns=outwards(low, low ** (1 - _BAGS_APART) * measured_ns**_BAGS_APART, measured_ns),
        traffic_bytes=Traffic(before=reads + writes, after=reads + writes),
        assumptions=(
            "one kernel for all bags moves as many bytes: at the device's rate (low), as long as now (high), middle: "
            "nearer to now, as measured",
        ),
    )


CAUSE = Cause(rule="embedding_bags_apart", columns=COLUMNS, estimate=estimate, fix_at=f"{__name__}.fix:FIX")
