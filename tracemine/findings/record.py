"""What a scan says: findings, and what was looked at and not reported. Frozen; the JSON contract's own fields."""

from __future__ import annotations

import msgspec

from tracemine.cost import NOTHING, Range, Traffic

__all__ = [
    "NOTHING",
    "Finding",
    "Intensity",
    "Range",
    "Scan",
    "Source",
    "StepSummary",
    "Summary",
    "TraceSummary",
    "Traffic",
]

FINDINGS_SCHEMA_VERSION = 1


class Intensity(msgspec.Struct, frozen=True, kw_only=True):
    """FLOP per byte of device memory traffic, unfused and fused."""

    before: float
    after: float


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A Python line that leads to the finding."""

    file: str
    line: int
    function: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """All matches of one rule with the same signature. Savings and measured time are totals over the trace."""

    fingerprint: str
    rule: str
    title: str
    evidence: str  # `proven`, `consistent`, `adjacent`: how sure it is that the activities belong together
    severity: str  # `high`, `medium`, `low`
    occurrences: int
    activities: tuple[tuple[int, ...], ...]  # rows of `activities`, one tuple an occurrence
    ops: tuple[str, ...]  # operator names in order; kernel families where no operator is known
    kernels: tuple[str, ...]  # kernel names of the first occurrence
    shapes: str | None
    dtype: str | None
    module: str | None  # module path with counters replaced by `*`
    source: tuple[Source, ...]  # innermost first
    measured_ns: int  # GPU time of the activities, or idle time of the gaps
    fused_ns: Range | None
    traffic_bytes: Traffic | None
    flops: int | None
    arithmetic_intensity: Intensity | None
    intermediate_bytes: int | None
    gpu_saving_ns: Range
    step_saving_ns: Range
    why: str
    fix: str
    assumptions: tuple[str, ...]
    verdict: None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What the trace measured, and the sums over findings. Nanoseconds."""

    span_ns: int
    gpu_time_ns: int  # sum of activity durations
    gpu_busy_ns: int  # their union over streams, a device at a time
    gpu_idle_ns: int  # the rest of the span
    per_step: StepSummary | None
    gpu_saving_ns: Range
    step_saving_ns: Range


class StepSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Mean over recorded steps, nanoseconds."""

    span_ns: int
    gpu_busy_ns: int


class TraceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was read."""

    path: str
    format: str
    gpu: str | None
    steps: int
    activities: int
    unattributed: int


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `tracemine scan --format json` prints, in this order of keys."""

    schema_version: int = FINDINGS_SCHEMA_VERSION
    trace: TraceSummary
    summary: Summary
    findings: tuple[Finding, ...]
    dropped: dict[str, int]
    warnings: tuple[str, ...] = ()
