"""Records of where the time goes. Sums are over all steps that count, or over the trace: `Top.per` says which."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from tracemine.findings.graphs import Span, SpanPart
from tracemine.findings.record import Range

By = Literal["kernel", "operator", "module", "line", "stream", "device", "phase"]
BY: Final[tuple[By, ...]] = ("kernel", "operator", "module", "line", "stream", "device", "phase")
HostBy = Literal["line", "module", "operator", "phase", "tree"]
HOST_BY: Final[tuple[HostBy, ...]] = ("line", "module", "operator", "phase", "tree")
TOP_SCHEMA_VERSION: Final = 1


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A finding that says something of a row's kernels, and how much of the row's GPU time they are."""

    rank: int  # its place among the findings that reports show, from 1
    fingerprint: str
    rule: str
    gpu_time_ns: int


class TopRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row: a kernel, an operator, a module … Null: not known. A row has what its parts have, and more."""

    name: str | None  # null: what could not be attributed
    parent: int | None  # the row that it is part of
    depth: int  # 0: part of no other
    instances: int  # modules of this class in this place; 1 of all else
    calls: int  # kernels, copies and sets
    gpu_time_ns: int
    own_ns: int  # of it, in none of its parts
    share: float  # of the GPU time of all rows, 0 to 1
    busy_ns: int | None  # of a stream or a device: each moment once
    flops: int | None  # of products, convolutions and attention, from shapes
    flops_per_s: float | None  # over all of its time
    flops_reach: float | None  # of the rate that the device's libraries reach, at most 1: faster, it reaches that
    bytes: int | None  # moved, from shapes or as recorded, of what that is known of
    bytes_per_s: float | None  # over the time of that
    bytes_reach: float | None  # of what a large copy reaches; of a copy over a link, of what the link does
    findings: tuple[Claim, ...]  # most time first


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """GPU time in no row, as no step that counts launched it."""

    says: str
    calls: int
    gpu_time_ns: int


class Utilisation(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the device's peak arithmetic was used, 0 to 1: FLOPs at the data sheet's dense peaks ÷ time.

    `mfu` counts what the model needs, `hfu` what was computed again for the backward pass as well.
    """

    mfu: float | None  # null: what was computed again cannot be separated from the rest
    hfu: float
    unprofiled_mfu: float | None  # of the unprofiled step; null: that is not known
    unprofiled_hfu: float | None
    flops: int
    recomputed_flops: int | None
    peak: str  # in words


class Top(msgspec.Struct, frozen=True, kw_only=True):
    """Where the GPU's time goes. Nanoseconds; sums over `steps` steps where `per` is `step`, else over the trace."""

    schema_version: int = TOP_SCHEMA_VERSION
    by: str
    trace: str
    gpu: str | None
    per: Literal["step", "trace"]
    steps: int  # that are summed over; 1 where `per` is `trace`
    steps_source: str | None  # as `summary.per_step.source` of a scan; null: no steps are known
    gpu_time_ns: int  # of all rows
    busy_ns: int  # the same, each moment of a device once
    calls: int
    devices: int
    recorded_ns: int  # of one step, or of the whole span
    unprofiled_ns: int | None  # the same, estimated or timed alone
    utilisation: Utilisation | None  # null: FLOPs, or the device's peak, are not known
    rows: tuple[TopRow, ...]  # most GPU time first, each before its parts
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]
    untimed: bool = False  # rows are sums: when they passed was not recorded, nor what `recorded_ns` and `busy_ns` say

    @property
    def overlap_ns(self) -> int:
        """GPU time at which something else ran on the same device."""
        return self.gpu_time_ns - self.busy_ns


class HostKind(msgspec.Struct, frozen=True, kw_only=True):
    """Host time of one kind of work: `operator`, `launch`, `wait`, `python` …"""

    kind: str
    host_ns: int | None  # null: the recording would show none, however much there was
    critical_ns: int | None  # of it, while no device was at work and the next launch was to come


class HostRow(msgspec.Struct, frozen=True, kw_only=True):
    """Host time of a line, a module or an operator, with that of its parts."""

    name: str | None  # null: what could not be attributed
    kind: str | None  # of work, where the row is all that a line of a tree does of it; else null
    parent: int | None  # the row that it is part of
    depth: int  # 0: part of no other
    instances: int  # modules of this class in this place; 1 of all else
    host_ns: int
    own_ns: int  # of it, in none of its parts
    share: float  # of the host time of all rows, 0 to 1
    operator_ns: int
    launch_ns: int
    wait_ns: int
    python_ns: int
    other_ns: int  # the rest: allocations, loading, compiling, other calls
    critical_ns: int  # of host_ns, while no device was at work and the next launch was to come


class HostTop(msgspec.Struct, frozen=True, kw_only=True):
    """Where the host's time goes, in the window that was slowed down least.

    Nanoseconds; sums over `steps` steps where `per` is `step`.
    """

    schema_version: int = TOP_SCHEMA_VERSION
    by: str
    trace: str
    gpu: str | None
    per: Literal["step", "trace"]
    steps: int  # that are summed over; 1 where `per` is `trace`
    steps_source: str | None
    window: Literal["whole", "light"]  # light: between two launches or waits time is shared out as in the whole one
    host_ns: int  # of all rows: the spans of the steps, to the nanosecond
    critical_ns: int
    unprofiled_ns: int | None  # how long a step takes where nothing records, estimated or timed alone
    kinds: tuple[HostKind, ...]  # most time first
    rows: tuple[HostRow, ...]  # most host time first, each before its parts
    notes: tuple[str, ...]


class WaitRow(msgspec.Struct, frozen=True, kw_only=True):
    """Waits for the device of one line, for one use. Sums over the steps."""

    line: str | None  # null: no lines were recorded
    operator: str | None  # the outermost around it; null: none
    kind: str  # what waits: `number`, `mask`, `to_host` …
    use: str | None  # what the value is used for; null: that is not known
    waits: int
    wait_ns: int  # in calls that wait, in the window that `WaitTop.window` names
    saving_ns: Range | None  # how much shorter the steps are unprofiled without it and those above; null: not asked


class GraphTop(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a CUDA graph, or torch.compile, would work: of the step, and of what launches a twentieth of it or more.

    Sums over `steps` steps where `per` is `step`, else over the trace.
    """

    schema_version: int = TOP_SCHEMA_VERSION
    trace: str
    gpu: str | None
    per: Literal["step", "trace"]
    steps: int
    steps_source: str | None
    unprofiled_ns: int | None  # as in a table of host time
    answer: str  # in words
    fix: str | None  # what to write; null: nothing that is known to work
    step: Span
    spans: tuple[Span, ...]  # most launches first
    parts: tuple[SpanPart, ...]  # of the step, between what stops a capture; most launches first


class WaitTop(msgspec.Struct, frozen=True, kw_only=True):
    """Where the host waits for the device. Sums over `steps` steps where `per` is `step`, else over the trace."""

    schema_version: int = TOP_SCHEMA_VERSION
    trace: str
    gpu: str | None
    per: Literal["step", "trace"]
    steps: int
    steps_source: str | None
    window: Literal["whole", "light"]  # light: recorded with the host slowed down little, so that it waits as it does
    wait_ns: int
    unprofiled_ns: int | None  # as in a table of host time
    rows: tuple[WaitRow, ...]  # what saves most first
