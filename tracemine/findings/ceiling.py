"""The least GPU time of what a trace runs: each operator at the device's rates, what findings replace as they say.

An activity that a finding takes away or shortens: less what that saves at most. Any other: its FLOPs at the data
sheet's peak for its dtype, its bytes at the bandwidth that a large copy reaches, and no less than the smallest kernel
takes; never more than it took. Where neither bytes nor FLOPs are known it stays as it is, and counts as not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracemine.devices import Device
from tracemine.findings.context import Book
from tracemine.findings.facts import category, number
from tracemine.findings.record import Finding
from tracemine.ops.infer import infer
from tracemine.rows.activities import decoded_inputs, distinct
from tracemine.rows.arrow import categories, take
from tracemine.rows.table import BoolArray, Categories, FloatArray, IntArray

# Classes that compute more than they move, and what a device's peaks are called for each dtype. A float32 product that
# ran on tensor cores is faster than float32's own peak: it stays as it is.
_COUNTED = frozenset({"gemm", "conv", "attention", "rnn"})
_PEAKS = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "int8": "int8"}
_RECORDED = ("input_shapes", "input_dtypes", "input_strides", "concrete_inputs")
_TO_HOST = ("HtoD", "DtoH", "HtoH", "PtoP")
_S = 10**9


@dataclass(frozen=True, slots=True)
class Least:
    """Of each activity the least time, nanoseconds, and whether it is known; where it is not, the time it took."""

    ns: IntArray
    known: BoolArray


def least_times(book: Book, findings: Sequence[Finding]) -> Least | None:
    """The least time of each activity; None where the device is not known."""
    if book.device is None:
        return None
    rows, dur = book.rows["activities"], book.accounts.dur_ns
    moved_ns = _moved_ns(book, book.device)
    counted_ns = _counted_ns(book, book.device)
    over_link = _is(category(rows, "copy_kind"), _TO_HOST)
    counted = _is(category(rows, "op_class"), tuple(_COUNTED))
    known = np.where(counted, counted_ns >= 0, moved_ns >= 0) & ~over_link
    floor = np.maximum(np.maximum(moved_ns, counted_ns), book.device.launch_floor_ns[0])
    least = np.where(known, np.minimum(np.ceil(floor), dur), dur).astype(np.int64)
    for finding in findings:
        if finding.on_gpu and finding.measured_ns:
            members = np.array([row for occurrence in finding.activities for row in occurrence], np.int64)
            left = 1 - finding.gpu_saving_ns.high / finding.measured_ns
            least[members] = np.ceil(dur[members] * left).astype(np.int64)
            known[members] = True
    return Least(least, known)


def _moved_ns(book: Book, device: Device) -> FloatArray:
    """How long each activity's bytes take at the device's bandwidth; −1 where they are not known."""
    nbytes = number(book.rows["activities"], "bytes", null=-1)
    return np.where(nbytes >= 0, nbytes * (_S / device.achieved_bytes_per_s), -1.0)


def _counted_ns(book: Book, device: Device) -> FloatArray:
    """How long each activity's FLOPs take at the device's peak, those of an operator shared among its kernels by the
    time that they took; −1 where they are not known.
    """
    rows, op_row, dur = book.rows["activities"], book.facts["activities"].op_row, book.accounts.dur_ns
    chosen = np.flatnonzero(_is(category(rows, "op_class"), tuple(_COUNTED)) & (op_row >= 0))
    found = np.full(len(dur), -1.0)
    if not len(chosen):
        return found
    op = op_row[chosen]
    ops = book.timeline.ops
    names = take(categories(ops["name"]), op)
    dtype = category(rows, "dtype")
    calls, of = distinct(
        names, *(take(categories(ops[each]), op) for each in _RECORDED), Categories(dtype.codes[chosen], dtype.values)
    )
    each_ns = np.array([_call_ns(call, device) for call in calls])[of]
    together = np.bincount(op, weights=dur[chosen])[op]
    found[chosen] = np.where(each_ns >= 0, each_ns * dur[chosen] / np.maximum(together, 1), -1.0)
    return found


def _call_ns(call: Sequence[str | None], device: Device) -> float:
    """How long the FLOPs of a call take at the device's peak; −1 where they are not known."""
    name, *recorded, dtype = call
    peak = device.flops_per_s.get(_PEAKS.get(dtype or "", ""))
    shapes, dtypes, strides, concrete = recorded
    inputs = decoded_inputs(shapes, dtypes, strides, concrete)
    if name is None or peak is None or inputs is None:
        return -1.0
    flops = infer(name, *inputs).flops
    return -1.0 if flops is None else flops * _S / peak


def _is(column: Categories, values: Sequence[str]) -> BoolArray:
    return np.array([*(each in values for each in column.values), False], np.bool_)[column.codes]
