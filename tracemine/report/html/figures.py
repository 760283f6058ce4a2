"""Small figures of the HTML report as geometry: where each mark stands. Templates draw them as SVG.

Coordinates are in the units of each figure's view box. What a figure says with colours it says with letters, shapes or
places too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10, sqrt
from types import SimpleNamespace

from tracemine.documents.bar import bar_parts
from tracemine.findings.record import Parts, Range
from tracemine.report.picture import Roofline
from tracemine.report.picture.dataflow import DataflowPicture, DrawnTensor
from tracemine.report.picture.roofline import Kernels
from tracemine.units import bytes_text, count_text, percent_text, ratio_text, shares, time_text

_WHOLE = 1_000  # tenths of a per cent
_WINDOWS = (("everywhere", 340), ("wide", 690))  # the bar's least width, pixels: on a phone, and beyond 44 rem
_MARGIN, _LETTER = 10, 7.2  # pixels around a label, and of a letter in it

_BOX_X, _BOX_WIDTH, _BOX_HEIGHT, _BOX_STEP = 250, 220, 40, 76
_LINE = 14  # height of a line of text
_MOST_BESIDE = 4  # tensors next to one box
_LANE = 12  # between arcs

_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 20, 50
_LEAST_SHARE = 0.01  # of GPU time: a class with less is in the table alone
_LEAST_ROW = 0.001  # and with less than this it is counted alone
_LEAST_KNOWN = 0.5  # of a class's time, of which bytes and FLOPs must be known
_COLOURS = 6  # of style.css; the colour of arrows is none of them
_SHAPES = ("circle", "square", "triangle", "diamond", "cross", "down")
_SHORT = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}


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


def flow_figure(drawn: DataflowPicture) -> SimpleNamespace:
    """Return the figure of a finding's dataflow, and the same as a table: from, to, tensor, evidence."""
    names = [box.name.removeprefix("aten::") for box in drawn.boxes]
    ends: dict[int | None, str] = {at: f"{at + 1}. {name}" for at, name in enumerate(names)}
    beside = Counter(map(_beside, drawn.tensors))
    tops, y = [], 10
    for at in range(len(names)):
        tops.append(y)
        most = min(max(beside["in", at], beside["out", at]), _MOST_BESIDE + 1)
        y += max(_BOX_STEP, most * _LINE + 24)
    return SimpleNamespace(
        width=760,
        height=y,
        boxes=tuple(
            SimpleNamespace(y=top, name=name, says=time_text(box.ns))
            for top, name, box in zip(tops, names, drawn.boxes, strict=True)
        ),
        arrows=tuple(_arrows(drawn.tensors, tops)),
        rows=tuple(
            (
                ends.get(one.producer, "from outside"),
                ends.get(one.consumer, "live-out"),
                tensor_text(one),
                one.evidence or "",
            )
            for one in drawn.tensors
        ),
        left_out=drawn.boxes_left_out,
    )


def tensor_text(tensor: DrawnTensor) -> str:
    """Return a tensor in few words: its shape, its data type, its bytes, as far as they are known."""
    shape = None if tensor.shape is None else f"[{', '.join(map(str, tensor.shape))}]"
    size = None if tensor.bytes is None else bytes_text(tensor.bytes)
    return " · ".join(part for part in (shape, tensor.dtype, size) if part) or "shape not recorded"


def _beside(tensor: DrawnTensor) -> tuple[str, int | None]:
    """Return whether it comes into a box from outside, or outlives it, and which one; "" of one between boxes."""
    if tensor.producer is not None and tensor.consumer is not None:
        return "", None
    return ("in", tensor.consumer) if tensor.producer is None else ("out", tensor.producer)


def _arrows(tensors: Iterable[DrawnTensor], tops: Sequence[int]) -> Iterator[SimpleNamespace]:
    """Yield of each tensor its path, and where its text stands: straight to the next box, in an arc past others."""
    middle, right = _BOX_X + _BOX_WIDTH // 2, _BOX_X + _BOX_WIDTH
    told, arcs, counts = set(), 0, Counter[tuple[str, int | None]]()
    for tensor in tensors:
        (kind, at), text = _beside(tensor), tensor_text(tensor)
        number = counts[kind, at]
        counts[kind, at] += 1
        if tensor.producer is not None and tensor.consumer is not None:
            begin, end = tops[tensor.producer] + _BOX_HEIGHT, tops[tensor.consumer]
            if tensor.consumer == tensor.producer + 1 and tensor.producer not in told:
                told.add(tensor.producer)
                yield _arrow("next", f"M{middle} {begin}V{end}", text, middle - 8, end - 12)
                continue
            arcs += 1
            begin, end, out = begin - 8, end + 8, right + _LANE * (1 + arcs % 4) + 14
            yield _arrow("arc", f"M{right} {begin}C{out} {begin} {out} {end} {right} {end}", text)
        elif at is not None and number <= _MOST_BESIDE:
            text = text if number < _MOST_BESIDE else "and more: see the table"
            y = tops[at] + 10 + _LINE * number
            bent = min(y, tops[at] + _BOX_HEIGHT - 4)
            if kind == "in":
                yield _arrow("in", f"M{_BOX_X - 20} {y}L{_BOX_X} {bent}", text, _BOX_X - 24, y + 4)
            else:
                yield _arrow("out", f"M{right} {bent}L{right + 74} {y}", text, right + 78, y + 4)


def _arrow(kind: str, path: str, text: str, x: int = 0, y: int = 0) -> SimpleNamespace:
    return SimpleNamespace(kind=kind, path=path, text=text, x=x, y=y)


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


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table, and what its column sorts by."""

    text: str
    sorts: str
    figure: IntervalFigure | None = None
    bar: float | None = None  # a share, drawn as a bar
    code: str = ""
    whole: str = ""  # all of a text that is cut
    mark: str = ""  # `better` or `worse`
    links: tuple[tuple[str, str], ...] = ()  # anchors, and what they are called


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the page, under its title."""

    id: str
    title: str
    says: str
    columns: tuple[tuple[str, bool], ...]  # names, and whether numbers stand in it, which sort from the largest
    rows: tuple[tuple[Cell, ...], ...]
    depths: tuple[int, ...] = ()  # of rows, each before its parts; none: no row is part of another
    notes: tuple[str, ...] = ()


def text_cell(said: str, *, code: bool = False) -> Cell:
    """Return a cell that sorts by what it says."""
    return Cell("" if code else said, said, code=said if code else "")


def number_cell(of: float, said: str | None = None) -> Cell:
    """Return a cell that sorts by a number."""
    return Cell(f"{of:,}" if said is None else said, str(of))
