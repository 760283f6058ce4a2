"""Small figures of the HTML report as geometry: where each mark stands. Templates draw them as SVG.

Coordinates are in the units of each figure's view box. What a figure says with colours it says with letters, shapes or
places too.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from tracemine.documents.bar import bar_parts
from tracemine.findings.record import Parts, Range
from tracemine.units import shares, time_text

_WHOLE = 1_000  # tenths of a per cent
_WINDOWS = (("everywhere", 340), ("wide", 690))  # the bar's least width, pixels: on a phone, and beyond 44 rem
_MARGIN, _LETTER = 10, 7.2  # pixels around a label, and of a letter in it


def bar(parts: Parts, most_ns: int = 0) -> SimpleNamespace:
    """Return the step as one bar; each part as wide as its share. most_ns: what a whole bar's width is of; 0: the step.

    >>> from tracemine.findings.record import Part
    >>> made = bar(Parts(ns=100, covered_communication_ns=0, after_ns=Range(50, 60, 70), parts=(
    ...     Part(name="products", ns=99, gpu_time_ns=99), Part(name="idle", ns=1, gpu_time_ns=0))))
    >>> [(piece.label, piece.begin, piece.width) for piece in made.pieces]
    [('GEMM/conv 99%', '0.0%', '99.0%'), ('idle 1%', '99.0%', '1.0%')]
    """
    whole = round(_WHOLE * parts.ns / max(most_ns, parts.ns, 1))
    widths = shares([part.ns for part in parts.parts if part.ns], whole)
    pieces, begin = [], 0
    for segment, width in zip(bar_parts(parts), widths, strict=True):
        pieces.append(
            SimpleNamespace(
                name=segment.name,
                label=segment.label,
                begin=f"{begin / 10}%",  # per cent of the bar, as SVG takes lengths
                width=f"{width / 10}%",
                fits=_fits(segment.label, width),
            )
        )
        begin += width
    return SimpleNamespace(pieces=tuple(pieces))


def _fits(label: str, width: int) -> str:
    """Return where a label fits into its piece of the bar; width: in thousandths of the bar.

    >>> _fits("idle 77%", 770), _fits("memory-bound 21%", 210), _fits("idle 2%", 20)
    ('everywhere', 'wide', '')
    """
    needs = _MARGIN + _LETTER * len(label)
    return next((name for name, pixels in _WINDOWS if width * pixels >= needs * _WHOLE), "")


_INTERVAL_UNITS = 200


@dataclass(frozen=True, slots=True)
class IntervalFigure:
    """An interval as a line with its middle, and what was measured."""

    low: float
    mid: float
    high: float
    measured: float | None
    says: str


def interval(of: Range, most_ns: int, measured_ns: int | None = None) -> IntervalFigure:
    """Return an interval on a scale that ends at `most_ns`.

    >>> interval(Range(0, 5_000, 10_000), 20_000, 8_000)
    IntervalFigure(low=0.0, mid=50.0, high=100.0, measured=80.0, says='5.00 µs, from 0 ns to 10.0 µs; measured 8.00 µs')
    """

    def place(ns: int) -> float:
        return round(_INTERVAL_UNITS * max(min(ns / max(most_ns, 1), 1.0), 0.0), 1)

    says = f"{time_text(of.mid)}, from {time_text(of.low)} to {time_text(of.high)}"
    says += "" if measured_ns is None else f"; measured {time_text(measured_ns)}"
    measured = None if measured_ns is None else place(measured_ns)
    return IntervalFigure(place(of.low), place(of.mid), place(of.high), measured, says)
