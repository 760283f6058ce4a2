"""The events of a line as cells of int64: by compiled code (`_event_cells.c`) where the installation has it.

What that does not read is read here, and so is what is damaged: both give the same cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tracemine.columns import Array
from tracemine.formats.xla.compiled import FILL
from tracemine.formats.xla.wire import Span, damaged, fields, signed, varint

# Kinds of value: the numbers of XStat's fields.
DOUBLE, UINT, INT, TEXT, BYTES, REF = 2, 3, 4, 5, 6, 7

COMPILED: Any = FILL

ROWS = 1 << 14  # that are handed over at once
_OWN = 3  # name, offset, duration: fields 1 to 3 of XEvent
_EVENTS, _STATS = 4, 4
_NAME = 1
_VARINT, _FIXED64, _BYTES = 0, 1, 2
_WIRES = {1: _VARINT, DOUBLE: _FIXED64, UINT: _VARINT, INT: _VARINT, TEXT: _BYTES, BYTES: _BYTES, REF: _VARINT}


def cells(data: memoryview, line: Span, wanted: Array, skipped: Array) -> Iterator[tuple[Array, Array]]:
    """Yield rows of a line's events: name, offset and duration in ps, and the stats whose ids are `wanted`; and these
    stats' kinds. Of a text or bytes the cell says where its length stands.

    `skipped` are names' ids in order, whose events are left out. Raises InputError where the line is damaged.
    """
    at, end = line
    while at < end:
        room = min(ROWS, (end - at) // 2 + 1)
        filled = np.zeros((_OWN + len(wanted), room), np.int64)
        kinds = np.zeros((len(wanted), room), np.int8)
        after, count = (COMPILED or fill)(data, at, end, wanted, skipped, filled, kinds)
        if after < 0:  # the compiled code filled what it does not read: from there on it is looked at here
            filled[:], kinds[:] = 0, 0
            after, count = fill(data, at, end, wanted, skipped, filled, kinds)
        at = after
        if count:
            yield filled[:, :count], kinds[:, :count]


def fill(
    data: memoryview, at: int, end: int, wanted: Array, skipped: Array, filled: Array, kinds: Array
) -> tuple[int, int]:
    """Fill cells with events from `at` on, as many as there is room for; return where the next one is, and how many.

    Raises InputError where the line is damaged.
    """
    rows, room = 0, filled.shape[1]
    place = {number: row for row, number in enumerate(wanted.tolist()) if number >= 0}
    without = set(skipped.tolist())
    for number, wire, span, offset in fields(data, (at, end)):
        if number != _EVENTS:
            continue
        if rows == room:
            return offset, rows
        if wire != _BYTES:
            raise damaged("an event is no message", offset)
        if without and _front_name(data, span) in without:  # it is stepped over by that alone
            continue
        own, values = _event(data, span)
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
    return signed(varint(data, at, end)[0]) if tag == _NAME << 3 | _VARINT else None


def _event(data: memoryview, span: Span) -> tuple[list[int], list[Span]]:
    own, values = [0] * _OWN, []
    for number, wire, value, offset in fields(data, span):
        if number <= _OWN:
            if wire != _VARINT:
                raise damaged("an event has a field of another type", offset)
            own[number - 1] = signed(value)
        elif number == _STATS:
            if wire != _BYTES:
                raise damaged("a value is no message", offset)
            values.append(value)
    return own, values


def stat(data: memoryview, span: Span) -> tuple[int, int, int]:
    """Return the id, kind and value of one XStat, the value as a cell holds it.

    Raises InputError where it is damaged.

    >>> stat(memoryview(bytes([8, 7, 24, 5])), (0, 4))
    (7, 3, 5)
    """
    number = kind = cell = 0
    for field, wire, value, offset in fields(data, span):
        if _WIRES.get(field, wire) != wire:
            raise damaged("a value has another type than its field", offset)
        if field == _NAME:
            number = signed(value)
        elif field in (TEXT, BYTES):
            kind, cell = field, varint(data, offset, span[1])[1]
        elif field in _WIRES:
            kind, cell = field, signed(value)
    return number, kind, cell


def stats(data: memoryview, spans: Sequence[Span]) -> dict[int, tuple[int, int]]:
    """Return kind and value of each of some XStats by its id."""
    filled = (stat(data, span) for span in spans)
    return {number: (kind, value) for number, kind, value in filled}


def span_at(data: memoryview, cell: int) -> Span:
    """Return where the text or bytes lie whose cell this is.

    >>> span_at(memoryview(bytes([0, 2, 97, 98])), 1)
    (2, 4)
    """
    length, begin = varint(data, cell, len(data))
    return begin, begin + length
