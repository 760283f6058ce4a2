"""What events decode into: a Struct a category, with the fields that its table wants and no others."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from tracemine.formats.kineto.scan import MISSING
from tracemine.formats.kineto.values import NOT_THERE
from tracemine.tables import table_beside

Kind = Literal["integer", "number", "text", "raw"]

MISSING_TIME = math.nan
_FIELD_TYPES: dict[str, tuple[Any, Any]] = {
    "integer": (int, MISSING),
    "number": (float, math.nan),
    "text": (str | None, None),
    "raw": (Raw, NOT_THERE),
}


class EventArgument(Struct, frozen=True):
    """One column read from `args`. A raw one keeps its JSON text, such as `[1, 2, 3]` or `"triton"` with quotes."""

    column: str
    key: str
    kind: Kind = "integer"
    aliases: tuple[str, ...] = ()  # other spellings, read where `key` is absent


class EventTable(Struct, frozen=True):
    """One table of RawTrace: the event's own fields first, then its arguments."""

    name: str
    columns: tuple[str, ...]  # of the event itself: category, name, start_ns, dur_ns, pid, tid
    arguments: tuple[EventArgument, ...] = ()
    phases: tuple[str, ...] = ("X",)  # as the event calls what it is: X has a duration, i and I are instants
    only: str | None = None  # events of another name carry no row


_KNOWN = table_beside(__file__, "events.toml")
TABLES = {table.name: table for table in msgspec.convert(_KNOWN["tables"], tuple[EventTable, ...])}
CATEGORIES = msgspec.convert(_KNOWN["categories"], dict[str, tuple[str, int]])


def row_of(spelling: str) -> tuple[str, int] | None:
    """Return the table of a category's events and the value of its `category` column; None: they carry no row.

    >>> row_of("Kernel"), row_of("ac2g")
    (('gpu', 0), None)
    """
    return CATEGORIES.get(spelling.lower())


# The exporter before Kineto wrote no category but named the process.
LEGACY_PROCESSES: dict[str, str] = {"CPU functions": "cpu_op", "CUDA functions": "kernel"}

# Spellings that every scan may meet; any other is learnt when it is met.
KNOWN_SPELLINGS: tuple[str, ...] = (
    *("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cuda_sync"),
    *("cpu_op", "user_annotation", "python_function"),
    *("ac2g", "fwdbwd", "cpu_instant_event", "gpu_user_annotation", "overhead", "Trace"),
)


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
