"""The least GPU time of what a trace runs: each operator at the device's rates, what findings replace as they say.

What a finding removes or shortens takes its time less what that saves at most. A library's call takes what the fastest
twentieth of calls with its FLOPs and bytes take (perfmodel/library_rates.py), others a large copy's bandwidth. None
takes less than the smallest kernel, or more than it took. Where neither bytes nor FLOPs are known time is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tracemine.devices import Device
from tracemine.findings.context import ScanContext
from tracemine.findings.record import Finding, activity_rows
from tracemine.ops.infer.library import OPERATIONS
from tracemine.ops.kernel_names import unit_of
from tracemine.perfmodel import Rate, Rates
from tracemine.perfmodel.library_rates import ARITHMETIC
from tracemine.rows.codes import distinct
from tracemine.rows.table import BoolArray, Categories, FloatArray, IntArray, category, number

_COUNTED = frozenset({"gemm", "conv", "attention", "rnn"})  # classes that compute more than they move
_TO_HOST = ("HtoD", "DtoH", "HtoH", "PtoP")
_S = 10**9


def least_times(context: ScanContext, findings: Sequence[Finding]) -> tuple[IntArray, BoolArray] | None:
    """Return the least time of each activity, nanoseconds, and whether it is known; None: the device is not.

    Where it is not known, it is the time that the activity took.
    """
    device = context.known_device
    if device is None:
        return None
    rows, dur = context.rows["activities"], context.accounts.dur_ns
    moved_ns = _moved_ns(context, device)
    counted_ns = _counted_ns(context)
    over_link = category(rows, "copy_kind").among(*_TO_HOST)
    counted = category(rows, "op_class").among(*_COUNTED)
    known = np.where(counted, counted_ns >= 0, moved_ns >= 0) & ~over_link
    floor = np.maximum(np.maximum(moved_ns, counted_ns), device.launch_floor_ns[0])
    least = np.where(known, np.minimum(np.ceil(floor), dur), dur).astype(np.int64)
    for finding in findings:
        if finding.on_gpu and finding.measured_ns:
            members = activity_rows([finding])
            left = 1 - finding.gpu_saving_ns.high / max(int(dur[members].sum()), 1)
            least[members] = np.ceil(dur[members] * left).astype(np.int64)
            known[members] = True
    return least, known


def _moved_ns(context: ScanContext, device: Device) -> FloatArray:
    """Return how long each activity's bytes take at the device's bandwidth; −1 where they are not known."""
    nbytes = number(context.rows["activities"], "bytes", null=-1)
    return np.where(nbytes >= 0, nbytes * (_S / device.achieved_bytes_per_s), -1.0)


def _counted_ns(context: ScanContext) -> FloatArray:
    """Return how long each activity of a library's call takes at the rate that libraries reach; −1 where its FLOPs or
    that rate are not known. A call's time is shared among its kernels by how long they took.
    """
    rows, dur = context.rows["activities"], context.accounts.dur_ns
    flops, nbytes, together = (number(rows, f"call_{name}", null=-1) for name in ("flops", "bytes", "dur_ns"))
    took_ns = np.full(len(dur), -1.0)
    if context.rates is None:
        return took_ns
    kinds, of = distinct(
        category(rows, "op_class"), category(rows, "operation"), category(rows, "dtype"), _units(context.kernel_names)
    )
    known_rates = [
        (0, 0, 0) if one is None else (one.launch_ns, one.flops_per_s, one.low) for one in _rates(context.rates, kinds)
    ]
    launch_ns, flops_per_s, low = np.array([*known_rates, (0, 0, 0)], np.float64)[of].T
    known = np.flatnonzero((flops_per_s > 0) & (flops >= 0) & (together > 0))
    moved_ns = nbytes[known] * (_S / context.rates.device.achieved_bytes_per_s)
    work_ns = np.maximum(flops[known] * (_S / flops_per_s[known]), moved_ns)
    took_ns[known] = low[known] * (launch_ns[known] + work_ns) * dur[known] / together[known]
    return took_ns


def _units(kernels: Categories) -> Categories:
    """Return the unit that each kernel multiplies with."""
    units = ("matrix", "vector")
    code = [units.index(unit) if (unit := unit_of(name)) in units else -1 for name in kernels.values]
    return Categories(np.array([*code, -1], np.int32)[kernels.codes], units)


def _rates(rates: Rates, kinds: Sequence[tuple[str | None, ...]]) -> Iterator[Rate | None]:
    """Yield the rates of library calls by class, operator, dtype and unit; of float32 on matrix units, TF32's."""
    for kind in kinds:
        yield rates.of(*operation_of(*kind))


def operation_of(op_class: str | None, name: str | None, dtype: str | None, unit: str | None) -> tuple[str, str]:
    """Return the operation and the arithmetic that a library's rate is known by; "" for what is none.

    >>> operation_of("attention", "_flash_attention_backward", "bfloat16", None)
    ('attention_backward', 'half')
    """
    operation, arithmetic = OPERATIONS.get(op_class or "", ""), ARITHMETIC.get(dtype or "", "")
    backward = "_backward" if operation and "backward" in (name or "") else ""
    return f"{operation}{backward}", "tf32" if (arithmetic, unit) == ("fp32", "matrix") else arithmetic
