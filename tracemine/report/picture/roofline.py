"""A roofline: what each class of kernels reaches of the device's bandwidth and arithmetic, and where fixes move it.

S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52 (2009). Bytes and FLOPs follow from the recorded shapes, or
were counted by Nsight Compute; roofs are the data sheet's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from tracemine.calls import calls_of
from tracemine.devices import Device
from tracemine.findings.record import Finding, Scan
from tracemine.rows.activities import kernels_of_operator
from tracemine.rows.arrow import rows_of
from tracemine.rows.codes import distinct
from tracemine.rows.table import BoolArray, IntArray, Rows, category, flags, number
from tracemine.timeline import Timeline

_S = 10**9
# Peaks of the data sheet by the data type that a class of kernels takes; of products and convolutions those of matrix
# units, of all others float32's, which they compute in.
_PEAK = {"float16": "fp16", "bfloat16": "bf16", "float32": "tf32", "float64": "fp64", "int8": "int8"}
_ON_MATRIX_UNITS = frozenset({"gemm", "conv", "attention", "rnn"})


class Kernels(Struct, frozen=True, kw_only=True):
    """A class of kernels of one data type. Bytes and FLOPs are those of the kernels of which they are known."""

    op_class: str
    dtype: str | None  # null: not recorded
    count: int
    ns: int
    bytes: int
    bytes_ns: int  # time of the kernels whose bytes are known
    flops: int
    both_bytes: int  # of the kernels whose FLOPs are known too
    both_ns: int

    @property
    def bytes_per_s(self) -> float | None:
        """Return what they move in a second; None: not known."""
        return self.bytes * _S / self.bytes_ns if self.bytes_ns and self.bytes else None

    @property
    def flops_per_s(self) -> float | None:
        """Return what they compute in a second; None: not known, or nothing."""
        return self.flops * _S / self.both_ns if self.both_ns and self.flops else None

    @property
    def intensity(self) -> float | None:
        """Return FLOP per byte; None: not known, or nothing is computed."""
        return self.flops / self.both_bytes if self.both_bytes and self.flops else None


class Roofline(Struct, frozen=True, kw_only=True):
    """What is drawn of a device and what ran on it."""

    bytes_per_s: int  # of the data sheet
    roofs: tuple[tuple[str, int], ...]  # peaks of arithmetic: of what, and FLOPs a second
    kernels: tuple[Kernels, ...]  # most time first
    # Findings before and after their fixes: FLOP per byte, and FLOP a second.
    moved: tuple[tuple[str, tuple[float, float], tuple[float, float]], ...]


def roofline_of(timeline: Timeline, rows: Rows, device: Device, scan: Scan) -> Roofline:
    """Return the roofline of a trace. rows: its row set `activities`.

    >>> from tracemine.pipeline import analyse, mined
    >>> analysis = analyse("fixtures/captures/clean_gemms")
    >>> made = roofline_of(analysis.timeline, analysis.rows["activities"], analysis.device, mined(analysis))
    >>> [(one.op_class, one.dtype, round(one.flops_per_s / 1e12)) for one in made.kernels[:1]]
    [('gemm', 'bfloat16', 706)]
    """
    kernels = tuple(sorted(_kernels(timeline, rows), key=lambda one: (-one.ns, one.op_class, one.dtype or "")))
    return Roofline(
        bytes_per_s=device.bandwidth_bytes_per_s,
        roofs=tuple(_roofs(device, kernels)),
        kernels=kernels,
        moved=tuple(_moved(scan.findings)),
    )


def _roofs(device: Device, kernels: Sequence[Kernels]) -> Iterator[tuple[str, int]]:
    """Yield float32's peak, and those of the types that matrix units took."""
    wanted = ["fp32"]
    wanted += [_PEAK.get(one.dtype or "", "") for one in kernels if one.op_class in _ON_MATRIX_UNITS]
    for name in dict.fromkeys(wanted):
        if (peak := device.flops_per_s.get(name)) is not None:
            yield name, peak


def _kernels(timeline: Timeline, rows: Rows) -> Iterator[Kernels]:
    dur, moved = number(rows, "dur_ns"), number(rows, "bytes", null=-1)
    flops = _flops(timeline, rows)
    shared, known = _of_calls(rows, dur)
    moved[known], flops[known] = shared[0][known], shared[1][known]
    moved[flags(rows, "auxiliary")] = -1
    kinds, of = distinct(category(rows, "op_class"), category(rows, "dtype"))
    for at, (op_class, dtype) in enumerate(kinds):
        members = of == at
        sized = members & (moved >= 0)
        both = sized & (flops >= 0)
        yield Kernels(
            op_class=op_class,
            dtype=dtype,
            count=int(members.sum()),
            ns=int(dur[members].sum()),
            bytes=int(moved[sized].sum()),
            bytes_ns=int(dur[sized].sum()),
            flops=int(flops[both].sum()),
            both_bytes=int(moved[both].sum()),
            both_ns=int(dur[both].sum()),
        )


def _of_calls(rows: Rows, dur: IntArray) -> tuple[tuple[IntArray, IntArray], BoolArray]:
    """Return bytes and FLOPs of library calls, shared by time among the kernels that do their work, and where they are
    known. What else a call launched, such as a change of layout, has none of them.
    """
    call, counts = number(rows, "call"), [number(rows, f"call_{of}", null=-1) for of in ("bytes", "flops")]
    known = (call > 0) & (counts[0] >= 0) & (counts[1] >= 0) & ~flags(rows, "auxiliary")
    together = np.bincount(call[known], dur[known], int(call.max(initial=-1)) + 1)
    share = np.zeros(len(dur))
    share[known] = dur[known] / np.maximum(together[call[known]], 1)
    nbytes, flops = (np.round(count * share).astype(np.int64) for count in counts)
    return (nbytes, flops), known


def _flops(timeline: Timeline, rows: Rows) -> IntArray:
    """Return FLOPs of each activity: as counted, else of an operator's only kernel by its inputs; −1: not known."""
    op_row = rows_of(timeline.activities["op_row"])
    is_kernel = category(rows, "kind").among("kernel")
    alone = is_kernel & (kernels_of_operator(op_row, is_kernel) == 1)
    asked = calls_of(timeline).spread(
        np.where(alone, op_row, -1), lambda call: -1 if call.flops is None else min(call.flops, 1 << 60), -1
    )
    counted = number(rows, "flops", null=-1) if "flops" in rows.columns else asked
    return np.where(counted >= 0, counted, asked)


def _moved(findings: Sequence[Finding]) -> Iterator[tuple[str, tuple[float, float], tuple[float, float]]]:
    """Yield where fixes move findings whose bytes and FLOPs are known, before and after."""
    for finding in findings:
        intensity, fused, flops = finding.arithmetic_intensity, finding.fused_ns, finding.flops
        if intensity is None or fused is None or not flops or not (fused.mid and finding.measured_ns):
            continue
        if min(intensity.before, intensity.after) > 0 and not finding.refuted:
            before = intensity.before, flops * _S / finding.measured_ns
            after = intensity.after, flops * _S / fused.mid
            yield finding.fingerprint, before, after
