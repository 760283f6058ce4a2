"""What a report of Nsight Compute says of each kernel that it profiled. Null: the report does not have it."""

from __future__ import annotations

from typing import Literal

import msgspec

from tracemine.units import count_text

Bound = Literal["memory", "compute", "latency", "neither"]

# The thresholds of Nsight Compute's own "speed of light" rule, in percent of the peak that the unit can sustain.
BUSY_PERCENT = 60.0  # below it in both, neither unit is what the kernel waits for
APART_PERCENT = 10.0  # closer than this, no single one of them is
FULL_PERCENT = 80.0  # above it a unit can hardly do more


class ProfiledKernel(msgspec.Struct, frozen=True, kw_only=True):
    """One profiled launch. Kernels are serialised and, unless set otherwise, begin with empty caches and base clocks,
    so `dur_ns` is not the timeline's.

    >>> ProfiledKernel(name="k", order=0, memory_percent=80.0, compute_percent=20.0).bound()
    'memory'
    >>> ProfiledKernel(name="k", order=0, memory_percent=30.0, compute_percent=20.0).bound()
    'latency'
    """

    name: str  # as the report prints it: demangled, mangled or the bare function's
    order: int  # position among the report's kernels
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    gpu: str | None = None
    dur_ns: int | None = None
    dram_read_bytes: int | None = None
    dram_written_bytes: int | None = None  # what reached DRAM before the kernel ended: the rest still lay in L2
    dram_bytes: int | None = None  # read and written
    dram_bytes_from: str | None = None  # `counters`, or derived: `rate` × duration, `throughput` × peak × duration
    flops: dict[str, int] = {}  # by data type, of those whose counters the report has
    # Whether `flops` holds all arithmetic that is counted at all: matrix units have counters of their own.
    flops_complete: bool = False
    occupancy_percent: float | None = None  # achieved: resident warps, of those that a multiprocessor can hold
    theoretical_occupancy_percent: float | None = None
    registers_per_thread: int | None = None
    spill_requests: int | None = None  # loads and stores of local memory, warp instructions
    l2_hit_percent: float | None = None
    compute_percent: float | None = None  # throughput of the multiprocessors, of what they can sustain
    memory_percent: float | None = None  # throughput of the memory system (the busiest of DRAM, L2, L1), likewise
    dram_percent: float | None = None  # throughput of DRAM alone
    waves: float | None = None  # how often the grid fills the GPU
    rules: str | None = None  # what ncu's own rules say, a line each: TYPE NAME: text

    @property
    def total_flops(self) -> int | None:
        """All floating-point operations; None where counters are missing.

        >>> ProfiledKernel(name="k", order=0, flops={"fp32": 10, "bf16": 5}, flops_complete=True).total_flops
        15
        """
        return sum(self.flops.values()) if self.flops_complete else None

    @property
    def intensity(self) -> float | None:
        """FLOP per byte of DRAM traffic; None where one of them is not known, or no byte moved.

        >>> ProfiledKernel(name="k", order=0, flops={"fp32": 8}, flops_complete=True, dram_bytes=4).intensity
        2.0
        """
        return self.total_flops / self.dram_bytes if self.total_flops is not None and self.dram_bytes else None

    def bound(self, ridge: float | None = None) -> Bound | None:
        """Return what limits the kernel, by the thresholds of Nsight Compute's rule; None without throughputs.

        `latency`: neither unit is busy. `neither`: no single one limits: both are about equally busy; or the
        multiprocessors are, with room left, while the kernel computes less than `ridge` FLOP per byte: with addresses,
        casts and other instructions that a different kernel for the same need not have. Where only DRAM's throughput
        is known and it is not what limits, caches may be: None.

        >>> busy = ProfiledKernel(name="k", order=0, memory_percent=20.0, compute_percent=70.0)
        >>> busy.bound(), ProfiledKernel(name="k", order=0, memory_percent=65.0, compute_percent=70.0).bound()
        ('compute', 'neither')
        """
        if self.memory_percent is None and self.dram_percent is not None and self.compute_percent is not None:
            busy = self.dram_percent >= max(BUSY_PERCENT, self.compute_percent + APART_PERCENT)
            return "memory" if busy else None
        if self.memory_percent is None or self.compute_percent is None:
            return None
        if max(self.memory_percent, self.compute_percent) < BUSY_PERCENT:
            return "latency"
        if abs(self.memory_percent - self.compute_percent) < APART_PERCENT:
            return "neither"
        if self.memory_percent > self.compute_percent:
            return "memory"
        below = ridge is not None and self.intensity is not None and self.intensity < ridge
        return "neither" if below and self.compute_percent < FULL_PERCENT else "compute"


# Of what was left out of a report: what it is, and why.
_REASONS = {
    "ragged_row": ("row", "cut off, or broken by other output"),
    "no_kernel_name": ("row", "without a kernel's name"),
    "value_of_unknown_unit": ("value", "in a unit that is not known"),
    "second_kernel_of_one_id": ("row", "with the ID of another kernel"),
    "rule_beyond_bound": ("rule's result", "beyond 100,000 characters of one kernel"),
    "not_a_kernel": ("result", "of a range or graph profiled as a whole"),
}


class CounterReport(msgspec.Struct, frozen=True, kw_only=True):
    """One report, in the order of launches; no word of the host, the user or the command."""

    source: str  # file name, without its folder
    page: str  # `raw`, `details`, both, or `report` (the binary one)
    kernels: tuple[ProfiledKernel, ...]
    dropped: dict[str, int] = {}  # rows that could not be kept, by reason
    warnings: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out of it and why, and its warnings, a sentence each.

        >>> CounterReport(source="r.csv", page="raw", kernels=(), dropped={"no_kernel_name": 2}).notes
        ("left out 2 rows without a kernel's name",)
        """
        named = ((count, *_REASONS[reason]) for reason, count in self.dropped.items())
        return (*(f"left out {count_text(count, noun)} {why}" for count, noun, why in named), *self.warnings)
