"""Time of a library's call once the cause of its slowness is gone.

One row a cause (rows/library.py decides on it): what the fix computes, in which arithmetic, and how many times as long
the call must take before that is said. Where no cause is known no fix is either: then what calls of the same kind
usually take stands in its place, and nothing is said unless nineteen in twenty of those are faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from tracemine.fusion.kernel import FusedKernel, Unfused
from tracemine.ops.infer.library import LibraryCall
from tracemine.perfmodel.fused_time import Curves
from tracemine.perfmodel.group import one_kernel
from tracemine.perfmodel.library_rates import ARITHMETIC, Rate, Rates
from tracemine.perfmodel.ranges import Abstained, Estimate, Range

# Measured ÷ mid of the prediction. A rate is nine of ten times within 1.6 of the middle for products.
_EXPLAINED: Final = 1.6
_BELOW: Final = 3  # a third of the rate that is usual


class CallWork(Struct, frozen=True, kw_only=True):
    """Work that a fix asks of the library in place of the call."""

    operation: str
    arithmetic: str
    flops: int
    nbytes: int
    more_bytes: int = 0  # that it may have to move besides, at the high end
    limited: bool = False  # to calls that take as long as their launch beyond it: of smaller ones nothing is known
    says: str


def _padded(call: LibraryCall, rates: Rates) -> CallWork:
    return CallWork(
        operation="product",
        arithmetic="half",
        flops=call.padded_flops,
        nbytes=call.padded_bytes,
        more_bytes=call.copied_bytes,
        limited=True,
        says="a product whose leading dimensions are padded to multiples of 16 bytes; high end: its factors are copied "
        "into padded ones in each call",
    )


def _in_tf32(call: LibraryCall, rates: Rates) -> CallWork:
    return CallWork(
        operation=call.operation,
        arithmetic="tf32",
        flops=call.flops,
        nbytes=call.nbytes,
        limited=True,
        says="the same in TF32",
    )


def _in_float32(call: LibraryCall, rates: Rates) -> CallWork:
    arithmetic = "fp32" if rates.of(call.operation, "tf32") is None else "tf32"
    return CallWork(
        operation=call.operation,
        arithmetic=arithmetic,
        flops=call.flops,
        nbytes=call.nbytes // 2,
        says="the same in float32" + (", with TF32 allowed" if arithmetic == "tf32" else ""),
    )


def _permuted_bytes(call: LibraryCall) -> int:
    """Return the bytes that writing and reading the windows counts for: runs are short, so twice what they are."""
    return 2 * 2 * call.unfolded_bytes


def _unfolded(call: LibraryCall, rates: Rates) -> CallWork:
    """Return windows written, read, and multiplied: of float32 without TF32, which products do not use unless asked."""
    return CallWork(
        operation="product",
        arithmetic=ARITHMETIC.get(call.dtype, call.dtype),
        flops=call.flops,
        nbytes=call.nbytes + _permuted_bytes(call),
        more_bytes=_permuted_bytes(call),
        says="windows unfolded at half a copy's bandwidth (assumed), one batched product for all; high end: they "
        "are copied twice",
    )


def _reshaped(call: LibraryCall, rates: Rates) -> CallWork:
    return replace(
        _unfolded(call, rates),
        says="patches laid out at half a copy's bandwidth (assumed) and a product; high end: they are copied twice",
    )


def _usual(call: LibraryCall, rates: Rates) -> CallWork:
    return CallWork(
        operation=call.operation,
        arithmetic=_arithmetic_of(call, rates),
        flops=call.flops,
        nbytes=call.nbytes,
        says=f"what {call.operation.replace('_', ' ')}s of as many operations and bytes usually take",
    )


_FIXES: Final[Mapping[str, Callable[[LibraryCall, Rates], CallWork]]] = {
    "float64": _in_float32,
    "misaligned": _padded,
    "group_by_group": _unfolded,
    "patches": _reshaped,
    "no_tf32": _in_tf32,
    "no_matrix_units": _usual,
}


def _arithmetic_of(call: LibraryCall, rates: Rates) -> str:
    """Return the arithmetic of a call of this type: convolutions in float32 use TF32 unless that is switched off."""
    tf32 = call.operation.startswith("convolution") and call.dtype == "float32" and call.allow_tf32 is not False
    own = ARITHMETIC.get(call.dtype, call.dtype)
    return "tf32" if tf32 and rates.of(call.operation, "tf32") is not None else own


def at_its_rate(call: LibraryCall | None, cause: str, measured_ns: float, rates: Rates | None) -> Estimate | Abstained:
    """Estimate a call without its cause; Abstained where it is as fast as it can be, or nothing is known.

    >>> from tracemine.devices import find_device
    >>> from tracemine.ops.infer.library import library_call
    >>> from tracemine.perfmodel.library_rates import rates_of
    >>> rates = rates_of(find_device("NVIDIA H200"))
    >>> strides = [[1], [768, 1], [1, 768]]
    >>> vocabulary = library_call("aten::addmm", [[30522], [2048, 768], [768, 30522]], ["c10::Half"] * 3, strides)
    >>> at_its_rate(vocabulary, "misaligned", 422_000, rates).after_ns.mid  # recorded, padded by torch.compile: 149,700
    142037
    >>> at_its_rate(vocabulary, "misaligned", 150_000, rates)
    Abstained(reason='at_its_rate')
    """
    if rates is None:
        return Abstained("device_unknown")
    if call is None:
        return Abstained("not_recorded")
    fix = _FIXES.get(cause)
    work = (fix or _usual)(call, rates)
    rate = rates.of(work.operation, work.arithmetic)
    if rate is None:
        return Abstained("rate_unknown")
    if work.limited:
        own = rates.of(call.operation, ARITHMETIC.get(call.dtype, call.dtype))
        if own is None or own.work_ns(call.flops, call.nbytes, rates.device.achieved_bytes_per_s) < own.launch_ns:
            return Abstained("at_its_rate")
        rate = replace(rate, launch_ns=max(rate.launch_ns, own.launch_ns))
    after = rate.ns(work.flops, work.nbytes, rates.device.achieved_bytes_per_s)
    if fix is None:
        return _without_a_cause(call, after, measured_ns, work, rate)
    if measured_ns < _EXPLAINED * after.mid:
        return Abstained("at_its_rate")
    more = round(work.more_bytes / rates.device.achieved_bytes_per_s * 1e9)
    return _estimate(call, Range(after.low, after.mid, after.high + more), measured_ns, work, rate)


def _without_a_cause(
    call: LibraryCall, usual: Range, measured_ns: float, work: CallWork, rate: Rate
) -> Estimate | Abstained:
    """Estimate: low, as usual; middle, the third of the usual rate that nearly all reach; high, as it is."""
    if not rate.points:
        return Abstained("rate_unknown")
    if measured_ns < max(_BELOW * usual.mid, usual.high):
        return Abstained("at_its_rate")
    after = Range(usual.mid, max(_BELOW * usual.mid, usual.high), round(measured_ns))
    estimate = _estimate(call, after, measured_ns, work, rate)
    note = "why it takes longer is not known: middle: as the slowest twentieth of those, high end: nothing helps"
    return Estimate(after_ns=estimate.after_ns, flops=estimate.flops, assumptions=(*estimate.assumptions, note))


def _estimate(call: LibraryCall, after: Range, measured_ns: float, work: CallWork, rate: Rate) -> Estimate:
    reached, most = call.flops / max(measured_ns, 1) / 1e3, rate.flops_per_s / 1e12
    return Estimate(
        after_ns=after,
        flops=call.flops,
        assumptions=(
            f"now {reached:.3g} TFLOP/s; after: {work.says}, at {most:.3g} TFLOP/s or the bandwidth of a copy, after "
            f"{rate.launch_ns / 1000:g} µs ({rate.source})",
        ),
    )


# PyTorch's own kernels for norms have one block a row, which is much for a short one. Recorded on an H100
# (benchmarks/results/h100/points_native.json, `native_rms_norm`); benchmarks/predictions/library_norm.py sets these, a
# shape left out at a time.
_ROW_NS = 96  # of one multiprocessor's time, for each row, however short
_SLOWER = 1.18  # than moving so many bytes
_HELD_BYTES = 8 << 10  # of a row: a longer one is read twice
LOSES = 1.3  # times as long as one kernel made for it: from here on another way is advised


def rms_norm_ns(curves: Curves, kernel: FusedKernel, warm: float = 0.0) -> float:
    """Return the time of `F.rms_norm` on rows as `kernel` has them.

    >>> from tracemine.perfmodel.calibration import calibration_of
    >>> curves = Curves(calibration_of("NVIDIA H200 SXM"))
    >>> size = {"reads": (1 << 24,), "writes": (1 << 24,), "item_bytes": 2, "steps": ("sum", "simple", "scale")}
    >>> round(rms_norm_ns(curves, FusedKernel(rows=1 << 16, length=128, **size), 1.0) / 1000)
    48
    >>> round(rms_norm_ns(curves, FusedKernel(rows=1 << 12, length=2048, **size), 1.0) / 1000)
    7
    """
    again = 2 if kernel.length * kernel.item_bytes > _HELD_BYTES else 1
    memory = _SLOWER * curves.memory_ns(again * sum(kernel.reads), sum(kernel.writes), warm)
    return max(memory, curves.floor_ns[1] + kernel.rows * _ROW_NS / curves.calibration.sm_count)


def rms_norm_loses(curves: Curves, kernel: FusedKernel) -> bool:
    """Return whether one kernel made for these rows is clearly faster than `F.rms_norm`."""
    return kernel.length > 1 and rms_norm_ns(curves, kernel) > LOSES * curves.predict(kernel).mid_ns


def norm_of_its_own(
    kernel: FusedKernel, measured_ns: float, curves: Curves | None, *, in_model: bool = True
) -> Estimate | Abstained:
    """Estimate a norm by a kernel made for its rows, where what PyTorch's took says that it is clearly slower.

    What `F.layer_norm` takes is measured, so no rate of its own is needed: on an H100 and an H200 (torch 2.11) it took
    1.1 to 11 times as long as torch.compile's kernel for rows of up to 1024 elements, and as long for rows of 4096.

    >>> from tracemine.perfmodel.calibration import calibration_of
    >>> curves = Curves(calibration_of("NVIDIA H100 SXM"))
    >>> size = {"reads": (1 << 25,), "writes": (1 << 25,), "item_bytes": 2, "steps": ("welford", "simple", "scale")}
    >>> norm_of_its_own(FusedKernel(rows=1 << 14, length=1024, **size), 40_673, curves, in_model=False).after_ns.mid
    23723
    >>> norm_of_its_own(FusedKernel(rows=1 << 12, length=4096, **size), 29_409, curves)
    Abstained(reason='nothing_to_win')
    """
    before = Unfused(reads=sum(kernel.reads), writes=sum(kernel.writes), dur_ns=measured_ns)
    estimate = one_kernel(kernel, [before], curves, in_model=in_model)
    if not isinstance(estimate, Abstained) and measured_ns < LOSES * estimate.after_ns.mid:
        return Abstained("nothing_to_win")
    return estimate
