"""Protobuf's wire format, read by tables of fields: only what a table names is decoded, all else is stepped over.

https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import Enum
from typing import Any

from msgspec import Struct

from tracemine.errors import InputError
from tracemine.formats.xla.compiled import MESSAGE

Span = tuple[int, int]  # where a value lies in the file: first byte, and the one behind its last


class Kind(Enum):
    """How a field is written, and what becomes of it. Those in the plural may occur any number of times."""

    INT = "unsigned number"
    SIGNED = "signed number"
    INTS = "unsigned numbers"
    SIGNEDS = "signed numbers"
    DOUBLE = "64-bit number"
    FLOAT = "32-bit number"
    TEXT = "text"
    TEXTS = "texts"
    SPAN = "bytes or message, not decoded"
    SPANS = "bytes or messages, not decoded"


class Field(Struct, frozen=True):
    """A field of a message that is wanted."""

    name: str
    kind: Kind


class WantedFields(Struct, frozen=True):
    """The fields of a message that are wanted."""

    fields: dict[int, Field]  # by number
    names: tuple[str, ...]
    nothing: dict[str, Any]  # the fields of no message
    layout: bytes  # as `_event_cells.c` has it: of each number a place among the names, then of each place its kind


_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIRES = {
    Kind.INT: (_VARINT,),
    Kind.SIGNED: (_VARINT,),
    Kind.INTS: (_VARINT, _BYTES),
    Kind.SIGNEDS: (_VARINT, _BYTES),
    Kind.DOUBLE: (_FIXED64,),
    Kind.FLOAT: (_FIXED32,),
}
_MANY = {Kind.INTS, Kind.SIGNEDS, Kind.TEXTS, Kind.SPANS}
_EMPTY: dict[Kind, Any] = {Kind.DOUBLE: 0.0, Kind.FLOAT: 0.0, Kind.TEXT: "", Kind.SPAN: None}
_NUMBERS, _NO_PLACE = 64, 255  # of fields, in a table's layout
COMPILED: Any = MESSAGE
_LONGEST = 63  # bits that the groups before a varint's last hold


def table(**fields: tuple[int, Kind]) -> WantedFields:
    """Return the table of a message's fields, each with its number and kind.

    >>> table(id=(1, Kind.INT)).names
    ('id',)
    """
    place = dict(zip((number for number, _ in fields.values()), range(len(fields)), strict=True))
    kinds = [*Kind]
    layout = bytes(place.get(number, _NO_PLACE) for number in range(_NUMBERS))
    layout += bytes(kinds.index(kind) for _, kind in fields.values())
    nothing = {name: [] if kind in _MANY else _EMPTY.get(kind, 0) for name, (_, kind) in fields.items()}
    return WantedFields(
        {number: Field(name, kind) for name, (number, kind) in fields.items()}, tuple(fields), nothing, layout
    )


def read(data: memoryview, span: Span | None, wanted: WantedFields) -> dict[str, Any]:
    """Return the fields of a message by name: what is not in it, or all without a message, is 0, "", None (span) or an
    empty list. They are not to be changed.

    Raises InputError, with the offset, where the bytes are no such message.

    >>> read(memoryview(bytes([8, 150, 1, 18, 1, 97])), (0, 6), table(id=(1, Kind.INT), name=(2, Kind.TEXT)))
    {'id': 150, 'name': 'a'}
    """
    if span is None:
        return wanted.nothing
    found = None if COMPILED is None else COMPILED(data, *span, wanted.names, wanted.layout)
    return _read(data, span, wanted) if found is None else found


def _read(data: memoryview, span: Span, wanted: WantedFields) -> dict[str, Any]:
    values = {name: list(value) if isinstance(value, list) else value for name, value in wanted.nothing.items()}
    for number, wire, value, offset in fields(data, span):
        field = wanted.fields.get(number)
        if field is None:
            continue
        if wire not in _WIRES.get(field.kind, (_BYTES,)):
            raise damaged(f"{field.name} is no {field.kind.value}", offset)
        if field.kind in _MANY:
            values[field.name].extend(_members(data, field.kind, value))
        else:
            values[field.name] = _value(data, field.kind, value)
    return values


def fields(data: memoryview, span: Span) -> Iterator[tuple[int, int, Any, int]]:
    """Yield of each field of a message its number, wire type, value (a span of what has a length) and offset.

    Raises InputError, with the offset, where the bytes are no message.

    >>> list(fields(memoryview(bytes([8, 5])), (0, 2)))
    [(1, 0, 5, 0)]
    """
    at, end = span
    while at < end:
        begin = at
        tag, at = varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        value: Any
        if wire == _VARINT:
            value, at = varint(data, at, end)
        elif wire == _BYTES:
            length, at = varint(data, at, end)
            value = (at, at + length)
            at += length
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
            value, at = int.from_bytes(data[at : at + size], "little"), at + size
        else:
            raise damaged(f"there is no wire type {wire}", begin)
        if at > end or not number:
            raise damaged("a field reaches beyond its message" if number else "a field has number 0", begin)
        yield number, wire, value, begin


def varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """Return the unsigned number that begins at `at`, and where the next value begins.

    Raises InputError, with the offset, where none ends before `end`.

    >>> varint(memoryview(bytes([150, 1])), 0, 2)
    (150, 2)
    """
    values = shift = 0
    begin = at
    while at < end and shift <= _LONGEST:
        byte = data[at]
        at += 1
        values |= (byte & 0x7F) << shift
        if byte < 0x80:
            return values & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise damaged("a number does not end", begin)


def signed(value: int) -> int:
    """Return the int64 that is written as an unsigned number.

    >>> signed(2**64 - 1)
    -1
    """
    return value - 2**64 if value >= 2**63 else value


def text_of(data: memoryview, span: Span) -> str:
    """Return the text that lies there: bytes that are none are replaced.

    >>> text_of(memoryview(b"ab"), (0, 1))
    'a'
    """
    return str(data[span[0] : span[1]], "utf-8", "replace")


def damaged(says: str, offset: int) -> InputError:
    """Return the error of bytes that are not what they should be."""
    return InputError(f"is damaged at byte {offset}: {says}", hint="copy the file again, or record once more")


def _members(data: memoryview, kind: Kind, value: Any) -> list[Any]:
    if kind is Kind.TEXTS:
        return [text_of(data, value)]
    if kind is Kind.SPANS:
        return [value]
    numbers = [value] if isinstance(value, int) else _packed(data, value)
    return [signed(number) for number in numbers] if kind is Kind.SIGNEDS else numbers


def _packed(data: memoryview, span: Span) -> list[int]:
    at, end = span
    values = []
    while at < end:
        number, at = varint(data, at, end)
        values.append(number)
    return values


def _value(data: memoryview, kind: Kind, value: Any) -> Any:
    if kind is Kind.TEXT:
        return text_of(data, value)
    if kind is Kind.SIGNED:
        return signed(value)
    if kind is Kind.DOUBLE:
        return struct.unpack("<d", value.to_bytes(8, "little"))[0]
    if kind is Kind.FLOAT:
        return struct.unpack("<f", value.to_bytes(4, "little"))[0]
    return value
