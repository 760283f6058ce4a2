"""What verifying a finding came to: the level it reached, predicted beside measured, and what was not looked at."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tracemine.cost import Range
from tracemine.findings.record import Finding
from tracemine.verify.proof import Proof
from tracemine.verify.step.compared import StepVerdict

VERDICTS_SCHEMA_VERSION = 1
# What a level says. Each asks for all before it, but for what this machine could not test.
LEVELS = {
    "L0": "flagged",
    "L1": "rebuilt: the replay launches the trace's own kernels",
    "L2": "right in the interpreter, on a CPU",
    "L3": "right on the GPU",
    "L4": "faster than eager",
    "L5": "not slower than torch.compile",
    "L6": "the step got shorter",
}
# What a verdict says where a level was tried and not reached: other programs read these.
LOSES, CANNOT_TELL, WRONG, UNSTABLE = "this fusion loses", "cannot tell from eager", "wrong on ", "unstable: "


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Medians of one call's kernel time on a GPU, nanoseconds. `state`: of the cache, the one nearer to the trace."""

    device: str
    state: str  # `cold`: flushed before the first kernel; `warm`: what the chain reads was written just before
    eager_ns: int
    fused_ns: int
    compiled_ns: int | None  # null: torch.compile was left out, or failed
    tuned_ns: int | None = None  # torch.compile with max-autotune-no-cudagraphs; null as above
    copy_ns: int  # a plain copy of as many bytes as one kernel must move
    saving_ns: int
    eager_to_fused: dict[str, float]  # ratio, and its 95 % interval
    compiled_to_fused: dict[str, float] | None
    noise: float  # what eager differs from itself, as a share


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
    measured_ns: int | None  # saving; null: not measured
    error_ns: int | None  # measured less predicted
    within_interval: bool | None
    measured: Measured | None
    proof: Proof | None
    replay: dict[str, Any] | None  # what eager launched here beside the trace's kernels
    right: dict[str, Any] | None  # faults and errors on the GPU
    times: dict[str, Any] | None  # every sample
    source: str | None  # the reproduction
    assumptions: tuple[str, ...]
    not_tested: tuple[str, ...]


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `tracemine verify --format json` prints, in this order of keys."""

    schema_version: int = VERDICTS_SCHEMA_VERSION
    trace: str
    gpu: str | None  # of this machine; null: levels above L2 were not tried
    verdicts: tuple[Verdict, ...]
    skipped: dict[str, int]  # findings that were not looked at, by reason
    warnings: tuple[str, ...] = ()
    step: StepVerdict | None = None  # null: not asked for, or not possible


def verdict(
    finding: Finding,
    *,
    calls: int = 0,
    evidence: str | None = None,
    refused: str | None = None,
    proof: Proof | str | None = None,
    ran: Mapping[str, Any] | str | None = None,
    source: str | None = None,
    assumptions: Sequence[str] = (),
) -> Verdict:
    """What all that was tried comes to. refused, or a text in place of a proof or of what ran: why there is none."""
    occurrences = max(finding.occurrences, 1)
    saving = finding.gpu_saving_ns
    predicted = Range(low=saving.low // occurrences, mid=saving.mid // occurrences, high=saving.high // occurrences)
    times = ran.get("times") if isinstance(ran, Mapping) else None
    measured = _measured(times, finding.measured_ns / occurrences) if times else None
    found = _tested(refused, proof, ran, measured)
    error = None if measured is None else measured.saving_ns - predicted.mid
    return Verdict(
        fingerprint=finding.fingerprint,
        rule=finding.rule,
        title=finding.title,
        level=found.level,
        says=found.says,
        evidence=evidence,
        calls=calls,
        predicted_ns=predicted,
        measured_ns=None if measured is None else measured.saving_ns,
        error_ns=error,
        within_interval=None if measured is None else predicted.low <= measured.saving_ns <= predicted.high,
        measured=measured,
        proof=proof if isinstance(proof, Proof) else None,
        replay=ran.get("replay") if isinstance(ran, Mapping) else None,
        right=ran.get("right") if isinstance(ran, Mapping) else None,
        times=times,
        source=source,
        assumptions=tuple(assumptions),
        not_tested=found.not_tested,
    )


class _Tested(msgspec.Struct, frozen=True):
    level: str
    says: str
    not_tested: tuple[str, ...]


def _tested(
    refused: str | None, proof: Proof | str | None, ran: Mapping[str, Any] | str | None, measured: Measured | None
) -> _Tested:
    """The level, by what failed first; what was not tried does not hold up what comes after it."""
    if refused is not None:
        return _Tested("L0", refused, tuple(f"{k}: {LEVELS[k]}" for k in ("L1", "L2", "L3", "L4", "L5", "L6")))
    untried = {"L6": "no step was run with the fused kernel in it"}
    if not isinstance(ran, Mapping):
        untried |= dict.fromkeys(("L1", "L3", "L4", "L5"), ran or "this machine has no GPU")
    if not isinstance(proof, Proof):
        untried["L2"] = proof or "not asked for"
    elif proof.refused is not None:
        untried["L2"] = proof.refused
    passed = _passed(proof, ran, measured, untried)
    level, failed = "L0", ""
    for name in ("L1", "L2", "L3", "L4", "L5"):
        if name in untried:
            continue
        if passed[name]:
            failed = passed[name]
            break
        level = name
    says = failed or LEVELS[level]
    if isinstance(ran, str) and not failed:
        says = ran
    elif isinstance(proof, str) and level == "L0":
        says = proof
    return _Tested(level, says, tuple(f"{k}: {untried[k]}" for k in sorted(untried)))


def _passed(
    proof: Proof | str | None,
    ran: Mapping[str, Any] | str | None,
    measured: Measured | None,
    untried: dict[str, str],
) -> dict[str, str]:
    """For each level that was tried why it failed, "" where it did not."""
    found: dict[str, str] = {}
    if isinstance(proof, Proof) and "L2" not in untried:
        wrong = [m.name for m in proof.mutants if not m.killed_by and not m.equivalent]
        found["L2"] = f"{WRONG}a CPU: {proof.faults[0].trial}: {proof.faults[0].says}" if proof.faults else ""
        if wrong and not found["L2"]:
            found["L2"] = f"a wrong kernel was not told from the right one: {wrong[0]}"
    if not isinstance(ran, Mapping):
        return found
    replay, right, times = ran["replay"], ran.get("right"), ran.get("times")
    same = replay["same_names"] and replay["same_grids"]
    found["L1"] = "" if same else "the replay launches other kernels than the trace has: the rebuild is not trusted"
    if right is None:
        untried["L3"] = "what is dropped differs from run to run"
    else:
        found["L3"] = f"{WRONG}the GPU: {right['faults'][0]}" if right["faults"] else ""
    if measured is None or times is None:
        untried |= dict.fromkeys(("L4", "L5"), "not timed")
        return found
    judged = times["judged"][measured.state]
    if "fused" in times["too_fast"]:
        found["L4"] = f"not believed: faster than memory allows, {times['least_ns']:,} ns"
    elif apart := sorted({"eager", "fused"} & set(times["unstable"])):
        found["L4"] = f"{UNSTABLE}two clocks differ on {' and '.join(apart)}"
    elif judged["faster_than_eager"]:
        found["L4"] = ""
    else:
        found["L4"] = LOSES if judged["slower_than_eager"] else CANNOT_TELL
    if measured.compiled_ns is None:
        untried["L5"] = times.get("compile_failed") or "torch.compile was left out"
    else:
        found["L5"] = "" if judged["not_slower_than_compile"] else "slower than torch.compile"
    return found


def _measured(times: Mapping[str, Any], traced_ns: float) -> Measured:
    """The state of the cache in which eager takes what it took in the trace, or comes nearest to it."""
    samples = times["samples"]
    medians = {
        state: {name: round(statistics.median(s["sum_ns"])) for name, s in found.items()}
        for state, found in samples.items()
    }
    state = min(medians, key=lambda name: abs(medians[name]["eager"] - traced_ns))
    found, judged = medians[state], times["judged"][state]
    return Measured(
        device=times["device"],
        state=state,
        eager_ns=found["eager"],
        fused_ns=found["fused"],
        compiled_ns=found.get("compiled"),
        tuned_ns=found.get("tuned"),
        copy_ns=found["copy"],
        saving_ns=found["eager"] - found["fused"],
        eager_to_fused=judged["eager"],
        compiled_to_fused=judged.get("compiled"),
        noise=round(abs(judged["eager_against_itself"]["ratio"] - 1), 4),
    )


def table(verdicts: Verdicts) -> pa.Table:
    """Verdicts as an Arrow table, one row a finding: what fits into columns; samples and source are in the JSON."""
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


def _schema() -> pa.Schema:
    kinds = {
        pa.string(): ("fingerprint", "rule", "level", "says", "evidence", "gpu", "device", "state"),
        pa.int64(): (
            *("calls", "predicted_low_ns", "predicted_ns", "predicted_high_ns", "measured_ns", "error_ns"),
            *("eager_ns", "fused_ns", "compiled_ns", "copy_ns"),
        ),
        pa.float64(): ("eager_to_fused_low", "eager_to_fused", "eager_to_fused_high"),
        pa.list_(pa.string()): ("assumptions", "not_tested"),
    }
    of = {name: kind for kind, names in kinds.items() for name in names}
    fields = [pa.field(name, of[name]) for name in _COLUMNS]
    return pa.schema(fields, metadata={TABLE_MARK: str(VERDICTS_SCHEMA_VERSION).encode()})


_COLUMNS = (
    *("fingerprint", "rule", "level", "says", "evidence", "calls"),
    *("predicted_low_ns", "predicted_ns", "predicted_high_ns", "measured_ns", "error_ns"),
    *("gpu", "device", "state", "eager_ns", "fused_ns", "compiled_ns", "copy_ns"),
    *("eager_to_fused_low", "eager_to_fused", "eager_to_fused_high", "assumptions", "not_tested"),
)
TABLE_MARK = b"tracemine.verdicts"  # metadata by which the table is known; its value is the schema's version
TABLE = _schema()
