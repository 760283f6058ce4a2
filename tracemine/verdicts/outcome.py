"""The verdict on a call in place of a graph, a library's or torch.compile's: its level, and which is fastest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from tracemine.findings.record import KERNEL
from tracemine.validate.record import Validation
from tracemine.verdicts.candidate import COMPILED, KERNEL_VARIANT, Candidate
from tracemine.verdicts.levels import LEVELS, LOSES, Measured

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


def compiled(kernel: Candidate) -> CallVerdict | None:
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
    (found, took), said = call.came_to(), call.said
    return CallVerdict(
        call=call.call,
        text=call.says,
        level=found.level,
        says=SAYS.get(found.says, found.says),
        products=call.products,
        calls=call.calls,
        eager_calls=call.eager_calls,
        measured=took,
        validation=call.validation if isinstance(call.validation, Validation) else None,
        right=said.get("right") if isinstance(said, Mapping) else None,
        source=call.own_file,
        assumptions=call.assumptions,
        not_tested=found.not_tested,
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
