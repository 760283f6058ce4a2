"""What a step is made of, as the parts of one bar: each renderer draws them with letters as well as with colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from tracemine.units import shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracemine.findings.record import Part, Parts

# Of each part its name for people. One that is missing here is called as it is.
TITLES = {
    "products": "GEMM/conv",
    "attention": "attention",
    "memory_bound": "memory-bound",
    "optimizer": "optimizer",
    "other": "other",
    "copies": "copies",
    "communication": "communication",
    "idle": "idle",
}
IDLE = "idle"


class BarPart(Struct, frozen=True):
    """A piece of the bar."""

    name: str  # of the part
    title: str
    share: str  # whole per cents, that add up to a hundred over the bar
    ns: int

    @property
    def label(self) -> str:
        """Its title and its share."""
        return f"{self.title} {self.share}"


def bar_parts(parts: Parts | None) -> tuple[BarPart, ...]:
    """Return the parts that take any time, in the order of the bar.

    >>> from tracemine.findings.record import Part, Parts, Range
    >>> step = Parts(ns=100, covered_communication_ns=0, after_ns=Range(50, 60, 70), parts=(
    ...     Part(name="products", ns=60, gpu_time_ns=60), Part(name="idle", ns=40, gpu_time_ns=0)))
    >>> [part.label for part in bar_parts(step)]
    ['GEMM/conv 60%', 'idle 40%']
    """
    shown = [] if parts is None else [part for part in parts.parts if part.ns]
    texts = [_percent(each, len(shown) == 1) for each in _percents(shown)]
    return tuple(
        BarPart(part.name, TITLES.get(part.name, "other"), text, part.ns)  # a file of findings may name any
        for part, text in zip(shown, texts, strict=True)
    )


def covered_text(parts: Parts | None) -> str:
    """Return what the bar does not show: communication that other work covers; "" where there is none."""
    if parts is None or not parts.covered_communication_ns:
        return ""
    share = _percent(round(100 * parts.covered_communication_ns / max(parts.ns, 1)), False)
    return f"communication behind other work {share}"


def legend(parts: Parts) -> str:
    """Return all parts with their shares, in the order of the bar."""
    return ", ".join(filter(None, (*(part.label for part in bar_parts(parts)), covered_text(parts))))


def _percents(shown: Sequence[Part]) -> list[int]:
    """Return per cents that sum to 100: of idle time rounded, as where it is said alone, the rest shared out."""
    work = [part.ns for part in shown if part.name != IDLE]
    idle = round(100 * (1 - sum(work) / max(sum(part.ns for part in shown), 1))) if work else 100
    of_work = iter(shares(work, 100 - idle))
    return [idle if part.name == IDLE else next(of_work) for part in shown]


def _percent(percent: int, whole: bool) -> str:
    if percent == 100 and not whole:
        return ">99%"
    return f"{percent}%" if percent else "<1%"
