"""What tools take and what they answer, as records. Answers are short: each word costs an agent.

Texts that may hold words of a trace stand below `untrusted`; all others are tracemine's own, or one word.
Figures that a person reads are texts with their unit; counts are of a step where `per` says so. Null is not known.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tracemine.top import By

# --- what is asked ----------------------------------------------------------------------------------------------------

Short = Annotated[str, Meta(min_length=1, max_length=100)]
Place = Annotated[str, Meta(min_length=1, max_length=4096)]
TracePath = Annotated[Place, Meta(description="A trace, capture folder, timeline or findings file that is served.")]
FindingId = Annotated[
    str,
    Meta(
        description="A finding's id, four of its first digits, or its number.", pattern="^([0-9]{1,3}|[0-9a-f]{4,16})$"
    ),
]
GPU = Annotated[Short | None, Meta(description="Estimate for it where the trace names none: h100, mi300x.")]
Limit = Annotated[int, Meta(description="Rows.", ge=1, le=25)]
Lines = Annotated[int, Meta(description="Lines.", ge=1, le=400)]
Cursor = Annotated[Short | None, Meta(description="next_cursor of the answer before.")]
Output = Annotated[Place | None, Meta(description="Write files into this folder; needs --allow-write.")]


class AskTraces(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `traces` takes."""

    limit: Limit = 10
    cursor: Cursor = None


class AskScan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `scan` takes."""

    path: TracePath
    gpu: GPU = None
    rule: Annotated[Short | None, Meta(description="Only findings of this rule.")] = None
    min_saving: Annotated[Short | None, Meta(description='Only what saves so much: "50us", "1%"; "0ns" is all.')] = None
    limit: Limit = 3
    cursor: Cursor = None


class AskDoctor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `doctor` takes."""

    path: TracePath


class AskTop(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `top` takes."""

    path: TracePath
    by: By | Literal["host", "host_tree", "waits"] = "kernel"
    gpu: GPU = None
    limit: Limit = 10
    cursor: Cursor = None


class AskExplain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `explain` takes."""

    path: TracePath
    id: FindingId
    details: Annotated[bool, Meta(description="Kernels, variants, assumptions, what the rule says.")] = False
    gpu: GPU = None


class AskWhyNot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `why_not` takes."""

    path: TracePath
    operator: Annotated[Short | None, Meta(description="List pairs with this operator: mul, aten::mm.")] = None
    limit: Limit = 5
    cursor: Cursor = None


class AskDiff(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `diff` takes."""

    before: TracePath
    after: TracePath
    status: Literal["new", "worse", "fixed", "improved", "moved", "unknown", "same"] | None = None
    gpu: GPU = None
    limit: Limit = 5
    cursor: Cursor = None


class AskEmit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `emit` takes."""

    path: TracePath
    id: FindingId
    gpu: GPU = None
    output: Output = None
    limit: Lines = 120
    cursor: Cursor = None


class AskVerify(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `verify` takes."""

    path: TracePath
    id: FindingId
    gpu: GPU = None
    output: Output = None
    time_limit_s: Annotated[int, Meta(description="CPU time of one validation.", ge=1, le=600)] = 60


# --- what is answered -------------------------------------------------------------------------------------------------

Per = Literal["step", "trace"]


class TraceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A trace that is served."""

    path: str
    bytes: int


class TraceTexts(msgspec.Struct, frozen=True, kw_only=True):
    """Paths as the other tools take them."""

    traces: tuple[TraceRow, ...]


class TracesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The traces below the served folders."""

    total: int
    next_cursor: str | None
    next: str
    untrusted: TraceTexts


class FindingRow(msgspec.Struct, frozen=True, kw_only=True):
    """A finding in short. `times`: how often, a step or over the trace, as `per` says; `saves`: of the step, alone."""

    id: str
    rule: str
    cause: str
    saves: str
    times: float
    evidence: str
    where: str | None
    do: str


class ScanTexts(msgspec.Struct, frozen=True, kw_only=True):
    """What the trace says, and what is said of it."""

    trace: str
    gpu: str | None
    headline: str
    one_edit: str | None  # what does several of them at once: before all else
    findings: tuple[FindingRow, ...]
    warnings: tuple[str, ...]


class ScanAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a step slow, in short. `missing`: what was not recorded; findings are fewer and less sure without."""

    per: Per
    steps: int
    activities: int
    bound_by: str | None
    takes: str
    gpu_work: str
    all_save: str
    total: int
    too_small_to_show: int
    missing: tuple[str, ...]
    next_cursor: str | None
    next: str
    untrusted: ScanTexts


class TopEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """GPU time of one kernel, module …; a key that is left out is not known. Reaches are shares of the device's."""

    name: str | None  # null: what could not be attributed
    us: float
    share: float
    calls: int
    depth: int = 0  # a row is part of the one before it that is less deep
    tflop_per_s: float | None = None
    flops_reach: float | None = None
    gb_per_s: float | None = None
    bytes_reach: float | None = None
    saves_us: float | None = None  # of a wait: the step is so much shorter without it
    critical_us: float | None = None  # of host time: no device was at work meanwhile
    findings: tuple[str, ...] = ()


class TopTexts(msgspec.Struct, frozen=True, kw_only=True):
    """The rows, most GPU time first."""

    trace: str
    rows: tuple[TopEntry, ...]
    notes: tuple[str, ...]


class TopAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Where GPU time goes, or the host's, as recorded: of a step, or of the whole trace."""

    per: Per
    gpu_time: str | None
    host_time: str | None = None
    mfu: float | None
    hfu: float | None
    total: int
    next_cursor: str | None
    next: str
    untrusted: TopTexts


class VariantRow(msgspec.Struct, frozen=True, kw_only=True):
    """The same finding in other operators or shapes."""

    id: str
    times: float
    shapes: str | None


class ExplainTexts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the trace says of a finding. Those with a default are answered with `details`, or where there is one."""

    trace: str
    cause: str
    where: tuple[str, ...]
    fix: str
    verdict: str | None = None
    shapes: str | None = None
    dtype: str | None = None
    operators: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    variants: tuple[VariantRow, ...] = ()


class RuleText(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule says, whatever the trace."""

    title: str
    what: str
    why: str
    references: tuple[str, ...]


class ExplainAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finding. `limits`, `false_positives`: when its rule is wrong. `emit`: a kernel or call can be made for it.

    `variant_of`: the finding that the asked one is a part of, whose figures these are.
    """

    id: str
    per: Per
    rule: str
    saves: str
    saves_gpu: str
    costs: str
    times: float
    evidence: str
    emit: bool
    limits: tuple[str, ...]
    false_positives: tuple[str, ...]
    next: str
    untrusted: ExplainTexts
    variant_of: str | None = None
    moves: str | None = None
    about: RuleText | None = None


class RefusedRow(msgspec.Struct, frozen=True, kw_only=True):
    """Operators that share data and are not one kernel, and why: so many pairs, `first` and `second` the largest."""

    reason: str
    pairs: int
    first: str
    second: str


class LeftOutRow(msgspec.Struct, frozen=True, kw_only=True):
    """Matches of rules that are no findings, by reason."""

    reason: str
    matches: int


class WhyNotTexts(msgspec.Struct, frozen=True, kw_only=True):
    """`refused` is null where findings were stored without it: name the trace then."""

    trace: str
    refused: tuple[RefusedRow, ...] | None
    left_out: tuple[LeftOutRow, ...]


class WhyNotAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What is not reported, and why: by reason, or pair by pair where an operator was asked for."""

    total: int
    next_cursor: str | None
    next: str
    untrusted: WhyNotTexts


class ChangeRow(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a finding; `ids`: before and after."""

    status: str
    rule: str
    ids: tuple[str, ...]
    cost: str
    cause: str
    reason: str | None


class DiffTexts(msgspec.Struct, frozen=True, kw_only=True):
    """`differs`: what besides the program is not the same on both sides."""

    changes: tuple[ChangeRow, ...]
    differs: tuple[str, ...]
    notes: tuple[str, ...]


class DiffAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each finding. `comparable` is false where nothing of the two recordings compares."""

    comparable: bool
    per: str
    step: str
    gpu_work: str
    counts: dict[str, int]
    total: int
    next_cursor: str | None
    next: str
    untrusted: DiffTexts


class EmitTexts(msgspec.Struct, frozen=True, kw_only=True):
    """A file, to read; or why there is none."""

    refused: str | None
    file_name: str | None
    text: str | None
    assumptions: tuple[str, ...]
    written: tuple[str, ...]


class EmitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A file that runs a finding's operators and its fix. `shows`: the variant of it that the file is of."""

    id: str
    shows: str
    rule: str
    lines_in_all: int
    next_cursor: str | None
    next: str
    untrusted: EmitTexts


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict; times are of one occurrence. `level` is L0 (predicted) to L5, as docs/guide/verify.md has them."""

    shows: str
    rule: str
    level: str
    says: str
    predicted: str
    measured_ns: int | None
    within_interval: bool | None
    best: str | None
    assumptions: tuple[str, ...]
    not_tested: tuple[str, ...]
    bug: str | None


class VerifyTexts(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked, and what was written."""

    gpu: str | None
    verdicts: tuple[Judged, ...]
    written: tuple[str, ...]


class VerifyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked. Without a GPU nothing is timed, and levels end at L2."""

    id: str
    next: str
    untrusted: VerifyTexts
