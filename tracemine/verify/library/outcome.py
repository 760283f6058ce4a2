"""What a library call in place of a chain came to: the level that it reached, and whether it beats the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tracemine.verify.library.record import Replacement
from tracemine.verify.proof.record import Proof
from tracemine.verify.verdicts.levels import LEVELS, LOSES, Measured, measured, reached

KERNEL, LIBRARY = "kernel", "library"
KERNEL_VARIANT = "fused"  # what a reproduction calls the kernel
# What levels say of a kernel, and of a call.
_SAYS = {LEVELS["L2"]: "right on a CPU, by the same call", LOSES: "this call loses"}
_FASTER = ("L4", "L5", "L6")


class LibraryVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A library's call in place of a finding's chain, or of the chain with the products around it."""

    call: str  # F.rms_norm
    text: str  # as one writes it: F.rms_norm(x, (4096,), w, eps)
    level: str
    says: str
    products: bool  # whether it does matrix products too: another algorithm, no fusion
    calls: int  # of the chain
    eager_calls: int  # that stay around it
    measured: Measured | None  # `fused_ns` is what the call takes, with what stays around it
    proof: Proof | None
    right: dict[str, Any] | None  # faults and errors on the GPU
    source: str | None  # a reproduction of its own; null: it stands in the finding's
    assumptions: tuple[str, ...]
    not_tested: tuple[str, ...]

    @property
    def ratio(self) -> float | None:
        """How many times as long eager takes; None where it was not timed."""
        return None if self.measured is None else self.measured.eager_to_fused["ratio"]


def outcome(
    replacement: Replacement,
    *,
    calls: int,
    traced_ns: float | None,
    proof: Proof | str | None,
    ran: Mapping[str, Any] | str | None,
    source: str | None = None,
) -> LibraryVerdict:
    """What all that was tried of a call comes to.

    traced_ns: what the chain took in the trace; None: not known, as with products around it. ran: what a reproduction
    said, in which the call stands beside a kernel or, where it has one of its own, in its place.
    """
    if source is None and isinstance(ran, Mapping):
        ran = in_place_of_kernel(ran)
    times = ran.get("times") if isinstance(ran, Mapping) else None
    took = measured(times, traced_ns) if times else None
    found = reached(None, replacement.gpu_only or proof, ran, took)
    return LibraryVerdict(
        call=replacement.call,
        text=replacement.says,
        level=found.level,
        says=_SAYS.get(found.says, found.says),
        products=replacement.products,
        calls=calls,
        eager_calls=replacement.eager_calls,
        measured=took,
        proof=proof if isinstance(proof, Proof) else None,
        right=ran.get("right") if isinstance(ran, Mapping) else None,
        source=source,
        assumptions=replacement.assumptions,
        not_tested=found.not_tested,
    )


def in_place_of_kernel(ran: Mapping[str, Any]) -> Mapping[str, Any] | str:
    """What a reproduction said of the call, as if the call stood in the kernel's place."""
    times = ran.get("times")
    why = (times or {}).get("left_out", {}).get(LIBRARY)
    if why is not None:
        return f"the call could not be made: {why}"
    found = {**ran, "right": (ran.get("right_others") or {}).get(LIBRARY), "times": None}
    if times is None or any(LIBRARY not in samples for samples in times["samples"].values()):
        return found
    judged = {state: _judged(each) for state, each in times["judged"].items()}
    samples = {state: {**each, KERNEL_VARIANT: each[LIBRARY]} for state, each in times["samples"].items()}
    marks = {name: [KERNEL_VARIANT] if LIBRARY in times[name] else [] for name in ("too_fast", "unstable")}
    marks["unstable"] += [name for name in times["unstable"] if name == "eager"]
    return {**found, "times": {**times, **marks, "judged": judged, "samples": samples}}


def _judged(found: Mapping[str, Any]) -> dict[str, Any]:
    against = {"faster_than_eager", "slower_than_eager", "not_slower_than_compile"}
    named = {name: found[f"library_{name}"] for name in against if f"library_{name}" in found}
    return {**found, **found["to_library"], **named}


def best(kernel_level: str, kernel: Measured | None, library: LibraryVerdict | None) -> str | None:
    """Which of the two is faster than eager, and the faster one; None where neither is known to be."""
    able = {}
    if kernel is not None and kernel_level in _FASTER:
        able[KERNEL] = kernel.fused_ns
    if library is not None and library.measured is not None and library.level in _FASTER:
        able[LIBRARY] = library.measured.fused_ns
    return min(able, key=lambda name: able[name]) if able else None
