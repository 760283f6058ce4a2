"""One call of each operator for all iterations of a loop, or one of a library's for the whole: what that saves."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracemine.causes.small_products_apart.batching import fills_device, of_unknown_bytes
from tracemine.columns import codes, sorted_unique
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.gap_estimates import idle_before_ns
from tracemine.findings.labels import text_at
from tracemine.matching.rule import Rule
from tracemine.ops.arithmetic import unit_of
from tracemine.perfmodel import KERNEL_NS, Abstained, Estimate, Range, Traffic
from tracemine.perfmodel.library_rates import ARITHMETIC
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.arrow import blocks_of
from tracemine.rows.library import recorded_call
from tracemine.rows.table import IntArray, category, number

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
