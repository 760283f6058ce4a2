"""The JSON export that nsys wrote until 2025.5 (`--type json`, later `jsonlines`): one event a line, texts in one more.

It says less than the other exports: neither GPUs nor versions nor when the session began. Lines also hold names of
processes, folders and messages; only the fields named here are looked at.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tracemine.errors import InputError, Location
from tracemine.formats.format import Progress
from tracemine.formats.nsys import schema
from tracemine.formats.nsys.assemble import assemble
from tracemine.formats.nsys.database import NO_NUMBER
from tracemine.formats.nsys.tables import Numbers, nothing
from tracemine.formats.source import FileSource
from tracemine.timeline import Timeline
from tracemine.timeline.arrow import MISSING

_BLOCK_BYTES = 1 << 20
_LONGEST_LINE = 1 << 30  # all texts of a recording are one line
_NUMBER = re.compile(r"-?\d{1,19}")
_CALLS = (0, schema.DRIVER_CALL)  # eventClass of calls into the runtime and the driver
_TIMES = {"start": "startNs", "end": "endNs"}
# Table → its columns that have another name here.
_CALL_NAMES = _TIMES | {"nameId": "name"}
_NVTX_NAMES = {"start": "Timestamp", "end": "EndTimestamp", "eventType": "Type", "text": "Text"} | {
    name: name[0].upper() + name[1:] for name in ("globalTid", "endGlobalTid", "textId", "domainId")
}
_MEMORY_NAMES = _TIMES | {"bytes": "sizebytes"}
# The part of a CudaEvent that says what it is → its table.
_CUDA = {"kernel": schema.KERNEL, "memcpy": schema.MEMCPY, "memset": schema.MEMSET, "sync": schema.SYNC}
_SYNC_TYPES = {
    f"SYNCHRONIZATION_TYPE_{name}": code
    for code, name in enumerate(
        ("EVENT_SYNCHRONIZE", "STREAM_WAIT_EVENT", "STREAM_SYNCHRONIZE", "CONTEXT_SYNCHRONIZE"), start=1
    )
}
_OTHER_EVENT = "event of another kind, in JSON"
_NOT_IN_NS = "NVTX event whose time is not in nanoseconds"


class _Line(msgspec.Struct):
    """What is looked at in a line; everything else is passed over."""

    Type: Any = None
    TraceProcessEvent: dict[str, Any] | None = None
    CudaEvent: dict[str, Any] | None = None
    NvtxEvent: dict[str, Any] | None = None
    DiagnosticEvent: dict[str, Any] | None = None
    data: list[Any] | None = None
    type: Any = None
    id: Any = None
    value: Any = None


def read_json_lines(source: FileSource, progress: Progress | None) -> Timeline:
    """Return the timeline of such an export.

    Raises InputError where a line of it is no JSON.
    """
    with JsonLines(source, progress) as tables:
        return assemble(tables, Path(source.path).name)


class JsonLines:
    """`Tables` over such a file, which is read as a whole when it is made.

    Raises InputError where a line is no JSON.
    """

    def __init__(self, source: FileSource, progress: Callable[[int, int], None] | None = None) -> None:
        self.path = source.path
        self.repaired: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.warnings: list[str] = []
        self._numbers: dict[str, dict[str, list[int]]] = {}
        self._texts: dict[str, dict[str, list[str | None]]] = {}
        decode = msgspec.json.Decoder(_Line).decode
        for number, line in enumerate(_lines(source, progress), start=1):
            try:
                self._take(decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise InputError(
                    "is no JSON, or cut short", where=Location(self.path, number), hint="export again with nsys"
                ) from None
        if source.truncated:
            self.warnings.append("The gzip file is cut off or damaged: what could be inflated was read.")
        if not self._numbers:
            raise InputError(
                "holds JSON lines, but no event of Nsight Systems",
                where=Location(self.path),
                hint="pass what nsys export --type sqlite wrote",
            )

    @property
    def names(self) -> set[str]:
        """Names of the tables that are there."""
        return set(self._numbers)

    def columns(self, table: str) -> set[str]:
        """Return names of a table's columns; empty where it is not there."""
        return set(self._numbers.get(table, ())) | set(self._texts.get(table, ()))

    def numbers(self, table: str) -> Numbers:
        """Return the table's columns of `schema.NUMBERS`, all of one length."""
        found = self._numbers.get(table)
        if found is None:
            return nothing(schema.NUMBERS[table])
        return {name: np.array(found[name], np.int64) for name in schema.NUMBERS[table]}

    def texts(self, table: str) -> dict[str, list[str | None]]:
        """Return the table's columns of `schema.TEXTS`, in the same order of rows."""
        found = self._texts.get(table, {})
        return {name: found.get(name, []) for name in schema.TEXTS.get(table, ())}

    def _take(self, line: _Line) -> None:
        if line.TraceProcessEvent is not None:
            if line.TraceProcessEvent.get("eventClass") in _CALLS:
                self._add(schema.RUNTIME, line.TraceProcessEvent, _CALL_NAMES)
        elif line.CudaEvent is not None:
            self._take_cuda(line.CudaEvent)
        elif line.NvtxEvent is not None:
            if line.NvtxEvent.get("NsTime") is True:
                self._add(schema.NVTX, line.NvtxEvent, _NVTX_NAMES)
            else:
                self.dropped[_NOT_IN_NS] += 1
        elif line.DiagnosticEvent is not None:
            self._add(schema.DIAGNOSTICS, line.DiagnosticEvent, {"text": "Text"})
        elif line.data is not None and schema.STRINGS not in self._numbers:
            for number, value in enumerate(line.data if all(isinstance(v, str) for v in line.data) else ()):
                self._add(schema.STRINGS, {"id": number, "value": value}, {})
        elif line.type == "String":
            self._add(schema.STRINGS, {"id": line.id, "value": line.value}, {})

    def _take_cuda(self, event: dict[str, Any]) -> None:
        part = next((part for part in _CUDA if isinstance(event.get(part), dict)), None)
        if part is None:
            self.dropped[_OTHER_EVENT] += 1
        else:
            self._add(_CUDA[part], event | event[part], _MEMORY_NAMES)

    def _add(self, table: str, said: dict[str, Any], named: dict[str, str]) -> None:
        """Add one row of a table; numbers may be written as texts."""
        numbers = self._numbers.get(table)
        if numbers is None:
            numbers = self._numbers[table] = {name: [] for name in schema.NUMBERS[table]}
            self._texts[table] = {name: [] for name in schema.TEXTS.get(table, ())}
        for name, column in numbers.items():
            column.append(self._whole(said.get(named.get(name, name))))
        for name, texts in self._texts[table].items():
            text = said.get(named.get(name, name))
            texts.append(text if isinstance(text, str) else None)

    def _whole(self, value: Any) -> int:
        if type(value) is str:
            value = int(value) if _NUMBER.fullmatch(value) else _SYNC_TYPES.get(value, value)
        if type(value) is int and -1 << 63 < value < 1 << 63:
            return value
        self.repaired[NO_NUMBER] += value is not None
        return MISSING

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: no file stays open."""


def _lines(source: FileSource, progress: Callable[[int, int], None] | None) -> Iterator[bytes]:
    """Yield the lines of a file that hold something, one after the other."""
    block = bytearray(_BLOCK_BYTES)
    rest = bytearray()
    while count := source.readinto(memoryview(block)):
        rest += memoryview(block)[:count]
        if len(rest) > _LONGEST_LINE:
            raise InputError(f"has a line of more than {_LONGEST_LINE >> 30} GB", where=Location(source.path))
        if b"\n" in memoryview(block)[:count].tobytes():
            *whole, last = bytes(rest).split(b"\n")
            yield from (line for line in whole if line.strip())
            rest = bytearray(last)
        if progress is not None:
            progress(source.position, source.size)
    if rest.strip():
        yield bytes(rest)
