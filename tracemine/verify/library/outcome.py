"""What a library call in place of a graph came to: its level, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracemine.validate.record import Validation
from tracemine.verdicts.levels import measured, reached
from tracemine.verdicts.outcome import SAYS, CallVerdict, in_place_of_kernel
from tracemine.verify.library.record import Replacement


def outcome(
    replacement: Replacement,
    *,
    calls: int,
    traced_ns: float | None,
    validation: Validation | str | None,
    ran: Mapping[str, Any] | str | None,
    source: str | None = None,
) -> CallVerdict:
    """Return what all that was tried of a call comes to.

    traced_ns: what the graph took in the trace; None: not known, as with products around it. ran: what a reproduction
    said, in which the call stands next to a kernel or, where it has one of its own, in its place.
    """
    if source is None and isinstance(ran, Mapping):
        ran = in_place_of_kernel(ran)
    times = ran.get("times") if isinstance(ran, Mapping) else None
    took = measured(times, traced_ns) if times else None
    found = reached(None, replacement.gpu_only or validation, ran, took)
    return CallVerdict(
        call=replacement.call,
        text=replacement.says,
        level=found.level,
        says=SAYS.get(found.says, found.says),
        products=replacement.products,
        calls=calls,
        eager_calls=replacement.eager_calls,
        measured=took,
        validation=validation if isinstance(validation, Validation) else None,
        right=ran.get("right") if isinstance(ran, Mapping) else None,
        source=source,
        assumptions=replacement.assumptions,
        not_tested=found.not_tested,
    )
