"""Small products in a loop, a call each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from tracemine.causes.cause import Cause
from tracemine.columns import sorted_unique
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.gap_estimates import idle_before_ns
from tracemine.findings.labels import text_at
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.ops.infer.library import LibraryCall
from tracemine.ops.kernel_names import unit_of
from tracemine.perfmodel import Abstained
from tracemine.perfmodel.fused_time import Curves
from tracemine.perfmodel.gaps import KERNEL_NS
from tracemine.perfmodel.library_rates import ARITHMETIC, Rates
from tracemine.perfmodel.ranges import Estimate, Traffic, outwards
from tracemine.rows.graph import NodeGraph
from tracemine.rows.library import recorded_call
from tracemine.rows.loops import loops_of_products
from tracemine.rows.table import (
    BoolArray,
    Column,
    ColumnDoc,
    Columns,
    FloatArray,
    IntArray,
    Numbers,
    Rows,
    Sources,
    category,
    number,
)
from tracemine.timeline import Timeline


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    number, turns = np.full(activities.count, -1, np.int64), np.zeros(activities.count, np.int64)
    for loop, rows in loops_of_products(sources.timeline, activities):
        number[rows], turns[rows] = loop.begin, (loop.end - loop.begin) // loop.period
    known = number >= 0
    return {"turns_of": Numbers(np.maximum(number, 0), known), "turns": Numbers(turns, known)}


COLUMNS = Columns(
    docs=(
        ColumnDoc("turns_of", "numbers", "which loop over independent products it is part of: up to 16 operators, a product among them, that repeat eight times or more on one stream with the same shapes, where no product of an iteration reads, by any path within the loop, what another one wrote; without those operators of an iteration that do. Outside of steps something has to read the results of several iterations", "in no such loop, shapes were not recorded, or dataflow is not known"),
        ColumnDoc("turns", "numbers", "how many iterations that loop has", "in no such loop"),
    ),
    derive=_columns,
)  # fmt: skip

_DIFFERING: Final = ("inputs", "weights", "both")
_PRODUCTS: Final = ("mm", "addmm", "bmm", "baddbmm", "_addmm_activation")


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return what the loop's first product takes that is not the same in each iteration."""
    rows, graph = context.rows["activities"], context.rows["activities"].graph
    if rule.id != "small_products_apart" or graph is None:
        return {}
    members = np.sort(classes[0].matrix[0])
    products = members[category(rows, "operation").among(*_PRODUCTS)[members]]
    turns, nodes = int(number(rows, "turns")[members[0]]), sorted_unique(graph.activity_node[products])
    if not turns or len(nodes) % turns or (nodes < 0).any():
        return {"differing": None}
    return {"differing": _differing(graph, nodes[:: len(nodes) // turns])}


def _differing(graph: NodeGraph, nodes: IntArray) -> str | None:
    """Return which of a product's two matrices, the last that it reads, differ from one of these nodes to the next."""
    begin, end = graph.read_begin[nodes], graph.read_begin[nodes + 1]
    if (end - begin < 2).any():
        return None
    read = np.stack([graph.read_buffer, graph.read_writer, graph.read_first])
    inputs, weights = (np.unique(read[:, end - at], axis=1).shape[1] > 1 for at in (2, 1))
    return {(True, False): "inputs", (False, True): "weights", (True, True): "both"}.get((inputs, weights))


FACTS = AdviceFacts(
    docs={
        "differing": FactDoc(
            "of a loop of small products, what of its first product differs from iteration to iteration",
            text=True,
            values=_DIFFERING,
        )
    },
    find=_facts,
)

_WORTH: Final = 1.5  # measured, of what is predicted
_POINTWISE: Final = (0.8, 1.5)  # of the bytes at the device's rate


class LoopOperator(Struct, frozen=True, kw_only=True):
    """One operator of a loop, in all iterations."""

    dur_ns: float
    reads: int  # bytes, what several iterations read counted once
    writes: int | None  # None: not known
    call: LibraryCall | None = None  # of one iteration; None: no product
    tf32: bool = False  # its kernel multiplies float32 with matrix units


def fills_device(measured_ns: float, predicted_ns: float, idle_ns: float) -> bool:
    """Return whether a loop's iterations fill the device: one call takes hardly less, nor was it idle for most of it.

    >>> fills_device(100.0, 90.0, 20.0), fills_device(100.0, 90.0, 300.0), fills_device(100.0, 10.0, 20.0)
    (True, False, False)
    """
    return measured_ns < _WORTH * predicted_ns and idle_ns < measured_ns


def of_unknown_bytes(durations_ns: FloatArray, blocks: FloatArray, sm_count: int) -> tuple[float, float, float]:
    """Return how long one call takes in place of several of which it is not known what they move: what goes is what any
    kernel takes; or all run side by side, as far as their blocks (0: not recorded) find a place each.

    >>> of_unknown_bytes(np.full(24, 3e4), np.full(24, 4.0), 132), of_unknown_bytes(np.full(2, 5e3), np.zeros(2), 1)
    ((30000.0, 30000.0, 720000.0), (5000.0, 10000.0, 10000.0))
    """
    spent, longest = float(durations_ns.sum()), float(durations_ns.max())
    waves = max(float(blocks.sum()) / sm_count, 1.0) if blocks.all() else float(len(blocks))
    usual = min(longest + float(np.maximum(durations_ns - KERNEL_NS, 0).sum()), waves * longest, spent)
    return longest, usual, spent


def batched(
    operators: Sequence[LoopOperator], turns: int, curves: Curves | None, rates: Rates | None, idle_ns: float = 0.0
) -> Estimate | Abstained:
    """Estimate one call of each operator for all iterations of a loop, before which the device is idle for so long.

    >>> from tracemine.devices import find_device
    >>> from tracemine.ops.infer.library import library_call
    >>> from tracemine.perfmodel.library_rates import rates_of
    >>> device = find_device("NVIDIA H200")
    >>> one = library_call("aten::mm", [[4096, 1024], [1024, 32]], ["c10::BFloat16"] * 2)
    >>> product = LoopOperator(dur_ns=32 * 4_000, reads=10_485_760, writes=8_388_608, call=one)
    >>> batched([product], 32, Curves.of(device), rates_of(device)).after_ns.mid < 30_000
    True
    """
    if curves is None or rates is None:
        return Abstained("device_unknown")
    measured_ns, ends = sum(each.dur_ns for each in operators), []
    for each in operators:
        taken = _memory(each, turns, curves) if each.call is None else _product(each, each.call, turns, rates)
        if taken is None:
            return Abstained("rate_unknown")
        ends.append(taken)
    low, mid, high = (sum(end) for end in zip(*ends, strict=True))
    if fills_device(measured_ns, mid, idle_ns):
        return Abstained("at_its_rate")
    copied = sum(each.reads for each in operators if each.call is not None)
    high = min(high + curves.memory_ns(copied, copied, 0.0), measured_ns)
    total = [each.reads + each.writes for each in operators if each.writes is not None]
    return Estimate(
        after_ns=outwards(low, mid, max(high, mid)),
        traffic_bytes=Traffic(before=sum(total), after=sum(total)) if len(total) == len(operators) else None,
        flops=sum(turns * each.call.flops for each in operators if each.call is not None),
        assumptions=(
            f"one call per operator for all {turns} iterations; high end: what the products read is copied together "
            "first",
        ),
    )


def _product(one: LoopOperator, call: LibraryCall, turns: int, rates: Rates) -> tuple[float, float, float] | None:
    arithmetic = "tf32" if one.tf32 and call.dtype == "float32" else ARITHMETIC.get(call.dtype, call.dtype)
    found = rates.ns(call.operation, arithmetic, turns * call.flops, one.reads + (one.writes or 0))
    return None if found is None else (found.low, found.mid, found.high)


def _memory(one: LoopOperator, turns: int, curves: Curves) -> tuple[float, float, float]:
    if one.writes is None:
        return of_unknown_bytes(np.full(turns, one.dur_ns / turns), np.zeros(turns), 1)
    mid = min(curves.memory_ns(one.reads, one.writes, 0.0), one.dur_ns)
    less, more = _POINTWISE
    return less * mid, mid, math.ceil(min(more * mid, one.dur_ns))


def loop_operators(
    timeline: Timeline,
    graph: NodeGraph,
    members: IntArray,
    durations_ns: FloatArray,
    written: IntArray,
    kernels: Sequence[str],
    turns: int,
) -> list[LoopOperator] | None:
    """Return each operator of a loop's iterations; None where there are not so many, or shapes do not tell. `members`:
    activities of all iterations in time order, with what each takes and writes (−1: not known) and its kernel's name.
    """
    node_of = graph.activity_node[members]
    nodes, at = np.unique(node_of, return_index=True)
    if not turns or len(nodes) % turns or nodes[0] < 0:
        return None
    spent = np.bincount(np.searchsorted(nodes, node_of), weights=durations_ns)
    period = len(nodes) // turns
    op_row = timeline.activities["op_row"]
    found = []
    for slot in range(period):
        own = nodes[slot::period]
        reads, each_reads = _read(graph, own)
        row = int(members[at[slot]])
        call = recorded_call(timeline, op_row[row].as_py())
        writes: int | None
        if call is not None and call.operation == "product":
            writes = max(call.nbytes - each_reads, 0) * turns
        else:
            own_writes = written[at[slot::period]]
            call, writes = None, None if (own_writes < 0).any() else int(own_writes.sum())
        tf32 = any(unit_of(kernels[k]) == "matrix" for k in np.flatnonzero(node_of == own[0]).tolist())
        found.append(
            LoopOperator(dur_ns=float(spent[slot::period].sum()), reads=reads, writes=writes, call=call, tf32=tf32)
        )
    return found


def _read(graph: NodeGraph, nodes: IntArray) -> tuple[int, int]:
    """Return the bytes that these nodes read, equal reads counted once; and what the first of them reads."""
    parts = [np.arange(graph.read_begin[node], graph.read_begin[node + 1]) for node in nodes.tolist()]
    reads = np.concatenate(parts)
    ranges = np.stack(
        [graph.read_buffer[reads], graph.read_writer[reads], graph.read_first[reads], graph.read_last[reads]]
    )
    distinct = np.unique(ranges, axis=1)
    own = ranges[:, : len(parts[0])]
    return int((distinct[3] - distinct[2]).sum()), int((own[3] - own[2]).sum())


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate one call of each operator in place of a loop's iterations."""
    return at_once(context, matrix, int(number(context.rows["activities"], "turns")[matrix[0, 0]]))


def of_projection(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate one product of all inputs in place of one an iteration of a recurrence."""
    return at_once(context, matrix, int(number(context.rows["activities"], "projection_turns")[matrix[0, 0]]))


def at_once(context: ScanContext, matrix: IntArray, turns: int) -> ClassEstimate | Abstained:
    """Estimate one call of each operator in place of so many iterations."""
    rows, members = context.rows["activities"], np.sort(matrix[0])
    durations = context.facts["activities"].dur_ns[matrix]
    if rows.graph is None:
        return Abstained("bytes_unknown")
    written = number(rows, "bytes_written", null=-1)[members]
    kernels = [text_at(context.kernel_names, row) or "" for row in members]
    mean_ns = durations.mean(axis=0)[np.argsort(matrix[0])]
    operators = loop_operators(context.timeline, rows.graph, members, mean_ns, written, kernels, turns)
    found = (
        Abstained("bytes_unknown")
        if operators is None
        else batched(operators, turns, context.curves, context.rates, idle_before_ns(context, matrix))
    )
    return on_gpu(context, matrix, found)


CAUSE = Cause(
    rule="small_products_apart", columns=COLUMNS, savings={"batch": estimate}, facts=FACTS, fix_at=f"{__name__}.fix:FIX"
)
