"""What events decode into: a Struct a category, with the fields that its table wants and no others."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from tracemine.formats.kineto.events import TABLES, EventTable, row_of
from tracemine.formats.kineto.scan import MISSING
from tracemine.formats.kineto.values import NOT_THERE

MISSING_TIME = math.nan
_FIELD_TYPES: dict[str, tuple[Any, Any]] = {
    "integer": (int, MISSING),
    "number": (float, math.nan),
    "text": (str | None, None),
    "raw": (Raw, NOT_THERE),
}


class Loose(Struct, gc=False):
    """An event of which nothing is known: every field as JSON text."""

    ph: Raw = NOT_THERE
    cat: Raw = NOT_THERE
    name: Raw = NOT_THERE
    ts: Raw = NOT_THERE
    dur: Raw = NOT_THERE
    pid: Raw = NOT_THERE
    tid: Raw = NOT_THERE
    args: Raw = NOT_THERE


LOOSE_BLOCK = msgspec.json.Decoder(list[Loose])
LOOSE_EVENT = msgspec.json.Decoder(Loose)


def _arguments_struct(table: EventTable) -> type[Struct] | None:
    keys = [(a.kind, key) for a in table.arguments for key in (a.key, *a.aliases)]
    if not keys:
        return None
    fields = [(field_name(key), _FIELD_TYPES[kind][0], _FIELD_TYPES[kind][1]) for kind, key in keys]
    return msgspec.defstruct(
        f"Arguments_{table.name}", fields, rename={field_name(key): key for _, key in keys}, gc=False
    )


@cache
def field_name(key: str) -> str:
    """Return the attribute under which a Struct holds the argument `key`; two spellings of one key differ in it.

    >>> field_name("External id"), field_name("external id")
    ('External_id', 'external_id_')
    """
    return "_".join(re.findall(r"\w+", key)) + ("" if key[0].isupper() else "_")


ARGUMENTS = {name: _arguments_struct(table) for name, table in TABLES.items()}


def event_struct(spelling: str, exact: bool) -> type[Struct]:
    """Return the Struct that events of one category decode into; without fields where the category carries no row."""
    options: dict[str, Any] = {"tag": spelling, "tag_field": "cat", "gc": False}
    row = row_of(spelling)
    if row is None:
        return msgspec.defstruct("Event", [], **options)
    time: tuple[Any, Any] = (Raw, NOT_THERE) if exact else (int | float, MISSING_TIME)
    table = TABLES[row[0]]
    fields: list[Any] = [
        ("ph", Literal[table.phases]),  # any other phase is no row, and is read loosely
        ("name", str, ""),
        ("ts", *time),
        ("dur", *time),
        ("pid", int | str, MISSING),
        ("tid", int | str, MISSING),
    ]
    arguments = ARGUMENTS[table.name]
    if arguments is not None:
        none = arguments()
        fields.append(("args", arguments, msgspec.field(default_factory=lambda: none)))
    return msgspec.defstruct("Event", fields, **options)
