"""Protobuf's wire format, read by tables of fields: only what a table names is decoded, all else is stepped over.

By compiled code (`_event_cells.c`) where the installation has it. What that does not read is read here, and so is what
is damaged: both give the same. https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, TypeAlias

from msgspec import Struct

from tracemine.errors import InputError

_INTERFACE = 5  # of `_event_cells.c`; a source tree may hold a build of before


def _built() -> Any:
    try:  # by name: what reads imports from source knows no module without one
        built = import_module("tracemine.formats.xla._event_cells")
    except ImportError:  # installed without a compiler, or run from a source tree
        return None
    return built if getattr(built, "INTERFACE", None) == _INTERFACE else None


COMPILED: Any = _built()
Span = tuple[int, int]  # where a value lies in the file: first byte, and the one behind its last
INT, TEXT, SPAN = "signed number", "text", "bytes or message, not decoded"  # kinds of fields
_EMPTY: dict[str, Any] = {INT: 0, TEXT: "", SPAN: None}
_MESSAGE, _MANY = len(_EMPTY), len(_EMPTY) + 1  # of a table, and of what repeats: kinds as compiled code numbers them
_NUMBERS, _NO_PLACE = 64, 255  # of fields
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
_LONGEST = 63  # bits that the groups before a varint's last hold


class Field(Struct, frozen=True):
    """A field of a message that is wanted. `many`: it may occur any number of times."""

    place: int
    name: str
    kind: Kind
    many: bool


class Table(Struct, frozen=True):
    """The fields of a message that are wanted."""

    fields: dict[int, Field]  # by number
    nothing: tuple[Any, ...]  # the values of no message
    compiled: tuple[Any, ...]  # as `_event_cells.c` has it: of each number its place, of each place its kind


Kind: TypeAlias = str | Table


class CutOffError(InputError):
    """Bytes end within what they should hold."""


def table(**given: tuple[int, Kind | list[Kind]]) -> Table:
    """Return the table of a message's fields, each with its number and kind; in a list: it may occur repeatedly.

    >>> table(id=(1, INT), names=(2, [TEXT])).nothing
    (0, ())
    """
    found, places, kinds, nothing = dict[int, Field](), bytearray([_NO_PLACE] * _NUMBERS), bytearray(), list[Any]()
    for place, (name, (number, kind)) in enumerate(given.items()):
        one, many = (kind[0], True) if isinstance(kind, list) else (kind, False)
        found[number] = Field(place, name, one, many)
        places[number] = place
        kinds.append((_MESSAGE if isinstance(one, Table) else [*_EMPTY].index(one)) + many * _MANY)
        nothing.append(() if many else one.nothing if isinstance(one, Table) else _EMPTY[one])
    inner = (field.kind.compiled if isinstance(field.kind, Table) else None for field in found.values())
    return Table(found, tuple(nothing), (bytes(places + kinds), tuple(nothing), tuple(inner)))


def read(data: memoryview, span: Span, wanted: Table) -> tuple[Any, ...]:
    """Return the fields of a message in the table's order: what is not in it is 0, "", None (bytes), or empty. None is
    to be changed.

    Raises InputError, with the offset, where the bytes are no such message.

    >>> read(memoryview(bytes([8, 150, 1, 18, 1, 97])), (0, 6), table(id=(1, INT), name=(2, TEXT)))
    (150, 'a')
    """
    found = None if COMPILED is None else COMPILED.message(data, *span, wanted.compiled)
    return _read(data, span, wanted) if found is None else found


def _read(data: memoryview, span: Span, wanted: Table) -> tuple[Any, ...]:
    values = [*wanted.nothing]
    for number, wire, value, offset in fields(data, span):
        field = wanted.fields.get(number)
        if field is None:
            continue
        packed = field.many and field.kind == INT and wire == BYTES
        if wire != (VARINT if field.kind == INT else BYTES) and not packed:
            says = field.kind if isinstance(field.kind, str) else "message"
            raise damaged(f"{field.name} is no {says}", offset)
        found = _packed(data, value) if packed else [_value(data, field.kind, value)]
        if not field.many:
            values[field.place] = found[0]
        elif found:
            values[field.place] = values[field.place] or []
            values[field.place] += found
    return tuple(values)


def _value(data: memoryview, kind: Kind, value: Any) -> Any:
    if isinstance(kind, Table):
        return _read(data, value, kind)
    return signed(value) if kind == INT else text_of(data, value) if kind == TEXT else value


def _packed(data: memoryview, span: Span) -> list[int]:
    at, end = span
    values = []
    while at < end:
        number, at = varint(data, at, end)
        values.append(signed(number))
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
        if wire == VARINT:
            value, at = varint(data, at, end)
        elif wire == BYTES:
            length, at = varint(data, at, end)
            value = (at, at + length)
            at += length
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
            value, at = int.from_bytes(data[at : at + size], "little"), at + size
        else:
            raise damaged(f"there is no wire type {wire}", begin)
        if not number:
            raise damaged("a field has number 0", begin)
        if at > end:
            raise damaged("a field reaches beyond its message", begin, CutOffError)
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
    raise damaged("a number does not end", begin, CutOffError if at == end else InputError)


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


def damaged(says: str, offset: int, error: type[InputError] = InputError) -> InputError:
    """Return the error of bytes that are not what they should be."""
    return error(f"is damaged at byte {offset}: {says}", hint="copy the file again, or record once more")
