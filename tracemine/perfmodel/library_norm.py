"""Time of PyTorch's own kernels for norms: one block a row, which is much for a short one.

Recorded on an H100 (benchmarks/results/h100/points_native.json, `native_rms_norm`), and in steps of Qwen3 on an H200
too, whose norms of heads are 65,536 rows of 128: 42 µs there. One kernel of torch.compile's takes 40 for four times as
many rows. Rows of more than 8 KB it reads twice. benchmarks/predictions/library_norm.py sets the constants, a shape
left out at a time.
"""

from __future__ import annotations

from tracemine.fusion.kernel import FusedKernel, Unfused
from tracemine.perfmodel.fused_time import Curves
from tracemine.perfmodel.group import one_kernel
from tracemine.perfmodel.ranges import Abstained, Estimate

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
