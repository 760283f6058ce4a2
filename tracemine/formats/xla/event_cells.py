"""The events of a line as cells of int64: by compiled code where the installation has it, or else here."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from tracemine.columns import Array
from tracemine.formats.xla import wire
from tracemine.formats.xla.wire import BYTES, FIXED64, VARINT, Span, damaged, fields, signed, varint

# Kinds of value: the numbers of XStat's fields.
DOUBLE, UINT, SINT, STR, RAW, REF = 2, 3, 4, 5, 6, 7

ROWS = 1 << 14  # that are handed over at once
_OWN = 3  # name, offset, duration: fields 1 to 3 of XEvent
_EVENT = wire.table(name=(1, wire.INT), offset=(2, wire.INT), duration=(3, wire.INT), stats=(4, [wire.SPAN]))
_EVENTS, _NAME = 4, 1
_WIRES = {1: VARINT, DOUBLE: FIXED64, UINT: VARINT, SINT: VARINT, STR: BYTES, RAW: BYTES, REF: VARINT}
_MOST_IDS = 1 << 20  # of names and of stats: files that have more are read here


def cells(
    data: memoryview, line: Span, wanted: Sequence[int], skipped: Collection[int]
) -> Iterator[tuple[Array, Array]]:
    """Yield rows of a line's events: name, offset and duration in ps, and the stats whose ids are `wanted`; and these
    stats' kinds. Of a text or bytes the cell says where its length stands.

    `skipped` are names' ids, whose events are left out. Raises InputError where the line is damaged.
    """
    at, end = line
    place = {number: row for row, number in enumerate(wanted) if number >= 0}
    without = dict.fromkeys(skipped, 0)
    by_id = [_by_id(place), _by_id(without)] if wire.COMPILED else [None]
    while at < end:
        room = min(ROWS, (end - at) // 2 + 1)
        filled = np.zeros((_OWN + len(wanted), room), np.int64)
        kinds = np.zeros((len(wanted), room), np.int8)
        after, count = -1, 0
        if all(each is not None for each in by_id):
            after, count = wire.COMPILED.fill(data, at, end, *by_id, filled, kinds)
        if after < 0:  # not read there
            filled[:], kinds[:] = 0, 0
            after, count = fill(data, at, end, place, without, filled, kinds)
        at = after
        if count:
            yield filled[:, :count], kinds[:, :count]


def _by_id(of: dict[int, int]) -> Array | None:
    """Return the values by id, −1 where there is none; None where ids are too large for that."""
    if min(of, default=0) < 0 or max(of, default=0) > _MOST_IDS:
        return None
    found = np.full(max(of, default=0) + 1, -1, np.int8)
    found[[*of]] = [*of.values()]
    return found


def fill(
    data: memoryview, at: int, end: int, place: dict[int, int], without: Collection[int], filled: Array, kinds: Array
) -> tuple[int, int]:
    """Fill cells with events from `at` on, as many as there is room for; return where the next one is, and how many.

    Raises InputError where the line is damaged.
    """
    rows, room = 0, filled.shape[1]
    for number, of_wire, span, offset in fields(data, (at, end)):
        if number != _EVENTS:
            continue
        if rows == room:
            return offset, rows
        if of_wire != BYTES:
            raise damaged("an event is no message", offset)
        if without and _front_name(data, span) in without:  # it is stepped over by that alone
            continue
        *own, values = wire.read(data, span, _EVENT)
        if own[0] in without:
            continue
        filled[:_OWN, rows] = own
        for spot in values:
            stat_number, kind, value = stat(data, spot)
            row = place.get(stat_number)
            if row is not None:
                filled[_OWN + row, rows], kinds[row, rows] = value, kind
        rows += 1
    return end, rows


def _front_name(data: memoryview, span: Span) -> int | None:
    """Return the name that an event begins with, None where it begins otherwise."""
    begin, end = span
    tag, at = varint(data, begin, end) if begin < end else (0, begin)
    return signed(varint(data, at, end)[0]) if tag == _NAME << 3 | VARINT else None


def stat(data: memoryview, span: Span) -> tuple[int, int, int]:
    """Return the id, kind and value of one XStat, the value as a cell holds it.

    Raises InputError where it is damaged.

    >>> stat(memoryview(bytes([8, 7, 24, 5])), (0, 4))
    (7, 3, 5)
    """
    number = kind = cell = 0
    for field, of_wire, value, offset in fields(data, span):
        if _WIRES.get(field, of_wire) != of_wire:
            raise damaged("a value has another type than its field", offset)
        if field == _NAME:
            number = signed(value)
        elif field in (STR, RAW):
            kind, cell = field, varint(data, offset, span[1])[1]
        elif field in _WIRES:
            kind, cell = field, signed(value)
    return number, kind, cell
