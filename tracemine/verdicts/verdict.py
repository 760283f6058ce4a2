"""The verdict on a finding: the level it reached, predicted and measured, and what was not looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa

from tracemine.findings.record import KERNEL, Finding
from tracemine.perfmodel import Range
from tracemine.validate.record import Validation
from tracemine.verdicts.candidate import COMPILED, KERNEL_VARIANT, LIBRARY, WITH_PRODUCTS, Candidate
from tracemine.verdicts.levels import LEVELS, LOSES, Measured


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that are not replayed, for one reason."""

    reason: str
    calls: int
    gpu_ns: int


class InPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A finding in the step. `occurrences`: how often a kernel of it stood there; 0: never, `says` why."""

    fingerprint: str
    title: str
    occurrences: int
    says: str


class StepGain(msgspec.Struct, frozen=True, kw_only=True):
    """What a change saved a step, and what was predicted. Null where it was not predicted or is not comparable."""

    change: str
    measured_ns: int  # of what the replay saved, what holds for the model's own step
    low_ns: int  # a paired bootstrap's 95 % interval
    high_ns: int
    replay_ns: int  # what the replay saved
    predicted_ns: Range | None
    within: bool | None  # whether what was measured lies in the predicted interval
    says: str  # why it is not compared; else ""


class StepVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded step, replayed. Nanoseconds."""

    step: str
    device: str | None  # null: it was not run on a GPU
    says: str
    shorter: bool | None  # whether fused kernels made the eager step shorter beyond noise; null: not tried
    share: float  # of the step's GPU time, what is replayed
    launches: int
    replayed_launches: int
    left: tuple[Left, ...]
    findings: tuple[InPlace, ...]
    refused: dict[str, int]  # occurrences that stay as they are, by reason
    same_names: float | None  # of the replayed launches, those of the trace's own kernels
    medians_ns: dict[str, dict[str, int]]  # of each variant: the step, and until the host was free again
    recorded_ns: int | None  # the model's own step without a recorder
    gpu_ns: dict[str, int]  # of the recorded, the replayed and the fused step's kernels
    changes: tuple[StepGain, ...]
    right: dict[str, Any] | None
    not_captured: dict[str, str]
    assumptions: tuple[str, ...]
    source: str | None


# What levels say of a kernel, and of a call.
SAYS = {LEVELS["L2"]: "right on a CPU, by the same call", LOSES: "this call loses"}
_FASTER = ("L4", "L5", "L6")


class CallVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A call in place of a finding's chain: a library's, also with the products around it, or torch.compile's."""

    call: str  # F.rms_norm
    text: str  # as one writes it: F.rms_norm(x, (4096,), w, eps)
    level: str
    says: str
    products: bool  # whether it does matrix products too: another algorithm, no fusion
    calls: int  # of the chain
    eager_calls: int  # that stay around it
    measured: Measured | None  # `fused_ns` is what the call takes, with what stays around it
    validation: Validation | None
    right: dict[str, Any] | None  # faults and errors on the GPU
    source: str | None  # a reproduction of its own; null: it stands in the finding's
    assumptions: tuple[str, ...]
    not_tested: tuple[str, ...]

    @property
    def ratio(self) -> float | None:
        """How many times as long eager takes; None where it was not timed."""
        return None if self.measured is None else self.measured.eager_to_fused["ratio"]


def by_compile(kernel: Candidate) -> CallVerdict | None:
    """Return what torch.compile makes of a chain, where it is faster than the generated kernel; None where it is not.

    A finding is worth what takes the least time.
    """
    ran = kernel.ran
    if not isinstance(ran, Mapping) or not ran.get("times") or kernel.variant != KERNEL_VARIANT:
        return None
    made = replace(
        kernel, by=COMPILED, variant=COMPILED, call="torch.compile", says="torch.compile", refused=None,
        assumptions=(), validation="torch compiles for a GPU",
    )  # fmt: skip
    said = made.said
    if not isinstance(said, Mapping) or not said["times"] or not (said.get("right") or {}).keys() & {"faults"}:
        return None
    found = call_verdict(made)
    slower = found.measured is not None and ran["times"]["judged"][found.measured.state]["not_slower_than_compile"]
    return None if slower else found


def call_verdict(call: Candidate) -> CallVerdict:
    """Return what all that was tried of a call comes to."""
    ((level, says, not_tested), took), said = call.came_to(), call.said
    return CallVerdict(
        call=call.call,
        text=call.says,
        level=level,
        says=SAYS.get(says, says),
        products=call.products,
        calls=call.calls,
        eager_calls=call.eager_calls,
        measured=took,
        validation=call.validation if isinstance(call.validation, Validation) else None,
        right=said.get("right") if isinstance(said, Mapping) else None,
        source=call.own_file,
        assumptions=call.assumptions,
        not_tested=not_tested,
    )


def best(kernel_level: str, kernel: Measured | None, **calls: CallVerdict | None) -> str | None:
    """Return which is faster than eager, and the fastest: `kernel` or a call's name; None where none is known to be.

    calls: by name, `library` and `compiled`.
    """
    able = {}
    if kernel is not None and kernel_level in _FASTER:
        able[KERNEL] = kernel.fused_ns
    for name, call in calls.items():
        if call is not None and call.measured is not None and call.level in _FASTER:
            able[name] = call.measured.fused_ns
    return min(able, key=lambda name: able[name]) if able else None


VERDICTS_SCHEMA_VERSION = 2


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. Nanoseconds of one occurrence."""

    fingerprint: str
    rule: str
    title: str
    level: str
    says: str
    evidence: str | None  # of the rebuilt dataflow; null: not rebuilt
    calls: int
    predicted_ns: Range  # saving of GPU time
    occurrences: int = 1  # of the finding: so often its saving is predicted
    measured_ns: int | None  # saving; null: not measured
    error_ns: int | None  # measured less predicted
    within_interval: bool | None
    measured: Measured | None
    validation: Validation | None
    replay: dict[str, Any] | None  # what eager launched here, and the trace's kernels
    right: dict[str, Any] | None  # faults and errors on the GPU
    times: dict[str, Any] | None  # every sample
    source: str | None  # the reproduction
    assumptions: tuple[str, ...]
    not_tested: tuple[str, ...]
    seconds: dict[str, float] | None = None  # that each part took on the GPU; null: it was not run there
    library: CallVerdict | None = None  # a call of PyTorch's library that says the same; null: none does
    with_products: CallVerdict | None = None  # one that does the matrix products around the chain too
    compiled: CallVerdict | None = None  # what torch.compile makes of it; null: not timed, or no faster than the kernel
    by: str = KERNEL  # what was tried in eager's place: the kernel, or PINNED of a copy between host and device
    bug: str | None = None  # of ours, that was come upon: what it touches was not tried
    best: str | None = None  # `kernel`, `library` or `compiled`: the fastest; null: none is known to beat eager


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `tracemine verify --format json` prints, in this order of keys."""

    schema_version: int = VERDICTS_SCHEMA_VERSION
    trace: str
    gpu: str | None  # of this machine; null: levels above L2 were not tried
    verdicts: tuple[Verdict, ...]
    skipped: dict[str, int]  # findings that were not looked at, by reason
    warnings: tuple[str, ...] = ()
    step: StepVerdict | None = None  # null: not asked for, or not possible
    seconds: float | None = None  # that it took, from the trace to here


def verdict(finding: Finding, candidates: Sequence[Candidate]) -> Verdict:
    """Return the verdict by all that was tried: the fix first, then library calls in its place."""
    occurrences = max(finding.occurrences, 1)
    predicted = finding.gpu_saving_ns // occurrences
    own = candidates[0]
    own = own if own.traced_ns is not None else replace(own, traced_ns=finding.measured_ns / occurrences)
    ((level, says, not_tested), measured), said = own.came_to(), own.said
    said = said if isinstance(said, Mapping) else {}
    calls = {each.by: call_verdict(each) for each in candidates[1:]}
    library, compiled = calls.get(LIBRARY), by_compile(own)
    return Verdict(
        fingerprint=finding.fingerprint,
        rule=finding.rule,
        title=finding.title,
        level=level,
        says=says,
        evidence=own.evidence,
        calls=own.calls,
        predicted_ns=predicted,
        occurrences=occurrences,
        measured_ns=None if measured is None else measured.saving_ns,
        error_ns=None if measured is None else measured.saving_ns - predicted.mid,
        within_interval=None if measured is None else predicted.low <= measured.saving_ns <= predicted.high,
        measured=measured,
        validation=own.validation if isinstance(own.validation, Validation) else None,
        replay=said.get("replay"),
        right=said.get("right"),
        times=said.get("times"),
        source=own.source,
        assumptions=(*own.assumptions, *own.check_assumes),
        not_tested=not_tested,
        library=library,
        with_products=calls.get(WITH_PRODUCTS),
        compiled=compiled,
        by=own.by,
        seconds=said.get("seconds"),
        best=best(level, measured, library=library, compiled=compiled),
    )


def merged(before: Verdicts, now: Verdicts) -> Verdicts:
    """Return verdicts of before and of now, in that order: of two on one finding that of now.

    What was timed stays where now there is no GPU to time it on.
    """
    found = {v.fingerprint: v for v in before.verdicts}
    for verdict in now.verdicts:
        old = found.get(verdict.fingerprint)
        if old is None or old.times is None or now.gpu is not None:
            found[verdict.fingerprint] = verdict
    return msgspec.structs.replace(
        now, gpu=now.gpu or before.gpu, verdicts=tuple(found.values()), step=now.step or before.step
    )


def table(verdicts: Verdicts) -> pa.Table:
    """Return verdicts as an Arrow table, a row a finding: what fits columns; samples and source are in the JSON."""
    rows = [
        {
            **{name: getattr(v, name) for name in ("fingerprint", "rule", "level", "says", "evidence", "calls")},
            "predicted_low_ns": v.predicted_ns.low,
            "predicted_ns": v.predicted_ns.mid,
            "predicted_high_ns": v.predicted_ns.high,
            "measured_ns": v.measured_ns,
            "error_ns": v.error_ns,
            "gpu": verdicts.gpu,
            "assumptions": v.assumptions,
            "not_tested": v.not_tested,
            "by": v.by,
            "best": v.best,
            **(_of_call("library", v.library) if v.library is not None else {}),
            **(_of_call("compiled", v.compiled) if v.compiled is not None else {}),
            **(_columns(v.measured) if v.measured is not None else {}),
        }
        for v in verdicts.verdicts
    ]
    return pa.Table.from_pylist(rows, TABLE)


def _columns(measured: Measured) -> dict[str, object]:
    ratio = measured.eager_to_fused
    return {
        **{name: getattr(measured, name) for name in ("device", "state", "eager_ns", "fused_ns")},
        "compiled_ns": measured.compiled_ns,
        "copy_ns": measured.copy_ns,
        "eager_to_fused_low": ratio["low"],
        "eager_to_fused": ratio["ratio"],
        "eager_to_fused_high": ratio["high"],
    }


def _of_call(name: str, call: CallVerdict) -> dict[str, object]:
    took = call.measured
    found: dict[str, object] = {
        f"{name}_level": call.level,
        f"{name}_says": call.says,
        f"eager_to_{name}": call.ratio,
        f"eager_to_{name}_low": None if took is None else took.eager_to_fused["low"],
        f"eager_to_{name}_high": None if took is None else took.eager_to_fused["high"],
    }
    # What torch.compile takes is a column of every verdict that was timed.
    return found if name == "compiled" else {**found, name: call.text, f"{name}_ns": took and took.fused_ns}


def _kind(column: str) -> pa.DataType:
    """Return a column's type, by its name."""
    if column.startswith("eager_to_"):
        return pa.float64()
    if column in ("assumptions", "not_tested"):
        return pa.list_(pa.string())
    return pa.int64() if column == "calls" or column.endswith("_ns") else pa.string()


_COLUMNS = (
    *("fingerprint", "rule", "level", "says", "evidence", "calls"),
    *("predicted_low_ns", "predicted_ns", "predicted_high_ns", "measured_ns", "error_ns"),
    *("gpu", "device", "state", "eager_ns", "fused_ns", "compiled_ns", "copy_ns"),
    *("eager_to_fused_low", "eager_to_fused", "eager_to_fused_high", "assumptions", "not_tested"),
    *("by", "best", "library", "library_level", "library_says", "library_ns"),
    *("eager_to_library_low", "eager_to_library", "eager_to_library_high"),
    *("compiled_level", "compiled_says", "eager_to_compiled_low", "eager_to_compiled", "eager_to_compiled_high"),
)
TABLE_MARK = b"tracemine.verdicts"  # metadata by which the table is known; its value is the schema's version
_MARKED = {TABLE_MARK: str(VERDICTS_SCHEMA_VERSION).encode()}
TABLE = pa.schema([pa.field(name, _kind(name)) for name in _COLUMNS], metadata=_MARKED)
