"""The dataflow of a finding as geometry: operators from top to bottom, and the tensors between and next to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace

from tracemine.report.picture.dataflow import DataflowPicture, DrawnTensor
from tracemine.units import bytes_text, time_text

_BOX_X, _BOX_WIDTH, _BOX_HEIGHT, _BOX_STEP = 250, 220, 40, 76
_LINE = 14  # height of a line of text
_MOST_BESIDE = 4  # tensors next to one box
_LANE = 12  # between arcs


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
