"""A table of cases.md as a graph: a line an operator, what it reads by name, and what WHERE may ask of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from tracemine.errors import Location, RuleError
from tracemine.flow.record import Evidence
from tracemine.matching.graph_pattern import LAYOUTS, PLACES
from tracemine.patterns import deferred
from tracemine.rows.graph import MOST_AXES, NO_AXIS, NodeGraph, NodeTensors
from tracemine.rows.table import BoolArray, IntArray

READS: Final = "reads"
_TENSOR: Final = ("shape", "dtype", "layout")
# Columns that a graph's table has besides those of the rows; of all the cells are texts.
GRAPH_CELLS: Final = dict.fromkeys(
    ["node", READS, "kept", "guessed", "unknown", "axis", *(f"{place}_{what}" for place in PLACES for what in _TENSOR)],
    "categories",
)
_FLAGS: Final = {"true": True, "false": False, "": False}
_HEADS_INSIDE: Final = "heads_inside"
_LAYOUTS: Final = (*LAYOUTS, _HEADS_INSIDE)
_SHAPE = deferred(r"\[\s*(?:\d{1,12}\s*(?:,\s*\d{1,12}\s*)*)?\]")
_VALUE_BYTES: Final = 1 << 20  # each value lies in a buffer of its own; how large it is, no rule asks

Cells = Mapping[str, Sequence[tuple[Location, str]]]


@dataclass(frozen=True, slots=True)
class _CellTensor:
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    layout: str = "contiguous"


class _Lines:
    """What the lines of a table say, one entry a line."""

    def __init__(self) -> None:
        self.reads: list[list[int]] = []  # values: of lines their numbers, then those from outside
        self.inputs: list[list[_CellTensor]] = []
        self.outputs: list[_CellTensor] = []
        self.outside: dict[str, int] = {}


def graph_of_table(cells: Cells, count: int) -> NodeGraph:
    """Return the graph of a table of so many lines. Raises RuleError naming the line."""
    lines = _lines(cells, count)
    kept, guessed, unknown = (_flags(cells, name, count) for name in ("kept", "guessed", "unknown"))
    pairs = sorted({(node, value) for node, values in enumerate(lines.reads) for value in values if value < count})
    consumer, producer = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    read = np.array([value for values in lines.reads for value in values], np.int64)
    reader = np.repeat(np.arange(count), [len(values) for values in lines.reads]) if count else read
    sure = np.where(guessed, Evidence.ADJACENT, Evidence.PROVEN).astype(np.int8)
    tensors = _tensors(lines, _axes(cells, count))
    return NodeGraph(
        activity=np.arange(count),
        activity_begin=np.arange(count + 1),
        activity_node=np.arange(count),
        known=~unknown,
        told=~unknown & ~guessed,
        consumer=consumer,
        producer=producer,
        evidence=sure[consumer],
        usable=np.ones(len(consumer), np.bool_),
        passed=np.ones(len(consumer), np.bool_),
        read_begin=np.searchsorted(reader, np.arange(count + 1)),
        read_buffer=read,
        read_writer=np.where(read < count, read, -1),
        read_first=np.zeros(len(read), np.int64),
        read_last=np.full(len(read), _VALUE_BYTES),
        read_evidence=sure[reader],
        tensors_of=lambda: tensors,
        liveness_of=lambda: (kept, True),
    )


def _lines(cells: Cells, count: int) -> _Lines:
    nodes: dict[str, int] = {}
    lines = _Lines()
    for line in range(count):
        inputs = []
        values = []
        for place, number in enumerate(_read(cells, line, nodes, lines.outside)):
            values.append(number)
            result = lines.outputs[number] if number < count else _CellTensor()
            inputs.append(_tensor(cells, PLACES[place], line, result) if place < 3 else result)
        lines.reads.append(values)
        lines.inputs.append(inputs)
        lines.outputs.append(_tensor(cells, "out", line, _CellTensor()))
        if "node" in cells and (named := cells["node"][line])[1]:
            if named[1] in nodes or named[1] in lines.outside:
                raise RuleError(f"{named[1]!r} is there twice", where=named[0])
            nodes[named[1]] = line
    return lines


def _read(cells: Cells, line: int, nodes: Mapping[str, int], outside: dict[str, int]) -> Iterator[int]:
    """Yield the values that a line reads; `outside` takes the names that are no line's. Raises RuleError."""
    where, text = cells[READS][line]
    below = {cell for _, cell in cells.get("node", ())[line:]}
    for name in filter(None, map(str.strip, text.split(","))):
        if name in nodes:
            yield nodes[name]
        elif name in below:
            raise RuleError(f"{name!r} does not stand above", where=where, hint="operators are in order of time")
        else:
            yield outside.setdefault(name, len(cells[READS]) + len(outside))


def _tensor(cells: Cells, place: str, line: int, otherwise: _CellTensor) -> _CellTensor:
    """Return what the table says of one input or output; where it is silent, as it came."""
    shape, dtype, layout = ((cells[name][line] if (name := f"{place}_{what}") in cells else None) for what in _TENSOR)
    sizes = _sizes(*shape) if shape is not None and shape[1] else otherwise.shape
    if layout is not None and layout[1] and layout[1] not in _LAYOUTS:
        raise RuleError(f"{layout[1]!r} is no layout", where=layout[0], hint=f"there are: {', '.join(_LAYOUTS)}")
    return _CellTensor(
        sizes,
        dtype[1] if dtype is not None and dtype[1] else otherwise.dtype,
        layout[1] if layout is not None and layout[1] else otherwise.layout,
    )


def _sizes(where: Location, text: str) -> tuple[int, ...]:
    """Return a shape as a cell has it. Raises RuleError."""
    if not _SHAPE.fullmatch(text):
        raise RuleError(f"{text!r} is no shape", where=where, hint="write [8,64,64]")
    sizes = tuple(int(size) for size in re.findall(r"\d+", text))
    if len(sizes) > MOST_AXES:
        raise RuleError(f"{len(sizes)} axes; at most {MOST_AXES} are offered", where=where)
    return sizes


def _flags(cells: Cells, name: str, count: int) -> BoolArray:
    found = np.zeros(count, np.bool_)
    for line, (where, cell) in enumerate(cells.get(name, ())):
        if cell not in _FLAGS:
            raise RuleError(f"{cell!r} is neither true nor false", where=where)
        found[line] = _FLAGS[cell]
    return found


def _axes(cells: Cells, count: int) -> IntArray:
    found = np.full(count, NO_AXIS)
    for line, (where, cell) in enumerate(cells.get("axis", ())):
        if cell and not re.fullmatch(r"-[1-9]", cell):
            raise RuleError(f"{cell!r} is no axis", where=where, hint="axes are counted from the end: -1 is the last")
        if cell:
            found[line] = int(cell)
    return found


def _tensors(lines: _Lines, axis: IntArray) -> NodeTensors:
    count = len(lines.outputs)
    of = {place: np.full(count, -1, np.int64) for place in PLACES}
    entries: list[_CellTensor] = []
    for node, (inputs, output) in enumerate(zip(lines.inputs, lines.outputs, strict=True)):
        for place, tensor in [*zip(PLACES[:3], inputs, strict=False), ("out", output)]:
            of[place][node] = len(entries)
            entries.append(tensor)
    entries.append(_CellTensor())  # none's
    dtypes = tuple(dict.fromkeys(entry.dtype for entry in entries if entry.dtype is not None))
    rank = np.array([-1 if entry.shape is None else len(entry.shape) for entry in entries], np.int64)
    return NodeTensors(
        of=of,
        shape=np.array([_padded(entry.shape or ()) for entry in entries], np.int64),
        rank=rank,
        strides=np.array([_padded(_strides(entry.shape or (), entry.layout)) for entry in entries], np.int64),
        has_strides=rank >= 0,
        dtype=np.array([-1 if entry.dtype is None else dtypes.index(entry.dtype) for entry in entries], np.int64),
        dtypes=dtypes,
        axes_of=lambda: axis,
    )


def _padded(sizes: Sequence[int]) -> list[int]:
    return [-1] * (MOST_AXES - len(sizes)) + [*sizes]


def _strides(shape: Sequence[int], layout: str) -> list[int]:
    """Return strides of a tensor of that layout; `strided`: with room between its elements; `heads_inside`: as
    `transpose(1, 2)` leaves it, whose layout is `strided` too.

    >>> _strides((2, 3, 4), "contiguous"), _strides((2, 3, 4, 5), "channels_last")
    ([12, 4, 1], [60, 1, 15, 3])
    >>> _strides((2, 3, 4, 5), "heads_inside")
    [60, 5, 15, 1]
    """
    order = [*range(len(shape))]  # outermost first
    if layout == "channels_last" and len(shape) > 2:
        order = [0, *range(2, len(shape)), 1]
    if layout == _HEADS_INSIDE and len(shape) > 2:
        order = [0, 2, 1, *range(3, len(shape))]
    room = 2 if layout == "strided" else 1
    return [room * prod(shape[inner] for inner in order[order.index(axis) + 1 :]) for axis in range(len(shape))]
