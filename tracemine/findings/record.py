"""Records of a scan: findings, and what was looked at and not reported. Frozen; the JSON contract's own fields."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import msgspec
import numpy as np

from tracemine.findings.summary import (
    Bound,
    DeviceTime,
    IdleCause,
    Part,
    Parts,
    Payback,
    PeakMemory,
    Recorded,
    ReplayedBatch,
    Serving,
    ServingKind,
    Share,
    Spent,
    StepApart,
    StepKind,
    StepSummary,
    Summary,
    TraceSummary,
    Transfers,
    UnprofiledTime,
    WorkOfClass,
)
from tracemine.perfmodel import NOTHING, Range, Traffic
from tracemine.rows.table import IntArray
from tracemine.units import time_text

__all__ = [
    "NOTHING", "Alike", "Bound", "Counted", "DeviceTime", "Finding", "Identity", "IdleCause", "Intensity", "Loop",
    "Part", "Parts", "Payback", "PeakMemory", "PerStep", "Range", "Recorded", "ReplayedBatch", "Scan", "Serving",
    "ServingKind", "Share", "Source", "Spent", "StepApart", "StepKind", "StepSummary", "Summary", "TraceSummary",
    "Traffic", "Transfers", "UnprofiledTime", "Variant", "Verified", "WorkOfClass",
]  # fmt: skip

FINDINGS_SCHEMA_VERSION = 2


class Intensity(msgspec.Struct, frozen=True, kw_only=True):
    """FLOP per byte of device memory traffic, unfused and fused."""

    before: float
    after: float
    # The roofline's ridge point: below it memory is the limit. Peak arithmetic of what a generated kernel computes in
    # (float64 for float64, else float32, without tensor cores) ÷ peak bandwidth, both of the data sheet.
    ridge: float | None = None


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A Python line that leads to the finding."""

    file: str
    line: int
    function: str
    begins: bool = False  # the line is where the function begins: profilers record that, not what was called from where
    # The line in it of the one statement that leads on, by source that was at hand. Null: not asked, or several may.
    statement: int | None = None


class Loop(msgspec.Struct, frozen=True, kw_only=True):
    """A loop of the program: one run of it, in one step."""

    source: Source | None  # the innermost function that all iterations lie in; null: no stacks were recorded
    turns: int
    launches: int  # an iteration, mean
    gpu_ns: int  # GPU time an iteration, mean
    host_ns: int  # from one iteration's first operator to the next one's, as recorded, mean
    dependence: str  # of turns on each other: `independent`, `accumulates`, `carried`
    differs: str | None  # what iterations read that is another for each: `weights`, `slices`, `tensors`, `numbers`
    sizes_differ: bool  # shapes differ from iteration to iteration
    waits: bool  # the host waits for the device in at least half of the iterations


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of Nsight Compute of a finding's kernels, summed over its occurrences. Null: not known of all."""

    kernels: int  # in all its occurrences
    known: int  # of those: found in a report
    exact: int  # of those: by name, grid, block and order
    dram_bytes: int | None
    derived: bool  # from rates or throughputs, not counted byte by byte
    flops: int | None
    arithmetic_intensity: float | None
    ridge: float | None  # FLOP per byte, of the data types that they compute in
    bounds: dict[str, int]  # known kernels by what limits them: `memory`, `compute`, `latency`, `neither`


class Alike(msgspec.Struct, frozen=True, kw_only=True):
    """The occurrences like the first, in strides and traffic too: a verdict on the first speaks for them."""

    occurrences: int
    measured_ns: int
    gpu_saving_ns: Range  # predicted


# What a verdict is of, where no library's call stands in the place of a chain.
KERNEL, PINNED, GRAPH, CALL = "kernel", "pinned memory", "CUDA graph", "another call"
IN_STEP = "L7"  # the level of what `apply` found right and faster in the program that was given


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on the first occurrence (`tracemine verify`). Times are medians of it alone, nanoseconds."""

    # What the finding's saving of GPU time rests on now: `measured`; `predicted`, where the verdict leaves that open;
    # `refuted`: one kernel loses, or is wrong, and nothing is claimed.
    basis: str
    level: str  # L0 to L7
    says: str
    device: str | None  # null: without a GPU
    state: str | None  # of the cache: `cold`, `warm`
    eager_ns: int | None
    fused_ns: int | None
    compiled_ns: int | None  # under torch.compile
    saved_share: Share | None  # of eager's time that `by` takes off, 1 − its time ÷ eager's, with the 95 % interval
    predicted_ns: Range  # saving of GPU time that was predicted, over the trace
    occurrences: int  # that it speaks for
    assumptions: tuple[str, ...]
    not_tested: tuple[str, ...]
    file: str  # that it was read from
    library: str | None = None  # a call of PyTorch's library that says the same; null: none is known
    library_ns: int | None = None
    by: str = KERNEL  # what the verdict is of: the kernel; pinned memory of a copy; a CUDA graph of gaps; a faster call


class Identity(msgspec.Struct, frozen=True):
    """Identity of a finding, or a variant of one, across recordings. No time, path, order or threshold.

    Of a finding: its cause, the class of its module (where none is known the operators that make it what it is) and
    its dtype; of a variant: that, its operators and its shapes.
    """

    finding: str  # 16 hex digits
    aliases: tuple[str, ...] = ()  # what else it may be called: as if no module were known; as schema version 1 did


class PerStep(msgspec.Struct, frozen=True, kw_only=True):
    """Savings a step, nanoseconds: of what a finding saves in steps, the mean over them."""

    measured_ns: int
    gpu_saving_ns: Range
    step_saving_ns: Range
    step_saving_alone_ns: Range | None = None  # by its fix alone, as that of Finding
    share_of_unprofiled: float  # step_saving_ns ÷ summary.per_step.unprofiled_ns, mid of both


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a finding: the same in other operators (a first or last layer) or shapes. Fields as those of Finding.

    Its occurrences stand together in the finding's `activities`, which has those of the first variant first.
    """

    identity: Identity
    evidence: str
    occurrences: int
    ops: tuple[str, ...]
    kernels: tuple[str, ...]
    shapes: str | None
    module: str | None
    source: tuple[Source, ...]
    measured_ns: int
    fused_ns: Range | None
    traffic_bytes: Traffic | None
    flops: int | None
    arithmetic_intensity: Intensity | None
    intermediate_bytes: int | None
    gpu_saving_ns: Range
    step_saving_ns: Range
    assumptions: tuple[str, ...]
    counters: Counted | None = None
    alike: Alike | None = None
    verdict: Verified | None = None
    dtype: str | None = None  # null also in files that do not say it of each: there it is the finding's


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One cause in one place. Savings and measured time are totals over the trace, of all its variants."""

    fingerprint: str  # identity.finding
    identity: Identity
    rule: str
    cause: str  # why it is slow: what there is one fix for
    title: str
    # How sure it is that the activities belong together: `proven`, `consistent`, or `adjacent` (neighbours only). A gap
    # whose cause follows from recorded call times is proven, and so is the kind of memory of a copy.
    evidence: str
    severity: str  # `high`, `medium`, `low`
    reported: bool = True  # false: it saves too little for a report to show it
    occurrences: int
    activities: tuple[tuple[int, ...], ...]  # rows of `activities`, one tuple an occurrence; of gaps, those that waited
    ops: tuple[str, ...]  # operators in order, kernel families where none is known; if they differ, most time first
    kernels: tuple[str, ...]  # kernel names of the first occurrence
    shapes: str | None  # null: not recorded, or its variants differ
    dtype: str | None
    module: str | None  # module path with counters replaced by `*`: of the variant that saves most
    source: tuple[Source, ...]  # of one occurrence, innermost first
    measured_ns: int  # GPU time of the activities, or idle time of the gaps
    fused_ns: Range | None
    traffic_bytes: Traffic | None
    flops: int | None
    arithmetic_intensity: Intensity | None
    intermediate_bytes: int | None  # of the largest occurrence
    gpu_saving_ns: Range
    step_saving_ns: Range  # its part of what all findings save together: these add up
    # What the steps get shorter by where its fix is the only one that is made: these do not add up. Null: too small to
    # be reported, refuted, or stored by a version that did not say.
    step_saving_alone_ns: Range | None = None
    per_step: PerStep | None = None  # null: no steps are known
    why: str
    fix: str
    assumptions: tuple[str, ...]
    counters: Counted | None = None  # null: no report of Nsight Compute was given, or none of its kernels is here
    alike: Alike | None = None  # of the first variant; null: of idle time
    verdict: Verified | None = None  # of the first variant that has one; null: no verdict was given
    loop: Loop | None = None  # of the program, in which most of it lies; null: in none, or dataflow is not known
    variants: tuple[Variant, ...] = ()  # most worth first

    @property
    def on_gpu(self) -> bool:
        """Return whether it is about what the GPU does; otherwise it is about idle time."""
        return self.fused_ns is not None or self.gpu_saving_ns != NOTHING

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names of the finding: verdicts name its variants."""
        every = (self.identity, *(variant.identity for variant in self.variants))
        return tuple(name for one in every for name in (one.finding, *one.aliases))

    @property
    def refuted(self) -> bool:
        """Return whether verdicts took away all that it claims."""
        verdicts = [variant.verdict for variant in self.variants] or [self.verdict]
        return all(verdict is not None and verdict.basis == "refuted" for verdict in verdicts)

    def __str__(self) -> str:
        """Return one line: its first digits, title, and what its fix saves over the trace. `repr` has all fields."""
        saved = ", ".join(
            f"{time_text(saving.mid)} of {what}"
            for saving, what in ((self.gpu_saving_ns, "GPU time"), (self.step_saving_ns, "the step"))
            if saving.mid
        )
        return f"{self.fingerprint[:4]} {self.title}: saves {saved or 'nothing'} over the trace"


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """Two operators that share data and are not one kernel, wherever the reason is the same."""

    first: str
    second: str
    reason: str
    occurrences: int
    bytes: int | None  # of memory traffic that stays, over the trace


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `tracemine scan --format json` prints, in this order of keys."""

    schema_version: int = FINDINGS_SCHEMA_VERSION
    trace: TraceSummary
    summary: Summary
    findings: tuple[Finding, ...]
    dropped: dict[str, int]
    warnings: tuple[str, ...] = ()
    refused: tuple[Refused, ...] | None = None  # null: not asked for
    evidence: dict[str, int] | None = None  # verdicts that were read, by what became of them; null: none were asked for
    recorded: Recorded | None = None  # null: stored by a version that did not say
    spent: Spent | None = None  # as recorded

    @property
    def reported(self) -> tuple[Finding, ...]:
        """The findings that a report for people shows."""
        return tuple(finding for finding in self.findings if finding.reported)


def activity_rows(findings: Iterable[Finding]) -> IntArray:
    """Return the rows of all occurrences of findings, in their order."""
    occurrences = chain.from_iterable(finding.activities for finding in findings)
    return np.fromiter(chain.from_iterable(occurrences), np.int64)
