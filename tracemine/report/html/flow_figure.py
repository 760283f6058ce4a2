"""The dataflow of a finding as geometry: operators from top to bottom, and the tensors between and next to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from tracemine.report.picture import DataflowPicture
from tracemine.report.picture.dataflow import DrawnTensor
from tracemine.units import bytes_text, time_text

_BOX_X, _BOX_WIDTH, _BOX_HEIGHT, _BOX_STEP = 250, 220, 40, 76
_LINE = 14  # height of a line of text
_MOST_BESIDE = 4  # tensors next to one box
_LANE = 12  # between arcs


@dataclass(frozen=True, slots=True)
class Arrow:
    """A tensor between two operators, or into or out of one: its path, and where its text stands."""

    kind: str  # `next`, `arc`, `in`, `out`
    path: str
    text: str
    x: float
    y: float


def flow_figure(drawn: DataflowPicture) -> SimpleNamespace:
    """Return the figure of a finding's dataflow."""
    tops, y = [], 10
    beside: dict[int, int] = defaultdict(int)
    for tensor in drawn.tensors:
        if tensor.producer is None and tensor.consumer is not None:
            beside[tensor.consumer] += 1
        elif tensor.consumer is None and tensor.producer is not None:
            beside[-1 - tensor.producer] += 1
    for at, _ in enumerate(drawn.boxes):
        tops.append(y)
        most = min(max(beside[at], beside[-1 - at]), _MOST_BESIDE + 1)
        y += max(_BOX_STEP, most * _LINE + 24)
    boxes = tuple(
        SimpleNamespace(y=top, name=box.name.removeprefix("aten::"), says=time_text(box.ns))
        for top, box in zip(tops, drawn.boxes, strict=True)
    )
    arrows = [*_between(drawn.tensors, tops), *_beside(drawn.tensors, tops)]
    names = [f"{number}. {box.name}" for number, box in enumerate(boxes, 1)]
    return SimpleNamespace(
        width=760,
        height=y,
        boxes=boxes,
        arrows=tuple(arrows),
        rows=tuple(_flow_rows(drawn.tensors, names)),  # the same as a table: from, to, tensor, evidence
        left_out=drawn.boxes_left_out,
    )


def tensor_text(tensor: DrawnTensor) -> str:
    """Return a tensor in few words: its shape, its data type, its bytes, as far as they are known."""
    shape = None if tensor.shape is None else f"[{', '.join(map(str, tensor.shape))}]"
    size = None if tensor.bytes is None else bytes_text(tensor.bytes)
    return " · ".join(part for part in (shape, tensor.dtype, size) if part) or "shape not recorded"


def _between(tensors: Iterable[DrawnTensor], tops: Sequence[int]) -> Iterator[Arrow]:
    """Yield arrows from box to box: straight to the next, in an arc past others."""
    middle, right = _BOX_X + _BOX_WIDTH // 2, _BOX_X + _BOX_WIDTH
    told, arcs = set(), 0
    for tensor in tensors:
        if tensor.producer is None or tensor.consumer is None:
            continue
        begin, end = tops[tensor.producer] + _BOX_HEIGHT, tops[tensor.consumer]
        if tensor.consumer == tensor.producer + 1 and tensor.producer not in told:
            told.add(tensor.producer)
            path = f"M{middle} {begin}V{end}"
            yield Arrow("next", path, tensor_text(tensor), middle - 8, end - 12)
            continue
        arcs += 1
        out = right + _LANE * (1 + arcs % 4)
        begin, end = begin - 8, end + 8
        path = f"M{right} {begin}C{out + 14} {begin} {out + 14} {end} {right} {end}"
        yield Arrow("arc", path, tensor_text(tensor), 0, 0)


def _beside(tensors: Iterable[DrawnTensor], tops: Sequence[int]) -> Iterator[Arrow]:
    """Yield what comes into boxes from outside, and what outlives them."""
    counts: dict[tuple[str, int], int] = defaultdict(int)
    right = _BOX_X + _BOX_WIDTH
    for tensor in tensors:
        at = tensor.consumer if tensor.producer is None else tensor.producer
        if at is None or (tensor.producer is not None and tensor.consumer is not None):
            continue
        kind = "in" if tensor.producer is None else "out"
        number = counts[kind, at]
        counts[kind, at] += 1
        if number > _MOST_BESIDE:
            continue
        text = tensor_text(tensor) if number < _MOST_BESIDE else "and more: see the table"
        y = tops[at] + 10 + _LINE * number
        bent = min(y, tops[at] + _BOX_HEIGHT - 4)
        if kind == "in":
            yield Arrow("in", f"M{_BOX_X - 20} {y}L{_BOX_X} {bent}", text, _BOX_X - 24, y + 4)
        else:
            yield Arrow("out", f"M{right} {bent}L{right + 74} {y}", text, right + 78, y + 4)


def _flow_rows(tensors: Iterable[DrawnTensor], names: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
    for tensor in tensors:
        begin = "from outside" if tensor.producer is None else names[tensor.producer]
        end = "live-out" if tensor.consumer is None else names[tensor.consumer]
        yield begin, end, tensor_text(tensor), tensor.evidence or ""
