"""An `.xplane.pb`: its planes, what they call things, and the events of a line as columns.

XSpace, XPlane, XLine, XEvent, XStat: https://github.com/openxla/xla/blob/main/xla/tsl/profiler/protobuf/xplane.proto
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from tracemine.columns import Array, codes, examples
from tracemine.errors import InputError
from tracemine.formats.arrow import MISSING
from tracemine.formats.xla import event_cells
from tracemine.formats.xla.event_cells import BYTES, DOUBLE, INT, REF, TEXT, UINT
from tracemine.formats.xla.wire import Kind, Span, damaged, fields, read, signed, table, text_of, varint

Value: TypeAlias = int | float | str | Span  # a span is one of bytes

_PLANE = table(
    number=(1, Kind.SIGNED),
    name=(2, Kind.TEXT),
    lines=(3, Kind.SPANS),
    event_names=(4, Kind.SPANS),
    stat_names=(5, Kind.SPANS),
    stats=(6, Kind.SPANS),
)
_ENTRY = table(key=(1, Kind.SIGNED), value=(2, Kind.SPAN))
_NAMED = table(name=(2, Kind.TEXT))
_EVENT_NAMED = table(name=(2, Kind.TEXT), stats=(5, Kind.SPANS))
_PLANES, _EVENTS = 1, 4
_LINE_NUMBER, _LINE_NAME, _LINE_START = 1, 2, 3


class PlaneLine(Struct, frozen=True):
    """A line of a plane: one stream of a GPU, or one thread of the host."""

    number: int
    name: str
    start_ns: int
    span: Span  # of the whole line, its events in it


class Plane(Struct, frozen=True):
    """A plane: one GPU, the host, or what holds for the recording."""

    number: int
    name: str
    lines: tuple[PlaneLine, ...]
    event_names: dict[int, str]  # by the id that events have
    event_stats: dict[int, tuple[Span, ...]]  # of those event names that have any
    stat_names: dict[int, str]
    stats: dict[str, Value]


class XSpace(Struct, frozen=True):
    """What one file holds. `truncated`: its last plane is not whole, and was left out."""

    data: memoryview
    planes: tuple[Plane, ...]
    truncated: bool = False

    def stats_of(self, plane: Plane, event: int) -> dict[str, Value]:
        """Return the values that an event name of a plane has itself, such as the `Hlo Proto` of a module."""
        return _stats(self.data, plane.event_stats.get(event, ()), plane.stat_names)

    def text(self, value: Value) -> str:
        """Return a value as text: bytes are decoded, numbers printed."""
        return text_of(self.data, value) if isinstance(value, tuple) else str(value)

    def forget(self, line: PlaneLine) -> None:
        """Give the memory of a line's events back, which nothing will look at any more."""
        room = self.data.obj
        if isinstance(room, mmap.mmap) and hasattr(room, "madvise"):
            begin, end = -(-line.span[0] // mmap.PAGESIZE), line.span[1] // mmap.PAGESIZE
            if end > begin:
                room.madvise(mmap.MADV_DONTNEED, begin * mmap.PAGESIZE, (end - begin) * mmap.PAGESIZE)


class LineEvents(Struct, frozen=True):
    """Events of a line as columns, in the order of the file."""

    names: Array  # ids in the plane's event_names
    offset_ps: Array  # from the line's start
    dur_ps: Array
    values: dict[str, Array]  # by the stat's name, int64: numbers, bits of doubles, or where a text lies
    kinds: dict[str, Array]  # int8, of `event_cells`; 0 where an event lacks the stat

    def numbers(self, stat: str) -> Array:
        """Return the integers of a stat, MISSING where an event lacks it or has another kind of value."""
        kinds = self.kinds[stat]
        return np.where((kinds == UINT) | (kinds == INT), self.values[stat], MISSING)

    def doubles(self, stat: str) -> Array:
        """Return the float64 of a stat, NaN where an event lacks it."""
        kinds, values = self.kinds[stat], self.values[stat]
        whole = (kinds == UINT) | (kinds == INT)
        return np.where(kinds == DOUBLE, values.view(np.float64), np.where(whole, values, np.nan))


def open_space(data: memoryview) -> XSpace:
    """Return the planes of a file.

    Raises InputError, with the offset, where the bytes are no such file. One that ends within a plane is `truncated`.

    >>> open_space(memoryview(bytes([10, 4, 18, 2, 97, 98]))).planes[0].name
    'ab'
    """
    planes: list[Plane] = []
    at = 0
    while at < len(data):
        try:
            tag, begin = varint(data, at, len(data))
            length, begin = varint(data, begin, len(data)) if tag & 7 == 2 else (0, begin)
        except InputError:
            if len(data) - at > _LONGEST_HEAD:
                raise
            return XSpace(data, tuple(planes), truncated=True)
        if begin + length > len(data):
            return XSpace(data, tuple(planes), truncated=True)
        if tag >> 3 == _PLANES:
            if tag & 7 != 2:
                raise damaged("a plane is no message", at)
            planes.append(_plane(data, (begin, begin + length)))
        at = begin + length if tag & 7 == 2 else _behind(data, at)
    return XSpace(data, tuple(planes))


_LONGEST_HEAD = 20  # bytes: two numbers


def _behind(data: memoryview, at: int) -> int:
    """Return where the field ends that begins at `at`."""
    iterator = fields(data, (at, len(data)))
    next(iterator)
    following = next(iterator, None)
    return len(data) if following is None else following[3]


def _plane(data: memoryview, span: Span) -> Plane:
    found = read(data, span, _PLANE)
    names = {key: read(data, value, _NAMED)["name"] for key, value in _entries(data, found["stat_names"])}
    events = {key: read(data, value, _EVENT_NAMED) for key, value in _entries(data, found["event_names"])}
    return Plane(
        number=found["number"],
        name=found["name"],
        lines=tuple(_line(data, line) for line in found["lines"]),
        event_names={key: event["name"] for key, event in events.items()},
        event_stats={key: tuple(event["stats"]) for key, event in events.items() if event["stats"]},
        stat_names=names,
        stats=_stats(data, found["stats"], names),
    )


def _entries(data: memoryview, spans: Sequence[Span]) -> Iterator[tuple[int, Span]]:
    for span in spans:
        entry = read(data, span, _ENTRY)
        yield entry["key"], entry["value"] or (span[1], span[1])


def _line(data: memoryview, span: Span) -> PlaneLine:
    """Return what stands in front of a line's events; they are not looked at."""
    number, name, start = 0, "", 0
    wires = {_LINE_NUMBER: 0, _LINE_NAME: 2, _LINE_START: 0}
    for field, wire, value, offset in fields(data, span):
        if field == _EVENTS:
            break
        if wires.get(field, wire) != wire:
            raise damaged("a line has a field of another type", offset)
        if field == _LINE_NUMBER:
            number = signed(value)
        elif field == _LINE_NAME:
            name = text_of(data, value)
        elif field == _LINE_START:
            start = signed(value)
    return PlaneLine(number, name, start, span)


def _stats(data: memoryview, spans: Sequence[Span], names: dict[int, str]) -> dict[str, Value]:
    found = {}
    for span in spans:
        number, kind, value = event_cells.stat(data, span)
        found[names.get(number, str(number))] = _plain(data, kind, value, names)
    return found


def _plain(data: memoryview, kind: int, value: int, names: dict[int, str]) -> Value:
    if kind == DOUBLE:
        return float(struct.unpack("<d", struct.pack("<q", value))[0])
    if kind in (TEXT, BYTES):
        span = event_cells.span_at(data, value)
        return text_of(data, span) if kind == TEXT else span
    return names.get(value, "") if kind == REF else value


def text_ids(space: XSpace, plane: Plane, events: LineEvents, stat: str, number: Callable[[str], int]) -> Array:
    """Return a stat's texts as `number` gives ids to them, −1 where an event has none (int32)."""
    kinds, values = events.kinds[stat], events.values[stat]
    found = np.full(len(kinds), -1, np.int32)
    for kind in (REF, TEXT):
        rows = np.flatnonzero(kinds == kind)
        if not len(rows):
            continue
        code = codes(values[rows])
        plain = (_plain(space.data, kind, value, plane.stat_names) for value in values[rows[examples(code)]].tolist())
        found[rows] = np.array([number(str(text)) for text in plain], np.int32)[code]
    return found


def events_of(
    space: XSpace, plane: Plane, line: PlaneLine, wanted: Sequence[str], skipped: Sequence[int] = ()
) -> Iterator[LineEvents]:
    """Yield the events of a line, some ten thousand at a time, with those of their stats that are `wanted`.

    Events whose name is among `skipped` are stepped over. Raises InputError, with the offset, where it is damaged.
    """
    number_of = {name: number for number, name in plane.stat_names.items()}
    numbers = [number_of.get(name, -1) for name in wanted]
    own = {event: event_cells.stats(space.data, spans) for event, spans in plane.event_stats.items()}
    for cells, kinds in event_cells.cells(
        space.data, line.span, np.array(numbers, np.int64), np.sort(np.array(skipped, np.int64))
    ):
        values = dict(zip(wanted, cells[3:], strict=True))
        of_kind = dict(zip(wanted, kinds, strict=True))
        for event, stats in own.items():
            for name, number in zip(wanted, numbers, strict=True):
                if number in stats:
                    rows = (cells[0] == event) & (of_kind[name] == 0)
                    of_kind[name][rows], values[name][rows] = stats[number]
        yield LineEvents(cells[0], cells[1], cells[2], values, of_kind)
