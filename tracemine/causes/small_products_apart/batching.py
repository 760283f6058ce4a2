"""Batched calls in place of one call an iteration: products at the rate of all together, the rest by bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from tracemine.ops.infer.library import LibraryCall
from tracemine.perfmodel.fused_time import Curves
from tracemine.perfmodel.gaps import KERNEL_NS
from tracemine.perfmodel.library_rates import ARITHMETIC, Rates
from tracemine.perfmodel.ranges import Abstained, Estimate, Traffic, outwards
from tracemine.rows.table import FloatArray

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
