"""A loop in Python whose iterations one call could do.

kinds.py     what a loop goes over, by what its body calls and what its iterations have to do with each other
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from tracemine.causes.cause import Cause
from tracemine.causes.python_loop.kinds import KINDS, Body, Over, over
from tracemine.causes.small_products_apart import fills_device, of_unknown_bytes
from tracemine.columns import codes, sorted_unique
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.gap_estimates import idle_before_ns
from tracemine.findings.labels import text_at
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.ops.kernel_names import unit_of
from tracemine.perfmodel import KERNEL_NS, Abstained, Estimate, Range, Traffic
from tracemine.perfmodel.library_rates import ARITHMETIC
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.ancestors import engine_of, taken
from tracemine.rows.arrow import blocks_of, categories, coded, rows_of
from tracemine.rows.library import recorded_call
from tracemine.rows.loops import checkpointed
from tracemine.rows.table import (
    BoolArray,
    Categories,
    Column,
    ColumnDoc,
    Columns,
    IntArray,
    Rows,
    Sources,
    category,
    flags,
    number,
    numbers_of,
)


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return what the loop goes over in which most of the time is."""
    rows = np.concatenate([one.matrix.reshape(-1) for one in classes])
    spent = context.facts[rule.rows].dur_ns[rows]
    if rule.rows == "gaps":
        rows = number(context.rows["gaps"], "next_row")[rows]
    over = category(context.rows["activities"], "loop_over")
    by_kind = np.bincount(over.codes[rows] + 1, weights=spent, minlength=len(over.values) + 1)
    most = int(by_kind.argmax()) - 1
    return {"loop_over": over.values[most] if most >= 0 and 2 * by_kind[most + 1] > by_kind.sum() else None}


FACTS = AdviceFacts(
    docs={"loop_over": FactDoc("what the loop goes over that most of it lies in", text=True, values=KINDS)}, find=_facts
)

# What other causes say of such loops.
_CLAIMED: Final = ("turns_of", "sweep", "bags")


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    loop, kinds = number(activities, "loop", -1), np.full(activities.count, -1, np.int64)
    inside = np.flatnonzero(loop >= 0)
    if len(inside):
        inside = inside[np.argsort(loop[inside], kind="stable")]
        op_row = rows_of(sources.timeline.activities["op_row"])
        left_out = _left_out(activities) | checkpointed(sources.timeline)[op_row]
        assigns, moves = _assigns(sources, activities), _within_device(sources, activities)
        of_engine = taken(engine_of(sources.timeline), op_row) >= 0
        for rows in np.split(inside, np.flatnonzero(np.diff(loop[inside])) + 1):
            if not left_out[rows].any() and not of_engine[rows].all():
                found = over(_body(activities, rows[~of_engine[rows]], assigns, moves))
                if found is None:
                    rows, found = _ahead(activities, rows, of_engine)
                kinds[rows] = -1 if found is None else KINDS.index(found)
    return {"loop_over": coded(KINDS, kinds)}


def _ahead(activities: Rows, rows: IntArray, of_engine: BoolArray) -> tuple[IntArray, Over | None]:
    """Return what of a loop could be done for all iterations before it, where that is most of it, and its kind."""
    differs = category(activities, "loop_ahead")
    part = rows[differs.codes[rows] >= 0]
    forward = part[~of_engine[part]]
    if not len(forward) or 2 * len(part) <= len(rows):
        return rows, None
    none = np.zeros(activities.count, np.bool_)
    body = replace(_body(activities, forward, none, none), differs=differs.values[differs.codes[forward[0]]])
    return part, over(body, ahead=True)


def _left_out(activities: Rows) -> BoolArray:
    """Return which activities another cause has a loop of, or no loop in Python launched one by one."""
    found: BoolArray = np.zeros(activities.count, np.bool_)
    for name in ("compiled", "generated", "graph", "handwritten"):
        found |= flags(activities, name)
    found |= category(activities, "collective").codes >= 0
    found |= category(activities, "update_style").among("fused", "compiled", "lists", "loop", "own")
    for name in _CLAIMED:
        valid = numbers_of(activities, name).valid
        found |= True if valid is None else valid
    copies: BoolArray = category(activities, "sweep_kind").among("copy")  # no finding of that cause
    return found & ~copies


def _assigns(sources: Sources, activities: Rows) -> BoolArray:
    """Return which activities an assignment that the program itself makes launched."""
    ops = sources.timeline.ops
    parent, is_op = rows_of(ops["parent_row"]), categories(ops["kind"]).among("op")
    assigned = categories(ops["name"]).among("aten::copy_", "aten::fill_")
    return np.append(assigned & ~np.append(is_op, False)[parent], False)[rows_of(sources.timeline.activities["op_row"])]


def _within_device(sources: Sources, activities: Rows) -> BoolArray:
    """Return which activities move nothing between host and device; none where ranks communicate, whose buckets are
    filled by copies.
    """
    if (category(activities, "collective").codes >= 0).any():
        return np.zeros(activities.count, np.bool_)
    return ~categories(sources.timeline.activities["copy_kind"]).among("HtoD", "DtoH")


def _joined(activities: Rows, rows: IntArray) -> tuple[bool, bool]:
    """Return whether something reads what most iterations wrote: as one tensor, and as several that it puts together.
    Else each may have a buffer of its own, as the inputs of a compiled graph have.
    """
    graph = activities.graph
    if graph is None:
        return False, False
    wrote = np.zeros(len(graph.known) + 1, np.bool_)
    wrote[graph.activity_node[rows]] = True
    wrote[-1] = False
    count = np.bincount(graph.consumer[wrote[graph.producer] & ~wrote[graph.consumer]])
    reader = int(count.argmax()) if len(count) else 0
    span = slice(int(graph.read_begin[reader]), int(graph.read_begin[reader + 1]))
    several, most = len(sorted_unique(graph.read_buffer[span])), 2 * int(count.max(initial=0)) > len(rows)
    moves: BoolArray = category(activities, "op_class").among("copy")
    return most and len(rows) > 2 * several, most and bool(moves[graph.first_activity[reader]])


def _body(activities: Rows, rows: IntArray, assigns: BoolArray, moves: BoolArray) -> Body:
    as_one, together = _joined(activities, rows) if moves[rows].all() else (False, False)
    names = _values(category(activities, "op"), rows)
    work = rows[~category(activities, "operation").among("_local_scalar_dense")[rows]]
    return Body(
        operations=_values(category(activities, "operation"), work),
        classes=_values(category(activities, "op_class"), work),
        in_place=any(name.endswith("_") for name in names),
        dependence=next(iter(_values(category(activities, "loop_dependence"), rows[:1])), None),
        differs=next(iter(_values(category(activities, "loop_differs"), rows[:1])), None),
        sizes=bool(flags(activities, "loop_sizes")[rows[0]]),
        assigns=bool(assigns[rows].all()) and as_one,
        gathers=together,
    )


def _values(column: Categories, rows: IntArray) -> frozenset[str]:
    return frozenset(column.values[code] for code in set(column.codes[rows].tolist()) if code >= 0)


_NONE: Final = "in no loop, or in one of which no call for all iterations is known, or which another cause has"
COLUMNS = Columns(
    docs=(
        ColumnDoc("loop_over", "categories", "what the loop goes over, inferred from what its body calls and how its iterations depend on each other, one of " + ", ".join(f"`{kind}`" for kind in KINDS), _NONE),
    ),
    derive=_columns,
    needs=(*_CLAIMED, "sweep_kind", "update_style"),
)  # fmt: skip

_BYTES: Final = (1.0, 1.2, 2.0)  # of moving all bytes at the device's rate
_RESIDENT: Final = 32  # blocks on a multiprocessor at once, at most: what has more keeps the device busy by itself
_STEP_NS: Final = (4_000, 10_000, 25_000)  # of one position in a library's recurrent layer, by its size


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate loops that are equal, a row of activities each."""
    return on_gpu(context, matrix, _of_loop(context, matrix))


def _of_loop(context: ScanContext, matrix: IntArray) -> Estimate | Abstained:
    rows, members = context.rows["activities"], np.sort(matrix[0])
    over = text_at(category(rows, "loop_over"), int(members[0]))
    durations = context.facts["activities"].dur_ns[np.sort(matrix, axis=1)].mean(axis=0)
    measured_ns, turns = float(durations.sum()), _turns(context, members)
    if context.curves is None:
        return Abstained("device_unknown")
    if over == "steps":
        low, mid, high = (min(turns * each, measured_ns) for each in _STEP_NS)
        return Estimate(
            after_ns=outwards(low, mid, high),
            assumptions=(
                f"a library's recurrent layer takes {_STEP_NS[0] / 1e3:g}–{_STEP_NS[2] / 1e3:g} µs a position",
            ),
        )
    ends, moved = [], 0
    for own in _slots(context, members):
        found, nbytes = _together(context, members[own], durations[own])
        ends.append(found)
        moved += nbytes
    low, mid, high = (min(sum(end), measured_ns) for end in zip(*ends, strict=True))
    if fills_device(measured_ns, mid, idle_before_ns(context, matrix)):
        return Abstained("at_its_rate")
    return Estimate(
        after_ns=outwards(low, mid, max(high, mid)),
        traffic_bytes=Traffic(before=moved, after=moved) if moved else None,
        assumptions=(f"one call per operator for all {turns} iterations, which moves as many bytes",),
    )


def _turns(context: ScanContext, members: IntArray) -> int:
    return len(sorted_unique(number(context.rows["activities"], "loop_turn")[members]))


def _slots(context: ScanContext, members: IntArray) -> list[IntArray]:
    """Return which of the members are one operator's of all iterations: the first of its name in each, the second …"""
    rows = context.rows["activities"]
    turn, name = number(rows, "loop_turn")[members], category(rows, "op").codes[members].astype(np.int64)
    same = codes(turn, name)
    order = np.argsort(same, kind="stable")
    nth = np.empty(len(members), np.int64)
    nth[order] = np.arange(len(members)) - np.searchsorted(same[order], same[order])
    slot = codes(name, nth)
    return [np.flatnonzero(slot == each) for each in range(int(slot.max()) + 1)]


def _together(context: ScanContext, members: IntArray, durations: IntArray) -> tuple[tuple[float, ...], int]:
    """Return how long one call takes in place of one operator's in all iterations, least, usual and most; and its
    bytes.
    """
    rows, curves = context.rows["activities"], context.curves
    spent = float(durations.sum())
    assert curves is not None  # noqa: S101 - asked before
    product = _one_product(context, members)
    if product is not None:
        rate, nbytes = product
        least = max(rate.low, curves.memory_ns(nbytes, 0, 0.0) / 2)
        return tuple(min(max(ns, least), max(spent, least)) for ns in (rate.low, rate.mid, rate.high)), nbytes
    read, written = (number(rows, name, null=-1)[members] for name in ("bytes_read", "bytes_written"))
    if (read < 0).any() or (written < 0).any():
        blocks = blocks_of(context.timeline.activities.take(members))
        return of_unknown_bytes(durations.astype(np.float64), blocks.astype(np.float64), curves.calibration.sm_count), 0
    reads, writes = int(read.sum()), int(written.sum())
    least = max(curves.memory_ns(reads, writes, 0.0), KERNEL_NS)
    low, usual, most = (factor * least for factor in _BYTES)
    full = blocks_of(context.timeline.activities.take(members)) >= _RESIDENT * curves.calibration.sm_count
    usual = max(usual, float(np.maximum(durations[full] - KERNEL_NS, 0).sum()))
    return tuple(min(each, max(spent, least)) for each in (low, usual, max(usual, most))), reads + writes


def _one_product(context: ScanContext, members: IntArray) -> tuple[Range, int] | None:
    """Return how long the arithmetic of all iterations takes as one product, and its bytes; None where they are none,
    or no rate of them is known.
    """
    rows = context.rows["activities"]
    call = recorded_call(context.timeline, int(context.facts["activities"].op_row[members[0]]))
    if call is None or context.rates is None:
        return None
    tf32 = unit_of(text_at(context.kernel_names, int(members[0])) or "") == "matrix"
    arithmetic = "tf32" if tf32 and call.dtype == "float32" else ARITHMETIC.get(call.dtype, call.dtype)
    flops, nbytes = (int(number(rows, name)[members].sum()) for name in ("call_flops", "call_bytes"))
    rate = context.rates.ns(call.operation, arithmetic, flops, nbytes)
    return None if rate is None or not flops else (rate, nbytes)


CAUSE = Cause(rule="python_loop", columns=COLUMNS, estimate=estimate, facts=FACTS)
