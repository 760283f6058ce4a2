"""What is tried in place of a finding's calls, a kernel or other calls, and how far it got."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tracemine.findings.record import KERNEL
from tracemine.validate.record import Validation
from tracemine.verdicts.levels import Measured, Reached, measured, reached

LIBRARY, COMPILED, WITH_PRODUCTS = "library", "compiled", "with_products"
KERNEL_VARIANT = "fused"  # what a reproduction calls what it tries, be it a kernel or not
_TUNED = "tuned"  # torch.compile with max-autotune


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A generated kernel, a library call, a copy through pinned memory, or a finding's calls made in another way."""

    by: str = KERNEL
    source: str | None = None  # the reproduction that checks and times it
    variant: str = KERNEL_VARIANT  # what that calls it
    call: str = ""  # F.rms_norm
    says: str = ""  # as one writes it: F.rms_norm(x, (4096,), w, eps)
    calls: int = 0  # in whose place it stands
    eager_calls: int = 0  # that stay around it
    products: bool = False  # whether it does matrix products too: another algorithm, no fusion
    evidence: str | None = None  # of the rebuilt dataflow; None: not rebuilt
    traced_ns: float | None = None  # what those calls took in the trace; None: not known
    assumptions: tuple[str, ...] = ()
    check: Callable[[Any, bool], Validation | str] | str | None = None  # on a CPU; a text: why there is none
    check_assumes: tuple[str, ...] = ()
    refused: str | None = None  # why there is nothing to run
    validation: Validation | str | None = None  # what the check came to
    ran: Mapping[str, Any] | str | None = None  # what the reproduction said on a GPU, or why it said nothing

    @property
    def own_file(self) -> str | None:
        """The reproduction, where it is of nothing else."""
        return self.source if self.variant == KERNEL_VARIANT else None

    @property
    def said(self) -> Mapping[str, Any] | str | None:
        """What the reproduction said of it, as if it stood in the kernel's place."""
        of_another = isinstance(self.ran, Mapping) and self.variant != KERNEL_VARIANT
        return in_place_of_kernel(self.ran, self.variant) if of_another else self.ran  # type: ignore[arg-type]

    def came_to(self) -> tuple[Reached, Measured | None]:
        """Return the level, and what was timed."""
        said = self.said
        times = said.get("times") if isinstance(said, Mapping) else None
        took = measured(times, self.traced_ns) if times else None
        return reached(self.refused, self.validation, said, took), took


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
