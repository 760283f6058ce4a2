"""What tools take and what they answer, as records. Times are whole nanoseconds, sizes whole bytes, null is not known.

Texts that may hold words of a trace are `Quoted`; all others are tracemine's own, or one word without spaces.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tracemine.agents.quoted import Quoted
from tracemine.perfmodel import Range, Traffic
from tracemine.top import By

# --- what is asked ----------------------------------------------------------------------------------------------------

Short = Annotated[str, Meta(min_length=1, max_length=100)]
Place = Annotated[str, Meta(min_length=1, max_length=4096)]
TracePath = Annotated[
    Place, Meta(description="A trace, timeline, capture folder or findings file, below a folder that the server reads.")
]
Fingerprint = Annotated[
    str, Meta(description="A finding's, or its first digits: four at least.", pattern="^[0-9a-f]{4,16}$")
]
GPU = Annotated[Short | None, Meta(description="Estimate for this GPU where the trace names none: h100, mi300x.")]
Limit = Annotated[int, Meta(description="So many entries.", ge=1, le=25)]
Lines = Annotated[int, Meta(description="So many lines.", ge=1, le=400)]
Cursor = Annotated[
    Short | None, Meta(description="`next_cursor` of the answer before; without it the first page is answered.")
]
Output = Annotated[
    Place | None, Meta(description="Write files into this folder. Only where the server may: --allow-write.")
]


class AskScan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `scan` takes."""

    path: TracePath
    gpu: GPU = None


class AskFindings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `findings` takes."""

    path: TracePath
    rule: Annotated[Short | None, Meta(description="Only findings of this rule.")] = None
    min_saving: Annotated[
        Short | None, Meta(description='Only what saves so much: "50us", "1%". "0ns" is all; null is as reports show.')
    ] = None
    gpu: GPU = None
    limit: Limit = 10
    cursor: Cursor = None


class AskTop(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `top` takes."""

    path: TracePath
    by: Annotated[By, Meta(description="What GPU time is added up by.")] = "kernel"
    gpu: GPU = None
    limit: Limit = 10
    cursor: Cursor = None


class AskExplain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `explain` takes."""

    path: TracePath
    fingerprint: Fingerprint
    gpu: GPU = None


class AskWhyNot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `why_not` takes."""

    path: TracePath
    operator: Annotated[
        Short | None, Meta(description="Only pairs with an operator whose name holds this: mul, aten::mm.")
    ] = None
    limit: Limit = 10
    cursor: Cursor = None


class AskDiff(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `diff` takes."""

    before: TracePath
    after: TracePath
    status: Annotated[
        Literal["new", "worse", "fixed", "improved", "moved", "unknown", "same"] | None,
        Meta(description="Only changes of this status."),
    ] = None
    gpu: GPU = None
    limit: Limit = 10
    cursor: Cursor = None


class AskEmit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `emit` takes."""

    path: TracePath
    fingerprint: Fingerprint
    gpu: GPU = None
    output: Output = None
    limit: Lines = 200
    cursor: Cursor = None


class AskVerify(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `verify` takes."""

    path: TracePath
    fingerprint: Fingerprint
    gpu: GPU = None
    output: Output = None
    time_limit_s: Annotated[int, Meta(description="Processor time that a validation may take.", ge=1, le=600)] = 60


# --- what is answered -------------------------------------------------------------------------------------------------


class UnprofiledAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How long it takes without a profiler; `source`: captured (timed alone), estimated, or recorded (as it is)."""

    low: int
    mid: int
    high: int
    source: str


class RecordedParts(msgspec.Struct, frozen=True, kw_only=True):
    """What the recording has. Without shapes, stacks and an execution trace findings are fewer and less sure."""

    shapes: bool
    stacks: bool
    execution_trace: bool
    cut_off: bool


class FindingRow(msgspec.Struct, frozen=True, kw_only=True):
    """A finding in short. Savings are of a step where steps are known, else of the whole trace: `per` says which."""

    fingerprint: str
    rule: str
    title: Quoted
    severity: str
    evidence: str
    occurrences: int
    measured_ns: int
    step_saving_ns: Range
    gpu_saving_ns: Range
    module: Quoted | None
    source: Quoted | None


class ScanAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a step slow, in short."""

    trace: Quoted
    format: str
    gpu: Quoted | None
    estimated_for: Quoted | None
    steps: int
    activities: int
    per: Literal["step", "trace"]
    span_ns: int
    gpu_busy_ns: int
    unprofiled_ns: UnprofiledAnswer | None
    bound_by: str | None
    step_saving_ns: Range
    gpu_saving_ns: Range
    findings: int
    too_small_to_show: int
    best: tuple[FindingRow, ...]
    recorded: RecordedParts | None
    warnings: tuple[Quoted, ...]


class FindingsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Findings, most worth first."""

    trace: Quoted
    per: Literal["step", "trace"]
    total: int
    findings: tuple[FindingRow, ...]
    next_cursor: str | None


class TopEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """GPU time of one kernel, module …; a key that is left out is not known. Reaches are shares of the device's."""

    name: Quoted | None  # null: what could not be attributed
    ns: int
    share: float
    calls: int
    depth: int = 0  # a row is part of the one before it that is less deep
    tflop_per_s: float | None = None
    flops_reach: float | None = None
    gb_per_s: float | None = None
    bytes_reach: float | None = None
    findings: tuple[str, ...] = ()


class TopAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Where GPU time goes: of a step, or of the whole trace."""

    per: Literal["step", "trace"]
    gpu_time_ns: int
    busy_ns: int
    recorded_ns: int
    mfu: float | None
    hfu: float | None
    total: int
    rows: tuple[TopEntry, ...]
    next_cursor: str | None
    notes: tuple[Quoted, ...]


class RuleText(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule says, whatever the trace."""

    id: str
    title: str
    what: str
    why: str
    limits: tuple[str, ...]
    false_positives: tuple[str, ...]
    references: tuple[str, ...]


class VariantRow(msgspec.Struct, frozen=True, kw_only=True):
    """The same finding in other operators or shapes. Figures are over the whole trace."""

    fingerprint: str
    occurrences: int
    shapes: Quoted | None
    measured_ns: int
    gpu_saving_ns: Range


class VerdictRow(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict that was kept with the finding."""

    level: str
    basis: str
    says: Quoted


class ExplainAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one finding."""

    trace: Quoted
    per: Literal["step", "trace"]
    finding: FindingRow
    rule: RuleText | None
    evidence_says: str
    fix: Quoted
    one_kernel: Annotated[bool, Meta(description="Whether `emit` is worth a try: its fix is a kernel or another call.")]
    operators: tuple[Quoted, ...]
    kernels: tuple[Quoted, ...]
    kernels_in_all: int
    shapes: Quoted | None
    dtype: Quoted | None
    sources: tuple[Quoted, ...]
    fused_ns: Range | None
    traffic_bytes: Traffic | None
    assumptions: tuple[Quoted, ...]
    variants: tuple[VariantRow, ...]
    variants_in_all: int
    verdict: VerdictRow | None


class RefusedRow(msgspec.Struct, frozen=True, kw_only=True):
    """Two operators that share data and are not one kernel, and why."""

    first: Quoted
    second: Quoted
    reason: Quoted
    occurrences: int
    bytes: int | None


class LeftOutRow(msgspec.Struct, frozen=True, kw_only=True):
    """Matches of rules that are no findings, by reason."""

    reason: str
    says: Quoted
    matches: int


class WhyNotAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What is not reported, and why. `refused` is null where findings were stored without it: name the trace then."""

    trace: Quoted
    total: int
    refused: tuple[RefusedRow, ...] | None
    left_out: tuple[LeftOutRow, ...]
    next_cursor: str | None


class StepTook(msgspec.Struct, frozen=True, kw_only=True):
    """How long a step, or its GPU work, takes on both sides."""

    status: str
    before_ns: Range
    after_ns: Range
    change_ns: Range
    noise_ns: int


class DiffersRow(msgspec.Struct, frozen=True, kw_only=True):
    """Something other than the program that is not the same on both sides."""

    what: str
    before: Quoted
    after: Quoted


class ChangeRow(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a finding."""

    status: str
    rule: str
    title: Quoted
    reason: Quoted | None
    before: tuple[str, ...]
    after: tuple[str, ...]
    before_ns: int
    after_ns: int
    noise_ns: int


class DiffAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each finding. `comparable` is false where nothing of the two recordings compares."""

    comparable: bool
    per: str
    basis: str
    step: StepTook
    gpu_work: StepTook
    counts: dict[str, int]
    predicted_step_saving_ns: Range | None
    differs: tuple[DiffersRow, ...]
    total: int
    changes: tuple[ChangeRow, ...]
    next_cursor: str | None
    notes: tuple[Quoted, ...]


class EmitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A file that runs a finding's operators and its fix, to read; or why there is none."""

    fingerprint: str
    rule: str
    refused: Quoted | None
    file_name: Quoted | None
    text: Quoted | None
    lines_in_all: int
    next_cursor: str | None
    assumptions: tuple[Quoted, ...]
    written: tuple[Quoted, ...]


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict. Nanoseconds of one occurrence; `level` is L0 (predicted) to L5, as docs/guide/verify.md has them."""

    fingerprint: str
    rule: str
    level: str
    says: Quoted
    predicted_ns: Range
    measured_ns: int | None
    within_interval: bool | None
    best: str | None
    assumptions: tuple[Quoted, ...]
    not_tested: tuple[Quoted, ...]
    bug: Quoted | None


class VerifyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked. Without a GPU nothing is timed, and levels end at L2."""

    gpu: Quoted | None
    verdicts: tuple[Judged, ...]
    written: tuple[Quoted, ...]
