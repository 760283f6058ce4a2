"""Batched calls in place of one call an iteration: products at the rate of all together, the rest by bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from tracemine.ops.infer.library import LibraryCall
from tracemine.perfmodel.fused_time import Curves
from tracemine.perfmodel.library_rates import ARITHMETIC, Rates
from tracemine.perfmodel.ranges import Abstained, Estimate, Traffic, outwards

_WORTH: Final = 1.5  # measured, of what is predicted: below that the iterations fill the device
_POINTWISE: Final = (0.8, 1.5)  # of the bytes at the device's rate


class LoopOperator(Struct, frozen=True, kw_only=True):
    """One operator of a loop, in all iterations."""

    dur_ns: float
    reads: int  # bytes, what several iterations read counted once
    writes: int
    call: LibraryCall | None = None  # of one iteration; None: no product
    tf32: bool = False  # its kernel multiplies float32 with matrix units


def batched(
    operators: Sequence[LoopOperator], turns: int, curves: Curves | None, rates: Rates | None
) -> Estimate | Abstained:
    """Estimate one call of each operator for all iterations of a loop.

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
        taken = _memory(each, curves) if each.call is None else _product(each, each.call, turns, rates)
        if taken is None:
            return Abstained("rate_unknown")
        ends.append(taken)
    low, mid, high = (sum(end) for end in zip(*ends, strict=True))
    if measured_ns < _WORTH * mid:
        return Abstained("at_its_rate")
    copied = sum(each.reads for each in operators if each.call is not None)
    high = min(high + curves.memory_ns(copied, copied, 0.0), measured_ns)
    total = sum(each.reads + each.writes for each in operators)
    return Estimate(
        after_ns=outwards(low, mid, max(high, mid)),
        traffic_bytes=Traffic(before=total, after=total),
        flops=sum(turns * each.call.flops for each in operators if each.call is not None),
        assumptions=(
            f"one call per operator for all {turns} iterations; high end: what the products read is copied together "
            "first",
        ),
    )


def _product(one: LoopOperator, call: LibraryCall, turns: int, rates: Rates) -> tuple[float, float, float] | None:
    arithmetic = "tf32" if one.tf32 and call.dtype == "float32" else ARITHMETIC.get(call.dtype, call.dtype)
    found = rates.ns(call.operation, arithmetic, turns * call.flops, one.reads + one.writes)
    return None if found is None else (found.low, found.mid, found.high)


def _memory(one: LoopOperator, curves: Curves) -> tuple[float, float, float]:
    mid = min(curves.memory_ns(one.reads, one.writes, 0.0), one.dur_ns)
    less, more = _POINTWISE
    return less * mid, mid, math.ceil(min(more * mid, one.dur_ns))
