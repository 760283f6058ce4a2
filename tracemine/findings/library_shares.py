"""What libraries reach of the data sheet's peak, on a GPU of which their usual rates were not measured.

A slow call cannot be recognised there, and a report's limit rests on other GPUs' rates by the ratio of the peaks. So
what each kind of call reaches is given next to the peak, whether or not it could be better.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tracemine.devices import Device
from tracemine.findings.ceiling import operation_of
from tracemine.findings.context import ScanContext
from tracemine.ops.kernel_names import unit_of
from tracemine.perfmodel.library_rates import peak_of
from tracemine.rows.arrow import mapped
from tracemine.rows.codes import distinct
from tracemine.rows.library import LEAST_PERCENT
from tracemine.rows.table import category, number
from tracemine.units import bytes_text, percent_text

_MOST = 6  # kinds that are named
_S = 10**9


def reached_text(rate: float, moved: float, peak: float | None, memory: float) -> str:
    """Return what calls reach, by FLOP and bytes a second, and what limits them: arithmetic, or memory.

    >>> reached_text(267e12, 1e9, 1.3074e15, 5.3e12)
    "267 TFLOP/s, 20.4% of the data sheet's 1,307 TFLOP/s"
    >>> reached_text(1e12, 2e12, 1.3074e15, 5.3e12)
    "2.00 TB/s, 37.7% of the data sheet's 5.30 TB/s"
    """
    if peak is None:  # no data sheet states it
        return _tflops(rate)
    if rate / peak >= moved / memory:
        reached, most, whole = _tflops(rate), _tflops(peak), (rate, peak)
    else:
        reached, most, whole = f"{bytes_text(moved)}/s", f"{bytes_text(memory)}/s", (moved, memory)
    if whole[0] > whole[1]:
        return f"{reached}, more than the data sheet's {most}"
    return f"{reached}, {percent_text(*whole)} of the data sheet's {most}"


def _tflops(rate: float) -> str:
    return f"{rate / 1e12:,.0f} TFLOP/s" if rate >= 1e13 else f"{rate / 1e12:.2g} TFLOP/s"


def shares_text(context: ScanContext) -> str:
    """Return a sentence on the calls of libraries whose rates on this GPU were not measured; "" where all were."""
    device, busy_ns = context.known_device, context.accounts.gpu_busy_ns
    if device is None or not busy_ns:
        return ""
    found = sorted(_shares(context, device), key=lambda one: -one[0])
    said = [(ns, what, at) for ns, what, at in found if 100 * ns >= LEAST_PERCENT * busy_ns][:_MOST]
    if not said:
        return ""
    each = "; ".join(f"{what} ({percent_text(ns, busy_ns)} of GPU time) at {at}" for ns, what, at in said)
    return (
        f"Slow library calls may be missed: this GPU's usual rates were not measured (`tracemine calibrate` does). "
        f"Here: {each}."
    )


def _shares(context: ScanContext, device: Device) -> Iterator[tuple[int, str, str]]:
    """Yield the GPU time of calls of one operation on one type, what they are, and what they reach."""
    rows, rates = context.rows["activities"], context.rates
    call, flops, nbytes = (number(rows, name, null=-1) for name in ("call", "call_flops", "call_bytes"))
    inside = np.flatnonzero((call > 0) & (flops > 0))
    if not len(inside) or rates is None:
        return
    units = mapped(context.kernel_names, unit_of)
    kinds, of = distinct(category(rows, "op_class"), category(rows, "operation"), category(rows, "dtype"), units)
    first = np.zeros(len(call), np.bool_)  # a call of several kernels counts once
    first[inside[np.unique(call[inside], return_index=True)[1]]] = True
    merged: dict[tuple[str, str], list[int]] = {}
    for at, (op_class, name, dtype, unit) in enumerate(kinds):
        operation, arithmetic = operation_of(op_class, name, dtype, unit)
        if operation and arithmetic:
            known = rates.of(operation, arithmetic)
            if known is None or not known.points:
                merged.setdefault((operation, f"{dtype}\0{arithmetic}"), []).append(at)
    for (operation, type_of), codes in merged.items():
        dtype, arithmetic = type_of.split("\0")
        own = np.isin(of, codes) & (call > 0) & (flops > 0)
        spent = int(context.accounts.dur_ns[own].sum())
        counted = own & first
        if spent and counted.any():
            rate = float(flops[counted].sum(dtype=np.float64)) * _S / spent
            moved = float(np.maximum(nbytes[counted], 0).sum(dtype=np.float64)) * _S / spent
            reached = reached_text(rate, moved, peak_of(device, arithmetic), device.bandwidth_bytes_per_s)
            yield spent, f"{_words(operation)} in {dtype}", reached


def _words(operation: str) -> str:
    """Return an operation as people say it.

    >>> _words("convolution_backward"), _words("attention")
    ('convolutions (backward)', 'attention')
    """
    name, _, backward = operation.partition("_")
    return f"{name if name == 'attention' else name + 's'}{' (backward)' if backward else ''}"
