"""From bytes to columns: blocks of events, framed in place, decoded straight into one Struct a category.

A block that decodes costs no Python code per event but list comprehensions. One that does not is read again, first
with every field optional and untyped (`Loose`), then event by event with repairs (`repair`).

One document is read, and of several members `traceEvents` the first, so that no event is held until the file's end.
That there are more, and how many bytes follow the document, is said.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from tracemine.collector import paused
from tracemine.errors import InputError, Location
from tracemine.formats.format import Progress
from tracemine.formats.json_text import Members, members
from tracemine.formats.kineto.columns import Strings, append_events, as_arrays, new_columns
from tracemine.formats.kineto.events import CATEGORIES, KNOWN_SPELLINGS, TABLES
from tracemine.formats.kineto.loose import category_of, loose_fields
from tracemine.formats.kineto.repair import MOST_UNREADABLE, UNREADABLE, Reading, read_events
from tracemine.formats.kineto.scan import MISSING, RawTrace
from tracemine.formats.kineto.scan_warnings import left_out, reading_warnings
from tracemine.formats.kineto.structs import LOOSE_BLOCK, LOOSE_EVENT, Loose, event_struct
from tracemine.formats.kineto.values import (
    InexactTimes,
    integer_of,
    numbers_to_ns,
    object_of,
    scalar_of,
    text_of,
    texts_to_ns,
)
from tracemine.formats.kineto.window import MAX_EVENT_BYTES, Window
from tracemine.formats.source import ByteSource

BLOCK_BYTES = 1 << 18  # events of a block and what they decode to stay in the cache; 4 MB blocks are 30 % slower
_MAX_SPELLINGS = 256  # categories that get a Struct of their own; more than any profiler has

_TS, _DUR = map(operator.attrgetter, ("ts", "dur"))
_NO_ROW = object()


def scan(source: ByteSource, *, progress: Progress | None = None, block_bytes: int = BLOCK_BYTES) -> RawTrace:
    """Read a Kineto trace into columns.

    Raises InputError if there is no complete event in a file that is cut off, if the JSON holds no events and is no
    Kineto trace, or if an event is longer or more deeply nested than any trace's.
    """
    try:
        with paused():  # 10⁵ live objects a block
            return _Scan(source, progress, block_bytes).run()
    except RecursionError:
        raise InputError(
            "is nested more deeply than any trace",
            where=Location(source.path),
            hint="no profiler writes that; see what wrote the file",
        ) from None


class _Batch:
    """What one block came to; counted into the scan only when the whole block is."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.metadata: dict[tuple[str, Any, Any], dict[str, Any]] = {}
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)


class _Scan:
    """One pass over one source."""

    def __init__(self, source: ByteSource, progress: Progress | None, block_bytes: int) -> None:
        self.source = source
        self.progress = progress
        self.window = Window(source, block_bytes)
        self.strings = Strings()
        self.columns = {name: new_columns(table) for name, table in TABLES.items()}
        self.metadata: dict[tuple[str, Any, Any], dict[str, Any]] = {}
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self.header = Members()
        self.complete = False  # a document without events came to its own end
        self.other_lists = 0  # members `traceEvents` behind the first
        self.behind = 0  # bytes of content that follow the end of the trace
        self.exact = False
        self.types: dict[str, type[Struct]] = {}
        self.spelling_of: dict[type, str] = {}
        self.table_of: dict[type, str | None] = {}
        self.code_of: dict[type, int] = {}
        self._learn(KNOWN_SPELLINGS)

    def run(self) -> RawTrace:
        truncated = not self._read()
        return self._result(truncated or self.source.truncated)

    def _read(self) -> bool:
        """Read header, events, trailer; whether the document came to its own end."""
        window = self.window
        is_object = self._header()
        if is_object is None:
            return self.complete
        while True:
            stop = window.event_boundary()
            if stop is not None:
                ended = self._block(stop)
            elif window.more():
                continue
            else:
                ended = self._strictly(window.fill, final=True)
                if not ended and window.start == window.fill:
                    return False
            if self.progress is not None:
                self.progress(self.source.position, self.source.size)
            if ended:
                if is_object:
                    return self._trailer()
                self._pass_over()
                return True

    def _header(self) -> bool | None:
        """Stop just inside the array of events: True if it is a member of an object, False if it is the document.

        None: the document has no events at all; `complete` says whether it came to its own end. Of several members
        `traceEvents` the first is it: that there are more is known only once it has been read.
        """
        window = self.window
        window.more()
        start = window.skip_blanks()
        if window.buffer[start : start + 1] == b"[":
            window.start = start + 1
            return False
        while True:
            found = Members()
            last = None
            for last, value, end in members(window.buffer, start + 1, window.fill, upto="traceEvents"):
                if last == "traceEvents" and value < window.fill:
                    if window.buffer[value : value + 1] != b"[":
                        raise self._no_trace("traceEvents is no list")
                    self.header = found
                    window.start = value + 1
                    return True
                if last == "":
                    self.complete, window.start = True, value + 1
                elif last != "traceEvents":
                    found.add(last, bytes(window.buffer[value:end]) if end is not None else None)
            if self.complete:
                self._pass_over()
            elif window.more():
                continue
            self.header = found
            if "schemaVersion" in found.values:
                return None
            raise self._no_trace("it has no list of traceEvents")

    def _no_trace(self, why: str) -> InputError:
        return InputError(
            f"is JSON, but not a trace: {why}",
            where=Location(self.source.path),
            hint="pass what torch.profiler's export_chrome_trace wrote",
        )

    def _trailer(self) -> bool:
        """Read the members behind the events; whether the object's closing brace is there."""
        window = self.window
        while window.fill - window.start < MAX_EVENT_BYTES and window.more():
            pass
        for key, start, end in members(window.buffer, window.start, window.fill):
            if not key:
                window.start = start + 1
                self._pass_over()
                return True
            if key != "traceEvents":
                self.header.add(key, bytes(window.buffer[start:end]) if end is not None else None)
                continue
            self.other_lists += 1
            if end is None:  # what follows could be anything in it
                held = window.fill - window.start
                window.start = start
                self._pass_over()
                return held >= MAX_EVENT_BYTES
        return False

    def _pass_over(self) -> None:
        """Count what stands behind the end of the trace: it is read to its end, and left out."""
        window = self.window
        while window.start < window.fill or window.more():
            text = bytes(window.buffer[window.start : window.fill])
            self.behind += len(text if self.behind else text.lstrip())
            window.start = window.fill
            if self.progress is not None:
                self.progress(self.source.position, self.source.size)

    def _block(self, stop: int) -> bool:
        """Take in the events up to the boundary at `stop`, a comma; whether the array ended before it."""
        window = self.window
        with window.framed(stop) as text:
            done = self._attempt(lambda: self._decoded(text))
        if done is None:
            return self._strictly(stop, final=False)
        window.start = stop + 1
        return False

    def _strictly(self, stop: int, *, final: bool) -> bool:
        """Take in the events up to `stop` one by one; whether the array ended there."""
        window = self.window
        text = bytes(window.buffer[window.start : stop])
        readings: list[Reading[Any]] = []

        def read() -> _Batch:
            batch = _Batch()
            reading = read_events(text, lambda piece: self._decoded_event(piece, batch), final=final)
            batch.events = [event for event in reading.events if event is not _NO_ROW]
            batch.counts["dropped"].update(reading.dropped)
            batch.counts["repaired"].update(reading.repaired)
            readings.append(reading)
            return batch

        self._attempt(read)
        unreadable = self.counts["dropped"][UNREADABLE]
        if unreadable > MOST_UNREADABLE and 4 * unreadable > self.counts["events"].total():
            raise self._no_trace(f"{unreadable:,} of its events are not valid JSON, more than one in four")
        done = window.start + readings[-1].consumed
        window.start = done if final or done < stop else stop + 1  # the comma at `stop` belongs to no block
        window.searched = max(window.searched, stop + 1)
        return readings[-1].ended

    def _attempt(self, decode: Callable[[], _Batch | None]) -> _Batch | None:
        """Decode a block and add it; once more with exact times if its times turn out to need that."""
        batch = decode()
        if batch is None:
            return None
        try:
            self._add(batch)
        except InexactTimes:
            self.exact = True
            spellings, self.types = tuple(self.types), {}
            self._learn(spellings)
            return self._attempt(decode)
        return batch

    def _learn(self, spellings: Sequence[str]) -> None:
        """Give each of these categories a Struct, and make decoders that know them."""
        for spelling in spellings:
            self.types[spelling] = event_struct(spelling, self.exact)
            struct = self.types[spelling]
            self.spelling_of[struct] = spelling
            self.table_of[struct], self.code_of[struct] = CATEGORIES.get(spelling.lower(), (None, 0))
        union = functools.reduce(operator.or_, self.types.values())
        self.block_decoder = msgspec.json.Decoder(list[union])  # type: ignore[valid-type]
        self.event_decoder = msgspec.json.Decoder(union)

    def _decoded(self, text: memoryview) -> _Batch | None:
        """Return the events of a block, or None if its text is not valid JSON."""
        batch = _Batch()
        try:
            batch.events = self.block_decoder.decode(text)
        except msgspec.ValidationError:
            batch.events = []
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        else:
            return batch
        try:
            loose = LOOSE_BLOCK.decode(text)
            batch.events = [e for e in [self._typed(event, batch) for event in loose] if e is not _NO_ROW]
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return batch

    def _decoded_event(self, text: bytes, batch: _Batch) -> Any:
        """Return one event; _NO_ROW if it carries none."""
        try:
            return self.event_decoder.decode(text)
        except msgspec.ValidationError:
            return self._typed(LOOSE_EVENT.decode(text), batch)

    def _typed(self, event: Loose, batch: _Batch) -> Any:
        """The Struct of the event's category, its fields read as leniently as can be; _NO_ROW if it carries none."""
        phase = text_of(event.ph)
        spelling = text_of(event.cat)
        if phase == "M":
            key = text_of(event.name), scalar_of(event.pid), scalar_of(event.tid)
            batch.metadata[key] = object_of(event.args)
            batch.counts["events"]["metadata"] += 1
            return _NO_ROW
        if not spelling:
            spelling = category_of(event, phase)
        if spelling not in self.types and len(self.types) < _MAX_SPELLINGS:
            self._learn([spelling])
        table = CATEGORIES.get(spelling.lower())
        if table is None or phase not in TABLES[table[0]].phases or spelling not in self.types:
            batch.counts["events"][spelling] += 1
            batch.counts["skipped"][spelling] += 1
            return _NO_ROW
        return self.types[spelling](**loose_fields(event, phase, table[0], batch.counts["repaired"], exact=self.exact))

    def _add(self, batch: _Batch) -> None:
        """Append a block's events to the columns.

        Raises InexactTimes, with nothing appended, if float64 does not hold the times exactly.
        """
        counts = Counter(map(type, batch.events))
        rows: dict[str, list[Any]] = {name: [] for name in TABLES}
        # Types of one table share a list, so that its rows keep the file's order.
        lists = {struct: rows[name] for struct in counts if (name := self.table_of[struct])}
        for event in batch.events:
            if (into := lists.get(type(event))) is not None:
                into.append(event)
        for name, events in rows.items():
            if events and (only := TABLES[name].only) is not None:
                rows[name] = self._of_name(events, only)
        nanoseconds = texts_to_ns if self.exact else numbers_to_ns
        times = {
            name: (nanoseconds(list(map(_TS, events))), nanoseconds(list(map(_DUR, events))))
            for name, events in rows.items()
            if events
        }
        self.metadata |= batch.metadata
        for name, counter in batch.counts.items():
            self.counts[name].update(counter)
        for struct, count in counts.items():
            self.counts["events"][self.spelling_of[struct]] += count
            if struct not in lists:
                self.counts["skipped"][self.spelling_of[struct]] += count
        for name, (start_ns, dur_ns) in times.items():
            self._append(name, rows[name], start_ns, dur_ns)

    def _of_name(self, events: list[Any], name: str) -> list[Any]:
        """Return the events of this name; others carry no row."""
        kept = [event for event in events if event.name == name]
        for event in events if len(kept) < len(events) else ():
            self.counts["skipped"][self.spelling_of[type(event)]] += event.name != name
        return kept

    def _append(self, name: str, events: list[Any], start_ns: Any, dur_ns: Any) -> None:
        table, columns = TABLES[name], self.columns[name]
        there = start_ns != MISSING
        if not there.all():
            self.counts["dropped"]["no start time"] += len(events) - int(there.sum())
            events = [event for event, kept in zip(events, there.tolist(), strict=True) if kept]
            start_ns, dur_ns = start_ns[there], dur_ns[there]
        if "dur_ns" in table.columns and (dur_ns < 0).any():
            unknown = int((dur_ns == MISSING).sum())
            negative = int((dur_ns < 0).sum()) - unknown
            self.counts["repaired"] += Counter(
                {"missing duration set to 0": unknown, "negative duration set to 0": negative}
            )
            dur_ns = np.maximum(dur_ns, 0)
        codes = [self.code_of[type(event)] for event in events]
        append_events(table, columns, events, start_ns, dur_ns, codes, self.strings)

    def _result(self, truncated: bool) -> RawTrace:
        rows = sum(len(columns["start_ns"]) for columns in self.columns.values())
        if truncated and not rows:
            raise InputError(
                "is cut off before its first complete event",
                where=Location(self.source.path),
                hint="record the trace again, and let the profiler finish writing",
            )
        counts = self.counts
        if self.header.duplicates:
            counts["repaired"]["duplicate key in the header: the last one holds"] += self.header.duplicates
        if self.header.unreadable:
            counts["dropped"]["header entry that is not valid JSON"] += len(self.header.unreadable)
        tables = {name: as_arrays(columns) for name, columns in self.columns.items()}
        starts = [table["start_ns"] for table in tables.values()]
        resolution = 1 if not rows or any((start % 1000).any() for start in starts) else 1000
        base = integer_of(self.header.values.get("baseTimeNanoseconds"))
        if base:
            for start in starts:
                start += base
        return RawTrace(
            **tables,
            strings=self.strings.table(),
            header=self.header.values,
            metadata=[(name, pid, tid, args) for (name, pid, tid), args in self.metadata.items()],
            events=counts["events"],
            skipped=counts["skipped"],
            dropped=counts["dropped"],
            repaired=counts["repaired"],
            truncated=truncated,
            time_resolution_ns=resolution,
            warnings=(
                *reading_warnings(tables, counts, truncated, self.source.truncated),
                *left_out(self.other_lists, self.behind),
            ),
        )
