"""Blocks of events to rows by compiled code (`_event_columns.c`), where the installation has it.

It reads what is plain and nothing else, in a fraction of the time. A block that it does not read is read by `decoder`,
as all are where it is not there. Both give the same rows.
"""

from __future__ import annotations

import math
import os
import struct
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

import msgspec
import numpy as np

from tracemine.formats.kineto.columns import Rows, Strings, thread_number
from tracemine.formats.kineto.events import TABLES, EventArgument, EventTable, row_of
from tracemine.formats.kineto.scan import ABSENT, MISSING

_INTERFACE = 1  # of `_event_columns.c`; a source tree may hold a build of before
try:  # by name: what reads imports from source knows no module without one
    _built: Any = import_module("tracemine.formats.kineto._event_columns")
except ImportError:  # installed without a compiler, or run from a source tree
    _built = None
Decoder: Any = getattr(_built, "Decoder", None) if getattr(_built, "INTERFACE", None) == _INTERFACE else None
AVAILABLE = Decoder is not None

KeySpec: TypeAlias = tuple[bytes, int, int]  # key, number of its kind, what its cell holds where it is absent
TableSpec: TypeAlias = tuple[bytes, bool, tuple[KeySpec, ...], Any]  # phases, whether rows are named, keys, cells

# In the order of the enumerations in `_event_columns.c`.
_KINDS = ("integer", "number", "text", "raw", "name", "category", "thread")
_OWN = ("spelling", "name", "start_ns", "dur_ns", "pid", "tid")
_MOST_SPELLINGS = 1024
_BLOCKS = 8  # whose rows are held, and handed over at once: what that costs is no longer seen
_LEAST_BYTES = 80  # of an event, in the mean over a block; a block that holds more of them is decoded

_NAME, _TEXT, _NUMBER = (msgspec.json.Decoder(kind) for kind in (str, str | None, float))


class PlainBlocks:
    """Reads plain blocks of about `block_bytes`, and holds their rows until they are taken. Texts are ids in `strings`.

    `spellings` numbers the categories that are known. The caller may add to it between two blocks.
    """

    def __init__(self, strings: Strings, spellings: dict[str, int], block_bytes: int) -> None:
        self._spellings = spellings
        self._strings = strings
        self._counts = np.zeros(_MOST_SPELLINGS, np.int64)
        rows = _BLOCKS * (block_bytes // _LEAST_BYTES + 1)
        self._cells = {
            table.name: np.empty((len(_OWN) + len(_keys(table)), rows), np.int64) for table in TABLES.values()
        }
        specs = tuple(_spec(table, self._cells[table.name]) for table in TABLES.values())
        self._decoder = Decoder(
            specs, self._counts, _numbers(strings, spellings), int.from_bytes(os.urandom(8), "little")
        )
        self._held = 0  # blocks

    def read(self, block: memoryview) -> bool:
        """Read a JSON array of events; False, and nothing of it is held, if it is not plain."""
        try:
            plain = bool(self._decoder.decode(block))
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
            return False
        self._held += plain
        return plain

    @property
    def full(self) -> bool:
        """Whether there may be no room for another block."""
        return self._held == _BLOCKS

    def take(self) -> tuple[dict[str, Rows], Counter[str]]:
        """Return the rows of the blocks that are held by table, and their events by category.

        The rows look into memory that the next block is read into.
        """
        self._held = 0
        counts = zip(TABLES.values(), self._decoder.take(), strict=True)
        rows = {table.name: self._rows(table, count) for table, count in counts if count}
        events = {name: int(self._counts[number]) for name, number in self._spellings.items() if self._counts[number]}
        self._counts[:] = 0
        return rows, Counter(events)

    def _rows(self, table: EventTable, count: int) -> Rows:
        cells = self._cells[table.name][:, :count]
        rows = dict(zip(_OWN, cells, strict=False))
        if "name" in table.columns:
            rows["name"] = np.where(rows["name"] == MISSING, self._strings[""], rows["name"])
        at = len(_OWN)
        for argument in table.arguments:
            spelt = len(argument.aliases) + 1
            rows[argument.column] = _first_there(argument, cells[at : at + spelt])
            at += spelt
        return rows


def _first_there(argument: EventArgument, cells: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the argument under its key, or under an alias where that is absent."""
    values: np.ndarray[Any, Any] = cells[0]
    for others in cells[1:]:
        values = np.where(values == _absent(argument), others, values)
    return values.view(np.float64) if argument.kind == "number" else values


def _keys(table: EventTable) -> list[tuple[str, EventArgument]]:
    return [(key, argument) for argument in table.arguments for key in (argument.key, *argument.aliases)]


def _spec(table: EventTable, cells: Any) -> TableSpec:
    keys = tuple((key.encode(), _KINDS.index(argument.kind), _absent(argument)) for key, argument in _keys(table))
    return "".join(table.phases).encode(), "name" in table.columns or table.only is not None, keys, cells


def _absent(argument: EventArgument) -> int:
    return {"integer": MISSING, "number": _bits(math.nan)}.get(argument.kind, ABSENT)


def _bits(number: float) -> int:
    """Return the int64 that has a float64's bits."""
    return int(struct.unpack("=q", struct.pack("=d", number))[0])


def _numbers(strings: Strings, spellings: dict[str, int]) -> Callable[[int, bytes], int]:
    """Return what replaces a text in the cells, by its kind; raises as `PlainBlocks.read` catches."""
    tables = list(TABLES)

    def category(text: bytes) -> int:
        spelling = _NAME.decode(text)
        row = row_of(spelling)
        return spellings[spelling] * (len(tables) + 1) + (tables.index(row[0]) if row else len(tables))

    readers: dict[str, Callable[[bytes], int]] = {
        "number": lambda text: _bits(_NUMBER.decode(text)),
        "text": lambda text: strings[_TEXT.decode(text)],
        "raw": strings.__getitem__,
        "name": lambda text: strings[_NAME.decode(text)],
        "category": category,
        "thread": lambda text: thread_number(_NAME.decode(text)),
    }
    by_number = [readers.get(kind) for kind in _KINDS]
    return lambda kind, text: by_number[kind](text)  # type: ignore[misc]
