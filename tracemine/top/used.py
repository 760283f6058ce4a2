"""Utilisation of the device's arithmetic: what the model needs (MFU), and with what is computed again (HFU)."""

from __future__ import annotations

import numpy as np

from tracemine.devices import Device
from tracemine.perfmodel.library_rates import peak_of
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline
from tracemine.top.origin import Origin
from tracemine.top.reach import Reach
from tracemine.top.record import Utilisation

_MOSTLY = 0.9  # of the time of what computes
_SPOKEN = {"half": "bf16/fp16", "fp8": "fp8", "int8": "int8", "tf32": "tf32", "fp32": "fp32", "fp64": "fp64"}


def utilisation(
    timeline: Timeline,
    origin: Origin,
    reach: Reach,
    chosen: BoolArray,
    dur_ns: IntArray,
    *,
    device: Device | None,
    available_ns: int,
    times_ns: tuple[int, int | None],
) -> Utilisation | None:
    """Return how much of the peak is used; None where FLOPs are not known of nine tenths of what computes, by time.

    available_ns: for each nanosecond of a step, how many nanoseconds of devices' time there are in all steps. times_ns:
    a step's, as recorded and unprofiled.
    """
    counted = chosen & reach.counted
    known = counted & ~np.isnan(reach.peak_ns)
    if device is None or not known.any() or dur_ns[known].sum() < _MOSTLY * dur_ns[counted].sum():
        return None
    again = _again(timeline, origin, known)
    peak_ns, flops = reach.peak_ns, reach.flops
    in_all = float(peak_ns[known].sum())
    needed = None if again is None else float(peak_ns[known & ~again].sum())
    recorded, unprofiled = (None if not ns else available_ns * ns for ns in times_ns)
    if recorded is None:
        return None
    return Utilisation(
        mfu=_share(needed, recorded),
        hfu=in_all / recorded,
        unprofiled_mfu=_share(needed, unprofiled),
        unprofiled_hfu=_share(in_all, unprofiled),
        flops=round(float(flops[known].sum())),
        recomputed_flops=None if again is None else round(float(flops[known & again].sum())),
        peak=_peak(reach, device),
    )


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or whole is None else part / whole


def _peak(reach: Reach, device: Device) -> str:
    """Return the peak of the arithmetic that most FLOPs are in, in words."""
    first, *others = (_SPOKEN[name] for name in reach.arithmetics)
    tflops = (peak_of(device, reach.arithmetics[0]) or 0) / 1e12
    more = f", and in {', '.join(others)}" if others else ""
    return f"{tflops:,.0f} TFLOP/s in {first}{more}, dense"


def _again(timeline: Timeline, origin: Origin, known: BoolArray) -> BoolArray | None:
    """Return which activities compute again what the forward pass did; None where that is not known.

    A compiled backward pass may compute anything again without a word, and autograd's numbers tell nothing where it
    records its backward pass too.
    """
    names = categories(timeline.ops["name"])
    compiled = names.that(lambda name: name.startswith("CompiledFunctionBackward"))
    if compiled.any() or origin.differentiates_twice:
        return None
    op_row = rows_of(timeline.activities["op_row"])
    again: BoolArray = np.append(origin.recomputed, False)[op_row]
    return again & known
