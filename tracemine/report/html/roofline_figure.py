"""A roofline as geometry: both axes logarithmic, classes of kernels as marks, fixes as arrows; and the table below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10, sqrt
from types import SimpleNamespace

from tracemine.report.html.tables import Cell, Table, number_cell, text_cell
from tracemine.report.picture import Roofline
from tracemine.report.picture.roofline import Kernels
from tracemine.units import bytes_text, count_text, percent_text, ratio_text, time_text

_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 20, 50
_LEAST_SHARE = 0.01  # of GPU time: a class with less is in the table alone
_LEAST_ROW = 0.001  # and with less than this it is counted alone
_LEAST_KNOWN = 0.5  # of a class's time, of which bytes and FLOPs must be known
_COLOURS = 6  # of style.css; the colour of arrows is none of them
_SHAPES = ("circle", "square", "triangle", "diamond", "cross", "down")
_SHORT = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}


@dataclass(frozen=True, slots=True)
class _Axes:
    """Decades that are shown, and where they lie."""

    x0: int
    x1: int
    y0: int
    y1: int

    def x(self, intensity: float) -> float:
        width = _WIDTH - _LEFT - _RIGHT
        return round(_LEFT + width * (log10(intensity) - self.x0) / (self.x1 - self.x0), 1)

    def y(self, flops_per_s: float) -> float:
        height = _HEIGHT - _TOP - _BOTTOM
        return round(_TOP + height * (self.y1 - log10(flops_per_s)) / (self.y1 - self.y0), 1)


def roofline_figure(of: Roofline, titles: Mapping[str, tuple[str, str]]) -> SimpleNamespace:
    """Return the roofline as a figure. titles: of the findings that are shown, by fingerprint: anchor and title."""
    least_ns = _LEAST_SHARE * sum(each.ns for each in of.kernels)
    shown = [each for each in of.kernels if _is_known(each) and each.ns >= least_ns]
    axes = _axes(of, shown)
    return SimpleNamespace(
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        bottom=_HEIGHT - _BOTTOM,
        x_ticks=tuple((axes.x(10.0**n), _power(n)) for n in range(axes.x0, axes.x1 + 1)),
        y_ticks=tuple((axes.y(10.0**n), _rate(10.0**n)) for n in range(axes.y0, axes.y1 + 1)),
        roofs=tuple(_roofs(of, axes)),
        marks=tuple(_mark(number, each, axes) for number, each in enumerate(shown)),
        moved=tuple(_move(*titles[one], before, after, axes) for one, before, after in of.moved if one in titles),
        table=_table(of, {id(each): number for number, each in enumerate(shown)}),
    )


def _mark(number: int, of: Kernels, axes: _Axes) -> SimpleNamespace:
    x, y = axes.x(of.intensity or 1.0), axes.y(of.flops_per_s or 1.0)
    shape, colour = _SHAPES[number % len(_SHAPES)], number % _COLOURS
    return SimpleNamespace(number=number, shape=shape, colour=colour, x=x, y=y, label=_name(of))


def _move(
    anchor: str, title: str, before: tuple[float, float], after: tuple[float, float], axes: _Axes
) -> SimpleNamespace:
    """Return an arrow to where the fix of a finding moves its kernels."""
    (x1, y1), (x2, y2) = ((axes.x(x), axes.y(y)) for x, y in (before, after))
    begin, end = (
        f"{ratio_text(before[0])} FLOP a byte at {_rate(before[1])}",
        f"{ratio_text(after[0])} at {_rate(after[1])}",
    )
    return SimpleNamespace(anchor=anchor, x1=x1, y1=y1, x2=x2, y2=y2, says=f"{title}: from {begin} to {end}, predicted")


def _is_known(one: Kernels) -> bool:
    return bool(one.intensity and one.flops_per_s and one.both_ns >= _LEAST_KNOWN * one.ns)


def _axes(of: Roofline, shown: Sequence[Kernels]) -> _Axes:
    """Return decades that hold all marks and the ridge of each roof."""
    peaks = [peak for _, peak in of.roofs] or [of.bytes_per_s]
    x = [peak / of.bytes_per_s for peak in peaks] + [0.1]
    y: list[float] = [*peaks, of.bytes_per_s * 0.1]
    x += [each.intensity or 1.0 for each in shown] + [at for _, *ends in of.moved for at, _ in ends]
    y += [each.flops_per_s or 1.0 for each in shown]
    y += [at for _, *ends in of.moved for _, at in ends]
    return _Axes(floor(log10(min(x))), ceil(log10(max(x)) + 0.3), floor(log10(min(y))), ceil(log10(max(y)) + 0.1))


def _roofs(of: Roofline, axes: _Axes) -> Iterator[SimpleNamespace]:
    top = max((peak for _, peak in of.roofs), default=10**axes.y1)
    begin = max(10.0**axes.x0, 10.0**axes.y0 / of.bytes_per_s)
    path = f"M{axes.x(begin)} {axes.y(begin * of.bytes_per_s)}L{axes.x(top / of.bytes_per_s)} {axes.y(top)}"
    middle = sqrt(begin * top / of.bytes_per_s)
    label = f"memory {bytes_text(of.bytes_per_s)}/s"
    yield SimpleNamespace(path=path, label=label, x=axes.x(middle) - 8, y=axes.y(middle * of.bytes_per_s) - 6)
    for name, peak in of.roofs:
        y, right = axes.y(peak), axes.x(10.0**axes.x1)
        path = f"M{axes.x(peak / of.bytes_per_s)} {y}H{right}"
        yield SimpleNamespace(path=path, label=f"{name} {_rate(peak)}", x=right - 4, y=y - 6)


def _table(of: Roofline, numbers: Mapping[int, int]) -> Table:
    """Return the classes that take a thousandth of GPU time, as a table. numbers: of those in the plot, by id."""
    least_ns = _LEAST_ROW * sum(each.ns for each in of.kernels)
    shown = [each for each in of.kernels if each.ns >= least_ns]
    left = len(of.kernels) - len(shown)
    return Table(
        id="by-class",
        title="Roofline",
        says="",
        columns=(
            ("kernels", False), ("mark", True), ("how many", True), ("time over the trace", True), ("memory", True),
            ("arithmetic", True), ("FLOP per byte", True),
        ),
        rows=tuple(_row(each, numbers.get(id(each)), of) for each in shown),
        notes=(f"{count_text(left, 'class')} below 0.1% of GPU time",) if left else (),
    )  # fmt: skip


def _row(one: Kernels, mark: int | None, of: Roofline) -> tuple[Cell, ...]:
    rate = one.bytes_per_s if one.bytes_ns >= _LEAST_KNOWN * one.ns else None
    share = "" if rate is None else f" ({percent_text(rate, of.bytes_per_s)} of the roof)"
    known = _is_known(one)
    return (
        text_cell(_name(one)),
        number_cell(-1, "–") if mark is None else number_cell(-mark, str(mark + 1)),
        number_cell(one.count),
        number_cell(one.ns, time_text(one.ns)),
        number_cell(rate or 0, "not known" if rate is None else f"{bytes_text(rate)}/s{share}"),
        number_cell(one.flops_per_s or 0, _rate(one.flops_per_s or 0) if known else "not known, or none"),
        number_cell(one.intensity or 0, ratio_text(one.intensity or 0) if known else "–"),
    )


def _name(one: Kernels) -> str:
    return " ".join(part for part in (one.op_class, _SHORT.get(one.dtype or "", one.dtype)) if part)


def _rate(flops_per_s: float) -> str:
    """Return a rate of arithmetic.

    >>> _rate(989.4e12), _rate(1e9)
    ('989 TFLOP/s', '1 GFLOP/s')
    """
    for factor, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if flops_per_s >= factor:
            return f"{flops_per_s / factor:.3g} {unit}FLOP/s"
    return f"{flops_per_s:.3g} FLOP/s"


def _power(n: int) -> str:
    """Return a power of ten as a tick says it.

    >>> _power(-2), _power(3)
    ('0.01', '1,000')
    """
    return f"{10**n:,}" if n >= 0 else f"{10.0**n:.{-n}f}"
