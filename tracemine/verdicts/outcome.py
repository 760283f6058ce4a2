"""The verdict on a call in place of a graph, a library's or torch.compile's: its level, and which is fastest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tracemine.findings.record import KERNEL
from tracemine.validate.record import Validation
from tracemine.verdicts.levels import LEVELS, LOSES, Measured, measured, reached

LIBRARY, COMPILED = "library", "compiled"
KERNEL_VARIANT = "fused"  # what a reproduction calls the kernel
# What levels say of a kernel, and of a call.
SAYS = {LEVELS["L2"]: "right on a CPU, by the same call", LOSES: "this call loses"}
_FASTER = ("L4", "L5", "L6")
_TUNED = "tuned"  # torch.compile with max-autotune


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


def compiled(ran: Mapping[str, Any] | str | None, *, calls: int, traced_ns: float | None) -> CallVerdict | None:
    """Return what torch.compile makes of a chain, where it is faster than the kernel; None where it is not.

    A finding is worth what takes the least time. ran: what the kernel's reproduction said.
    """
    if not isinstance(ran, Mapping) or not ran.get("times"):
        return None
    own = in_place_of_kernel(ran, COMPILED)
    if isinstance(own, str) or not own["times"] or not (own.get("right") or {}).keys() & {"faults"}:
        return None
    took, beside = measured(own["times"], traced_ns), ran["times"]["judged"]
    if beside[took.state]["not_slower_than_compile"]:
        return None
    found = reached(None, "torch compiles for a GPU", own, took)
    return CallVerdict(
        call="torch.compile",
        text="torch.compile",
        level=found.level,
        says=SAYS.get(found.says, found.says),
        products=False,
        calls=calls,
        eager_calls=0,
        measured=took,
        validation=None,
        right=own["right"],
        source=None,
        assumptions=(),
        not_tested=found.not_tested,
    )


def in_place_of_kernel(ran: Mapping[str, Any], variant: str = LIBRARY) -> Mapping[str, Any] | str:
    """Return what a reproduction said of a call, `library` or `compiled`, as if it stood in the kernel's place."""
    times = ran.get("times") or {}
    if (why := times.get("left_out", {}).get(variant)) is not None:
        return f"the call could not be made: {why}"
    found = {**ran, "right": (ran.get("right_others") or {}).get(variant), "times": None}
    if not _is_timed(times, variant):
        return found
    others = {LIBRARY} if variant == LIBRARY else {COMPILED, _TUNED}
    judged = {state: _judged(each, variant) for state, each in times["judged"].items()}
    samples = {
        state: {**{n: s for n, s in each.items() if n not in others}, KERNEL_VARIANT: each[variant]}
        for state, each in times["samples"].items()
    }
    return {**found, "times": {**times, **_marks(times, variant), "judged": judged, "samples": samples}}


def _is_timed(times: Mapping[str, Any], variant: str) -> bool:
    """Return whether a call has samples in every state, and ratios, which earlier reproductions do not print."""
    sampled = bool(times) and all(variant in samples for samples in times["samples"].values())
    return sampled and all(f"to_{variant}" in each for each in times["judged"].values())


def _marks(times: Mapping[str, Any], variant: str) -> dict[str, Any]:
    """Return what was marked of a call, and of eager, under the kernel's name."""
    too_fast, unstable = ([KERNEL_VARIANT] if variant in times[name] else [] for name in ("too_fast", "unstable"))
    clocks = times.get("other_clock_ns", {})
    own = {"compile_failed": "it is torch.compile's own"} if variant == COMPILED else {}
    return {
        "too_fast": too_fast,
        "unstable": unstable + [name for name in times["unstable"] if name == "eager"],
        "other_clock_ns": {**clocks, **({KERNEL_VARIANT: clocks[variant]} if variant in clocks else {})},
        **own,
    }


def _judged(found: Mapping[str, Any], variant: str) -> dict[str, Any]:
    against = {"faster_than_eager", "slower_than_eager", "not_slower_than_compile"}
    named = {name: found[f"{variant}_{name}"] for name in against if f"{variant}_{name}" in found}
    kept = {name: value for name, value in found.items() if variant != COMPILED or "compile" not in name}
    return {**kept, **found[f"to_{variant}"], **named}


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
