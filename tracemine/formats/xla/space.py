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
from tracemine.formats.xla import event_cells
from tracemine.formats.xla.event_cells import DOUBLE, RAW, REF, SINT, STR, UINT
from tracemine.formats.xla.wire import INT, SPAN, TEXT, CutOffError, Span, damaged, fields, read, table, text_of, varint
from tracemine.timeline.arrow import MISSING

Value: TypeAlias = int | float | str | Span  # a span is one of bytes

_PLANE = table(
    name=(2, TEXT),
    lines=(3, [SPAN]),
    event_names=(4, [table(key=(1, INT), value=(2, table(name=(2, TEXT), stats=(5, [SPAN]))))]),
    stat_names=(5, [table(key=(1, INT), value=(2, table(name=(2, TEXT))))]),
    stats=(6, [SPAN]),
)
_LINE = table(number=(1, INT), name=(2, TEXT), start_ns=(3, INT))
_PLANES, _EVENTS = 1, 4


class PlaneLine(Struct, frozen=True):
    """A line of a plane: one stream of a GPU, or one thread of the host."""

    number: int
    name: str
    start_ns: int
    span: Span  # of the whole line, its events in it


class Plane(Struct, frozen=True):
    """A plane: one GPU, the host, or what holds for the recording."""

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
        return np.where((kinds == UINT) | (kinds == SINT), self.values[stat], MISSING)

    def doubles(self, stat: str) -> Array:
        """Return the float64 of a stat, NaN where an event lacks it."""
        kinds, values = self.kinds[stat], self.values[stat]
        whole = (kinds == UINT) | (kinds == SINT)
        return np.where(kinds == DOUBLE, values.view(np.float64), np.where(whole, values, np.nan))


def open_space(data: memoryview) -> XSpace:
    """Return the planes of a file.

    Raises InputError, with the offset, where the bytes are no such file. One that ends within a plane is `truncated`.

    >>> open_space(memoryview(bytes([10, 4, 18, 2, 97, 98]))).planes[0].name
    'ab'
    """
    planes, top = list[Plane](), fields(data, (0, len(data)))
    while True:
        try:
            number, _, span, offset = next(top)
        except (StopIteration, CutOffError) as ends:
            return XSpace(data, tuple(planes), truncated=isinstance(ends, CutOffError))
        if number == _PLANES:
            if not isinstance(span, tuple):
                raise damaged("a plane is no message", offset)
            planes.append(_plane(data, span))


def _plane(data: memoryview, span: Span) -> Plane:
    name, lines, events, stat_names, stats = read(data, span, _PLANE)
    names = {key: stat_name for key, (stat_name,) in stat_names}
    return Plane(
        name=name,
        lines=tuple(_line(data, line) for line in lines),
        event_names={key: event_name for key, (event_name, _) in events},
        event_stats={key: tuple(own) for key, (_, own) in events if own},
        stat_names=names,
        stats=_stats(data, stats, names),
    )


def _line(data: memoryview, span: Span) -> PlaneLine:
    """Return what stands in front of a line's events; they are not looked at."""
    events = next((at for number, _, _, at in fields(data, span) if number == _EVENTS), span[1])
    return PlaneLine(*(*read(data, (span[0], events), _LINE), span))


def _stats(data: memoryview, spans: Sequence[Span], names: dict[int, str]) -> dict[str, Value]:
    found = {}
    for span in spans:
        number, kind, value = event_cells.stat(data, span)
        found[names.get(number, str(number))] = _plain(data, kind, value, names)
    return found


def _plain(data: memoryview, kind: int, value: int, names: dict[int, str]) -> Value:
    if kind == DOUBLE:
        return float(struct.unpack("<d", struct.pack("<q", value))[0])
    if kind in (STR, RAW):
        length, begin = varint(data, value, len(data))
        span = begin, begin + length
        return text_of(data, span) if kind == STR else span
    return names.get(value, "") if kind == REF else value


def text_ids(space: XSpace, plane: Plane, events: LineEvents, stat: str, number: Callable[[str], int]) -> Array:
    """Return a stat's texts as `number` gives ids to them, −1 where an event has none (int32)."""
    kinds, values = events.kinds[stat], events.values[stat]
    found = np.full(len(kinds), -1, np.int32)
    for kind in (REF, STR):
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
    own = {
        event: {number: found for number, *found in (event_cells.stat(space.data, each) for each in spans)}
        for event, spans in plane.event_stats.items()
    }
    for cells, kinds in event_cells.cells(space.data, line.span, numbers, skipped):
        values = dict(zip(wanted, cells[3:], strict=True))
        of_kind = dict(zip(wanted, kinds, strict=True))
        for event, stats in own.items():
            for name, number in zip(wanted, numbers, strict=True):
                if number in stats:
                    rows = (cells[0] == event) & (of_kind[name] == 0)
                    of_kind[name][rows], values[name][rows] = stats[number]
        yield LineEvents(cells[0], cells[1], cells[2], values, of_kind)
