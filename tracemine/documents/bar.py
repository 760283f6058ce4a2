"""What a step is made of, drawn as one bar: it says with letters what it says with colours."""

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
EDGE, _WORK, _IDLE = "│", "━", "·"


class BarSegment(Struct, frozen=True):
    """A part's piece of the bar."""

    name: str  # of the part
    label: str  # the part and its share
    text: str  # what stands in the bar: as much of the label as fits, filled up

    @property
    def whole(self) -> bool:
        """Whether its label can be read in the bar."""
        return self.label in self.text


def segments(parts: Parts, width: int) -> list[BarSegment]:
    """Return the bar's segments, `width` columns with the edges before, between and behind them; shortest 1 column.

    >>> from tracemine.findings.record import Part, Parts, Range
    >>> step = Parts(ns=100, covered_communication_ns=0, after_ns=Range(50, 60, 70), parts=(
    ...     Part(name="products", ns=59, gpu_time_ns=59), Part(name="copies", ns=1, gpu_time_ns=1),
    ...     Part(name="idle", ns=40, gpu_time_ns=0)))
    >>> print(bar(segments(step, 40)))
    │GEMM/conv 59 % ━━━━━━│c│idle 40 % ····│
    >>> rest(segments(step, 40), step)
    'copies 1 %'
    """
    shown = [part for part in parts.parts if part.ns]
    percents = _percents(shown)
    room = max(width - len(shown) - 1 - len(shown), 0)
    widths = [1 + each for each in shares([part.ns for part in shown], room)]
    alone = len(shown) == 1
    return [
        _segment(part, _percent(percent, alone), columns)
        for part, percent, columns in zip(shown, percents, widths, strict=True)
    ]


def shown_parts(parts: Parts) -> list[tuple[str, str, int]]:
    """Return the name of each part that takes any time, its share in per cent as a text, and its nanoseconds.

    >>> from tracemine.findings.record import Part, Parts, Range
    >>> step = Parts(ns=100, covered_communication_ns=0, after_ns=Range(50, 60, 70), parts=(
    ...     Part(name="copies", ns=60, gpu_time_ns=60), Part(name="idle", ns=40, gpu_time_ns=0)))
    >>> shown_parts(step)
    [('copies', '60%', 60), ('idle', '40%', 40)]
    """
    shown = [part for part in parts.parts if part.ns]
    texts = [_percent(each, len(shown) == 1).replace(" ", "") for each in _percents(shown)]
    return [(part.name, text, part.ns) for part, text in zip(shown, texts, strict=True)]


def bar(pieces: Sequence[BarSegment]) -> str:
    """Return all segments as one text."""
    return EDGE + EDGE.join(piece.text for piece in pieces) + EDGE if pieces else ""


def rest(pieces: Sequence[BarSegment], parts: Parts) -> str:
    """Return what cannot be read in the bar, and communication that other work covers; "" where that is nothing."""
    said = [piece.label for piece in pieces if not piece.whole]
    if parts.covered_communication_ns:
        said.append(f"communication behind other work {share_text(parts.covered_communication_ns, parts.ns)}")
    return ", ".join(said)


def legend(parts: Parts) -> str:
    """Return all parts with their shares, in the order of the bar."""
    pieces = segments(parts, 0)
    return ", ".join(part for part in (", ".join(piece.label for piece in pieces), rest((), parts)) if part)


def share_text(part_ns: int, whole_ns: int) -> str:
    """Return a share in whole per cents, that does not say nothing where it is something.

    >>> share_text(1, 3), share_text(1, 1_000), share_text(999, 1_000), share_text(1, 1)
    ('33 %', '<1 %', '>99 %', '100 %')
    """
    return _percent(round(100 * part_ns / max(whole_ns, 1)), part_ns >= whole_ns)


def _percents(shown: Sequence[Part]) -> list[int]:
    """Return per cents that sum to 100: of idle time rounded, as where it is said alone, the rest shared out."""
    work = [part.ns for part in shown if part.name != IDLE]
    idle = round(100 * (1 - sum(work) / max(sum(part.ns for part in shown), 1))) if work else 100
    of_work = iter(shares(work, 100 - idle))
    return [idle if part.name == IDLE else next(of_work) for part in shown]


def _segment(part: Part, share: str, columns: int) -> BarSegment:
    title = TITLES.get(part.name, part.name)
    label = f"{title} {share}"
    fill = _IDLE if part.name == IDLE else _WORK
    shown = label if len(label) <= columns else title  # half a number would be another one
    return BarSegment(part.name, label, f"{shown} {fill * columns}"[:columns])


def _percent(percent: int, whole: bool) -> str:
    if percent == 100 and not whole:
        return ">99 %"
    return f"{percent} %" if percent else "<1 %"
