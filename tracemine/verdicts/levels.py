"""Levels of verification, what fails one first, and what was measured on a GPU."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

import msgspec

from tracemine.validate.record import Validation

# What a level says. Each asks for all before it, but for what this machine could not test.
LEVELS = {
    "L0": "flagged",
    "L1": "rebuilt: the replay launches the trace's own kernels",
    "L2": "right in the interpreter, on a CPU",
    "L3": "right on the GPU",
    "L4": "faster than eager",
    "L5": "not slower than torch.compile",
    "L6": "the step got shorter",
    "L7": "right and faster in your own step",
}
# What a verdict says where a level was tried and not reached: other programs read these.
LOSES, CANNOT_TELL, WRONG, UNSTABLE = "this fusion loses", "cannot tell from eager", "wrong on ", "unstable: "


SECOND_CLOCK = "second clock"  # in what was left out: then one clock alone was asked
_UNKNOWN = 1e-3  # of a ratio: no kernel is as much faster than eager


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
    eager_to_fused: dict[str, float]  # ratio, and its 95 % interval, down to what another clock says
    compiled_to_fused: dict[str, float] | None
    noise: float  # what eager differs from itself, as a share


Reached = tuple[str, str, tuple[str, ...]]
"""A level, what ended the way to the next, and what was left out."""


def reached(
    refused: str | None,
    validation: Validation | str | None,
    ran: Mapping[str, Any] | str | None,
    measured: Measured | None,
) -> Reached:
    """Return the level, by what failed first; what was not tried does not hold up what comes after it."""
    if refused is not None:
        return "L0", refused, tuple(f"{k}: {LEVELS[k]}" for k in LEVELS if k != "L0")
    tests = _Tests()
    tests.on_cpu(validation)
    tests.on_gpu(ran, measured)
    level, failed = tests.highest()
    if isinstance(ran, str) and not failed:
        says = ran
    elif isinstance(validation, str) and level == "L0":
        says = validation
    else:
        says = failed or LEVELS[level]
    left_out = (ran.get("times") or {}).get("left_out", {}) if isinstance(ran, Mapping) else {}
    clock = [f"{SECOND_CLOCK}: {left_out[SECOND_CLOCK]}"] if SECOND_CLOCK in left_out else []
    return level, says, (*(f"{k}: {tests.untried[k]}" for k in sorted(tests.untried)), *clock)


class _Tests:
    """Levels that were tried, with why each failed ("": it did not), and those that were not, with the reason."""

    def __init__(self) -> None:
        self.tried: dict[str, str] = {}
        self.untried = {"L6": "no step was run with the fused kernel in it"}

    def highest(self) -> tuple[str, str]:
        """Return the last level before the first that failed, and why that failed."""
        level = "L0"
        for name in sorted(self.tried):
            if self.tried[name]:
                return level, self.tried[name]
            level = name
        return level, ""

    def on_cpu(self, validation: Validation | str | None) -> None:
        """Take in what validating on a CPU came to."""
        if not isinstance(validation, Validation):
            self.untried["L2"] = validation or "not asked for"
        elif validation.refused is not None:
            self.untried["L2"] = validation.refused
        else:
            self.tried["L2"] = _why_wrong(validation)

    def on_gpu(self, ran: Mapping[str, Any] | str | None, measured: Measured | None) -> None:
        """Take in what a reproduction said on a GPU."""
        if not isinstance(ran, Mapping):
            self.untried |= dict.fromkeys(("L1", "L3", "L4", "L5"), ran or "this machine has no GPU")
            return
        replay, right, times = ran["replay"], ran.get("right"), ran.get("times")
        same = replay["same_names"] and replay["same_grids"]
        self.tried["L1"] = (
            "" if same else "the replay launches other kernels than the trace has: the rebuild is not trusted"
        )
        if right is None:
            self.untried["L3"] = "what is dropped differs from run to run"
        else:
            self.tried["L3"] = f"{WRONG}the GPU: {right['faults'][0]}" if right["faults"] else ""
        if measured is None or times is None:
            self.untried |= dict.fromkeys(("L4", "L5"), "not timed")
            return
        judged = times["judged"][measured.state]
        self.tried["L4"] = _why_not_faster(times, judged, measured.eager_to_fused["low"])
        if measured.compiled_ns is None:
            self.untried["L5"] = times.get("compile_failed") or "torch.compile was left out"
        else:
            self.tried["L5"] = "" if judged["not_slower_than_compile"] else "slower than torch.compile"


def _why_wrong(validation: Validation) -> str:
    """Return the first fault, or the first mutant that was not caught; "" where there is none."""
    if validation.faults:
        return f"{WRONG}a CPU: {validation.faults[0].trial}: {validation.faults[0].says}"
    survivors = [m.name for m in validation.mutants if not m.killed_by and not m.equivalent]
    return f"a wrong kernel was accepted like the right one: {survivors[0]}" if survivors else ""


def _why_not_faster(times: Mapping[str, Any], judged: Mapping[str, Any], low: float) -> str:
    """Return why a kernel is not known to be faster than eager; "" where it is. low: of the ratio of the two."""
    if "fused" in times["too_fast"]:
        return f"not believed: faster than memory allows, {times['least_ns']:,} ns"
    if _apart(times) and low <= 1 + judged.get("least_gain", 0.0):
        return f"{UNSTABLE}two clocks differ on {' and '.join(_apart(times))}"
    if judged["faster_than_eager"]:
        return ""
    return LOSES if judged["slower_than_eager"] else CANNOT_TELL


def _apart(times: Mapping[str, Any]) -> list[str]:
    """Return which of eager and the kernel two clocks do not agree on."""
    return sorted({"eager", "fused"} & set(times["unstable"]))


def _other_clocks(times: Mapping[str, Any]) -> float:
    """Return the share of eager's ratio to the kernel that the other clock sees, at worst; 1 where both agree.

    It does not know the gaps before kernels exactly: where it saw less of eager, or more of the kernel, counts.
    """
    share = 1.0
    for name in _apart(times):
        other = times.get("other_clock_ns", {}).get(name, {}).get("ns", 0)
        if other <= 0:
            return _UNKNOWN
        own = statistics.median(times["samples"]["cold"][name]["sum_ns"])
        share *= min(1.0, other / own if name == "eager" else own / other)
    return share


def measured(times: Mapping[str, Any], traced_ns: float | None) -> Measured:
    """Return the state of the cache in which eager takes what it took in the trace, or comes nearest to it.

    traced_ns: None where the trace does not tell: then the cache is cold.
    """
    samples = times["samples"]
    medians = {
        state: {name: round(statistics.median(s["sum_ns"])) for name, s in found.items()}
        for state, found in samples.items()
    }
    state = "cold" if traced_ns is None else min(medians, key=lambda name: abs(medians[name]["eager"] - traced_ns))
    found, judged = medians[state], times["judged"][state]
    ratio = judged["eager"]
    low = min(ratio["low"], ratio["ratio"] * _other_clocks(times))
    return Measured(
        device=times["device"],
        state=state,
        eager_ns=found["eager"],
        fused_ns=found["fused"],
        compiled_ns=found.get("compiled"),
        tuned_ns=found.get("tuned"),
        copy_ns=found["copy"],
        saving_ns=found["eager"] - found["fused"],
        eager_to_fused={**ratio, "low": low},
        compiled_to_fused=judged.get("compiled"),
        noise=round(abs(judged["eager_against_itself"]["ratio"] - 1), 4),
    )
