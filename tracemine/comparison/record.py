"""What comparing two scans comes to. Frozen; the JSON contract's own fields. Nanoseconds are of a step, or of a trace.

`Side` is as much of a scan as comparing needs: a baseline file holds one, without the trace.
"""

from __future__ import annotations

import msgspec

from tracemine.findings.record import Range, Recorded, Spent, UnprofiledTime, WorkOfClass

DIFFERENCE_SCHEMA_VERSION = 1

# What two recordings differ in where nothing of them compares.
INCOMPARABLE = ("cut_off", "gpu_activity", "program")

# What can become of a finding, as a report lists them: what went wrong first.
STATUSES = {
    "new": "its cost was not there before",
    "worse": "it costs more, beyond noise",
    "fixed": "it is gone, and what its operators took is gone with it",
    "improved": "it costs less, beyond noise",
    "moved": "the same cause on other shapes, in another data type or under another module: costs do not compare",
    "unknown": "it is not known, and the reason says why",
    "same": "its cost is the same within noise",
}


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A finding, as far as comparing needs it."""

    fingerprint: str
    aliases: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()  # identities and aliases of its variants
    rule: str
    title: str
    on_gpu: bool  # otherwise it is about idle time
    reported: bool
    dtype: str | None = None
    module: str | None = None
    source: str | None = None  # file:line function
    ops: tuple[str, ...] = ()  # of all its variants
    shapes: tuple[str, ...] = ()  # of its variants; empty: not recorded
    measured_ns: int  # a step, as recorded; over the trace where no steps are known
    gpu_saving_ns: Range  # predicted, a step
    step_saving_ns: Range


class ComparedTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What was recorded, and how long a step of it takes."""

    trace: str  # file name, without its folder
    format: str
    gpu: str | None
    steps: int  # 0: none are known, and every time is over the trace
    span_ns: int  # of a step on the host, as recorded
    gpu_busy_ns: int  # of a step, over all devices
    unprofiled_ns: UnprofiledTime | None = None
    span_spread_ns: int | None = None
    gpu_busy_spread_ns: int | None = None
    recorded: Recorded | None = None  # null: stored by a version that did not say


class ComparedSide(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two that are compared."""

    about: ComparedTrace
    spent: Spent | None
    items: tuple[Item, ...]


class Differs(msgspec.Struct, frozen=True, kw_only=True):
    """Something other than the program that is not the same on both sides."""

    # Where nothing compares: `cut_off`, a file that ends before its content does; `gpu_activity`, a trace without any;
    # `program`, two that have nothing in common. Else `producer` of the kernels (PyTorch, XLA …), `gpu`, `inputs`,
    # `steps`, `operators`, `shapes`, `torch` …
    what: str
    before: str
    after: str
    explains: bool  # that findings come and go: those are `unknown` then


class ClassChange(msgspec.Struct, frozen=True, kw_only=True):
    """The kernels of one class on both sides: null where there are none."""

    name: str  # as of `Part`
    before: WorkOfClass | None
    after: WorkOfClass | None


class ClassChanges(msgspec.Struct, frozen=True, kw_only=True):
    """One model as two compilers, or one and none, make kernels of it: what each fuses, and what that costs."""

    made_by: tuple[str, str]  # `PyTorch`, `torch.compile`, `JAX 0.11.2` …
    classes: tuple[ClassChange, ...]  # those whose time differs most first


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """Shares below which a change says nothing."""

    span: float  # of a step's time, and of idle time
    gpu: float  # of GPU work
    source: str  # `given`; `measured`: the spread over the steps of each trace; `assumed`: fewer than three steps


class ChangedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A finding on one side of a change."""

    fingerprint: str
    title: str
    module: str | None
    source: str | None
    reported: bool
    cost_ns: int
    step_saving_ns: Range  # predicted
    gpu_saving_ns: Range


class FindingChange(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a finding, or of several that are one on the other side. Each finding is in exactly one change."""

    status: str
    rule: str
    title: str
    on_gpu: bool
    # `identity`; `alias`: its module was not recorded on one side; `signature`: by what it is and where; null: it is on
    # one side alone.
    matched_by: str | None
    reason: str | None = None
    before: tuple[ChangedPart, ...]
    after: tuple[ChangedPart, ...]
    before_ns: int  # sums of the parts
    after_ns: int
    noise_ns: int  # a change of no more says nothing
    accepted: str | None = None  # why a baseline lets it pass


class StepChange(msgspec.Struct, frozen=True, kw_only=True):
    """How long a step takes on both sides, by `Difference.basis`."""

    status: str  # `improved`, `same`, `worse`, `unknown`
    before_ns: Range  # low = mid = high where it was measured
    after_ns: Range
    change_ns: Range
    noise_ns: int


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """What fixed findings were predicted to save, improved ones as far as their cost is gone; and what was measured."""

    fixed: int  # findings
    improved: int
    step_saving_ns: Range
    gpu_saving_ns: Range
    measured_step_ns: Range  # what the step got shorter by
    measured_gpu_ns: int  # what the GPU's work got less by


class CostTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over all findings, and so over all changes."""

    findings: int
    gpu_ns: int
    idle_ns: int


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `tracemine diff --format json` prints, in this order of keys."""

    schema_version: int = DIFFERENCE_SCHEMA_VERSION
    tracemine: str
    before: ComparedTrace
    after: ComparedTrace
    per: str  # `step`; `trace`: no steps are known on either side; `unknown`: on one side alone
    # What times rest on: `captured`, both steps were timed alone, outside the recording; `recorded`, both traces were
    # recorded the same way; `estimated`, they were not, and idle time is scaled to the estimated unprofiled step.
    basis: str
    differs: tuple[Differs, ...]
    noise: Noise
    step: StepChange
    gpu_work: StepChange
    # null: nothing is fixed or improved, or another GPU or other inputs may be why
    predicted: Predicted | None
    counts: dict[str, int]  # changes by status
    totals_before: CostTotals
    totals_after: CostTotals
    changes: tuple[FindingChange, ...]
    by_class: ClassChanges | None = None  # null: both sides' kernels are made by the same
    notes: tuple[str, ...] = ()

    @property
    def incomparable(self) -> tuple[Differs, ...]:
        """Why nothing compares, and every change is `unknown`; empty: it does."""
        return tuple(one for one in self.differs if one.what in INCOMPARABLE)
