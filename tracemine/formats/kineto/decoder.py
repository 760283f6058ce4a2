"""Blocks of events to Structs, one kind a category: all that is JSON, as strictly as the block allows.

A block that decodes costs no Python code per event but list comprehensions. One that does not is read again, with
every field optional and untyped (`Loose`).
"""

from __future__ import annotations

import functools
import math
import operator
import os
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, TypeAlias

import msgspec
import numpy as np
from msgspec import Raw, Struct

from tracemine.formats.kineto.columns import Rows, Strings, rows_of, thread_number
from tracemine.formats.kineto.scan import ABSENT, MISSING
from tracemine.formats.kineto.structs import (
    ARGUMENTS,
    LEGACY_PROCESSES,
    LOOSE_BLOCK,
    LOOSE_EVENT,
    MISSING_TIME,
    TABLES,
    EventArgument,
    EventTable,
    Loose,
    event_struct,
    field_name,
    row_of,
)
from tracemine.formats.kineto.values import (
    READERS,
    exact_ns,
    members_of,
    numbers_to_ns,
    object_of,
    scalar_of,
    text_of,
    texts_to_ns,
)

_MAX_SPELLINGS = 256  # categories that get a Struct of their own; more than any profiler has
_TS, _DUR = map(operator.attrgetter, ("ts", "dur"))
NO_ROW = object()
_PHASES = {"i": "instant", "I": "instant", "C": "counter"}  # what an event without category is counted as

_INTERFACE = 1  # of `_event_columns.c`; a source tree may hold a build of before


class Batch:
    """What one block came to; counted into the scan only when the whole block is."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.metadata: dict[tuple[str, Any, Any], dict[str, Any]] = {}
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)


class EventDecoder:
    """Decodes blocks and single events. `spellings` numbers the categories that have been met, in order."""

    def __init__(self, spellings: Sequence[str]) -> None:
        self.exact = False  # times as text, where float64 does not hold them
        self.spellings: dict[str, int] = {}
        self._types: dict[str, type[Struct]] = {}
        self._spelling_of: dict[type, str] = {}
        self._table_of: dict[type, str | None] = {}
        self._learn(spellings)

    def be_exact(self) -> None:
        """Decode all that follows with times as text."""
        self.exact = True
        self._learn(tuple(self._types))

    def _learn(self, spellings: Sequence[str]) -> None:
        """Give each of these categories a Struct, and make decoders that know them."""
        for spelling in spellings:
            struct = event_struct(spelling, self.exact)
            self.spellings.setdefault(spelling, len(self.spellings))
            self._types[spelling] = struct
            self._spelling_of[struct] = spelling
            row = row_of(spelling)
            self._table_of[struct] = None if row is None else row[0]
        union = functools.reduce(operator.or_, self._types.values())
        self._of_block = msgspec.json.Decoder(list[union])  # type: ignore[valid-type]
        self._of_event = msgspec.json.Decoder(union)

    def block(self, text: memoryview) -> Batch | None:
        """Return the events of a block, or None if its text is not valid JSON."""
        batch = Batch()
        try:
            batch.events = self._of_block.decode(text)
        except msgspec.ValidationError:
            batch.events = []
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        else:
            return batch
        try:
            loose = LOOSE_BLOCK.decode(text)
            batch.events = [e for e in [self._typed(event, batch) for event in loose] if e is not NO_ROW]
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return batch

    def event(self, text: bytes, batch: Batch) -> Any:
        """Return one event; NO_ROW if it carries none."""
        try:
            return self._of_event.decode(text)
        except msgspec.ValidationError:
            return self._typed(LOOSE_EVENT.decode(text), batch)

    def _typed(self, event: Loose, batch: Batch) -> Any:
        """The Struct of the event's category, its fields read as leniently as can be; NO_ROW if it carries none."""
        phase = text_of(event.ph)
        spelling = text_of(event.cat)
        if phase == "M":
            key = text_of(event.name), scalar_of(event.pid), scalar_of(event.tid)
            batch.metadata[key] = object_of(event.args)
            batch.counts["events"]["metadata"] += 1
            return NO_ROW
        if not spelling:
            spelling = _category_of(event, phase)
        if spelling not in self._types and len(self._types) < _MAX_SPELLINGS:
            self._learn([spelling])
        row = row_of(spelling)
        if row is None or phase not in TABLES[row[0]].phases or spelling not in self._types:
            batch.counts["events"][spelling] += 1
            batch.counts["skipped"][spelling] += 1
            return NO_ROW
        return self._types[spelling](**_loose_fields(event, phase, row[0], batch.counts["repaired"], exact=self.exact))

    def rows(self, batch: Batch, strings: Strings) -> tuple[dict[str, Rows], Counter[str]]:
        """Return a batch's rows by table, and its events by category.

        Raises InexactTimes if float64 does not hold the times exactly.
        """
        counts = Counter(map(type, batch.events))
        events_of: dict[str, list[Any]] = {name: [] for name in TABLES}
        # Types of one table share a list, so that its rows keep the file's order.
        lists = {struct: events_of[name] for struct in counts if (name := self._table_of[struct])}
        for event in batch.events:
            if (into := lists.get(type(event))) is not None:
                into.append(event)
        nanoseconds = texts_to_ns if self.exact else numbers_to_ns
        times = {
            name: (nanoseconds(list(map(_TS, events))), nanoseconds(list(map(_DUR, events))))
            for name, events in events_of.items()
            if events
        }
        rows = {}
        for name, (start_ns, dur_ns) in times.items():
            spellings = [self.spellings[self._spelling_of[type(event)]] for event in events_of[name]]
            rows[name] = rows_of(TABLES[name], events_of[name], start_ns, dur_ns, spellings, strings)
        return rows, Counter({self._spelling_of[struct]: count for struct, count in counts.items()})


def _category_of(event: Loose, phase: str) -> str:
    """Return the category of an event that names none."""
    legacy = LEGACY_PROCESSES.get(text_of(event.pid), "") if phase == "X" else ""
    memory = text_of(event.name) == "[memory]"  # had no category until torch 1.9
    return legacy or ("cpu_instant_event" if memory else _PHASES.get(phase, f"phase {phase}"))


def _loose_fields(event: Loose, phase: str, table: str, repaired: Counter[str], *, exact: bool) -> dict[str, Any]:
    """Return the fields of the Struct of an event of a table; count in `repaired` what was repaired."""
    fields = {
        "ph": phase,
        "name": text_of(event.name),
        "ts": _time(event.ts, exact=exact),
        "dur": _time(event.dur, exact=exact),
        "pid": scalar_of(event.pid, MISSING),
        "tid": scalar_of(event.tid, MISSING),
    }
    struct = ARGUMENTS[table]
    if struct is not None:
        given = members_of(event.args)
        arguments = {
            field_name(key): READERS[argument.kind](given[key], repaired)
            for argument in TABLES[table].arguments
            for key in (argument.key, *argument.aliases)
            if key in given
        }
        fields["args"] = struct(**arguments)
    return fields


def _time(raw: Any, *, exact: bool) -> Any:
    """Return a time as the Struct holds it: its text where float64 is not exact, else microseconds."""
    if exact:
        return Raw(bytes(raw))
    ns = exact_ns(bytes(raw))
    return MISSING_TIME if ns == MISSING else ns / 1000


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
