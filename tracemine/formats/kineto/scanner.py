"""From bytes to columns: blocks of events, framed in place, read plainly, else decoded, else repaired.

Compiled code reads the blocks that are plain (`compiled`), where it is there. Any other block is decoded into one
Struct an event (`decoder`); one that is not valid JSON is read event by event with repairs (`repair`).

One document is read, and of several members `traceEvents` the first, so that no event is held until the file's end.
That there are more, and how many bytes follow the document, is said.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracemine.collector import paused
from tracemine.columns import Array
from tracemine.errors import InputError, Location
from tracemine.formats.format import Progress
from tracemine.formats.json_text import JsonMembers, members
from tracemine.formats.kineto import decoder
from tracemine.formats.kineto.columns import Rows, Strings, append, as_arrays, fill_from_threads, new_columns
from tracemine.formats.kineto.decoder import NO_ROW, Batch, EventDecoder
from tracemine.formats.kineto.repair import CUT_OFF, MOST_UNREADABLE, UNREADABLE, EventReading, read_events
from tracemine.formats.kineto.scan import MISSING, RawTrace
from tracemine.formats.kineto.structs import KNOWN_SPELLINGS, TABLES, EventTable, row_of
from tracemine.formats.kineto.values import InexactTimes, integer_of
from tracemine.formats.kineto.window import MAX_EVENT_BYTES, Window
from tracemine.formats.source import ByteSource
from tracemine.units import count_text

BLOCK_BYTES = 1 << 18  # events of a block and what they decode to stay in the cache; 4 MB blocks are 30 % slower


def scan(
    source: ByteSource,
    *,
    progress: Progress | None = None,
    block_bytes: int = BLOCK_BYTES,
    by_compiled_code: bool = decoder.AVAILABLE,
) -> RawTrace:
    """Read a Kineto trace into columns.

    Raises InputError if there is no complete event in a file that is cut off, if the JSON holds no events and is no
    Kineto trace, or if an event is longer or more deeply nested than any trace's.
    """
    try:
        with paused():  # 10⁵ live objects a block
            return _Scan(source, progress, block_bytes, by_compiled_code).run()
    except RecursionError:
        raise InputError(
            "is nested more deeply than any trace",
            where=Location(source.path),
            hint="no profiler writes that; see what wrote the file",
        ) from None


_TRACE_WANTED = "pass what torch.profiler's export_chrome_trace wrote"


class _Scan:
    """One pass over one source."""

    def __init__(self, source: ByteSource, progress: Progress | None, block_bytes: int, by_compiled_code: bool) -> None:
        self.source = source
        self.progress = progress
        self.window = Window(source, block_bytes)
        self.strings = Strings()
        self.columns = {name: new_columns(table) for name, table in TABLES.items()}
        self.metadata: dict[tuple[str, Any, Any], dict[str, Any]] = {}
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self.header = JsonMembers()
        self.complete = False  # a document without events came to its own end
        self.other_lists = 0  # members `traceEvents` behind the first
        self.behind = 0  # bytes of content that follow the end of the trace
        self.decoder = EventDecoder(KNOWN_SPELLINGS)
        self.plain: decoder.PlainBlocks | None = None
        if by_compiled_code:
            self.plain = decoder.PlainBlocks(self.strings, self.decoder.spellings, block_bytes)

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
            found = JsonMembers()
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
        return InputError(f"is JSON, but not a trace: {why}", where=Location(self.source.path), hint=_TRACE_WANTED)

    def _nothing_read(self) -> InputError:
        """Return what is wrong with a file that yields no row and does not end as a trace does."""
        where, dropped = Location(self.source.path), self.counts["dropped"]
        if dropped[UNREADABLE] and not dropped[CUT_OFF] and not self.source.truncated:
            return InputError("holds no event that can be read", where=where, hint=_TRACE_WANTED)
        hint = "record the trace again, and let the profiler finish writing"
        return InputError("is cut off before its first complete event", where=where, hint=hint)

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
            done = self._plainly(text) or self._attempt(lambda: self.decoder.block(text)) is not None
        if not done:
            return self._strictly(stop, final=False)
        window.start = stop + 1
        return False

    def _strictly(self, stop: int, *, final: bool) -> bool:
        """Take in the events up to `stop` one by one; whether the array ended there."""
        window = self.window
        text = bytes(window.buffer[window.start : stop])
        readings: list[EventReading[Any]] = []

        def read() -> Batch:
            batch = Batch()
            reading = read_events(text, lambda piece: self.decoder.event(piece, batch), final=final)
            batch.events = [event for event in reading.events if event is not NO_ROW]
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

    def _plainly(self, text: memoryview) -> bool:
        """Take a block in by compiled code; False if there is none or the block is not plain."""
        if self.plain is None or not self.plain.read(text):
            return False
        if self.plain.full:
            self._take_held()
        return True

    def _take_held(self) -> None:
        """Take in what compiled code has read and holds: rows keep the file's order."""
        if self.plain is not None:
            self._take(*self.plain.take())

    def _attempt(self, decode: Callable[[], Batch | None]) -> Batch | None:
        """Decode a block and take it in; once more with exact times if its times turn out to need that."""
        self._take_held()
        batch = decode()
        if batch is None:
            return None
        try:
            rows, events = self.decoder.rows(batch, self.strings)
        except InexactTimes:
            self.decoder.be_exact()
            return self._attempt(decode)
        self.metadata |= batch.metadata
        for name, counter in batch.counts.items():
            self.counts[name].update(counter)
        self._take(rows, events)
        return batch

    def _take(self, rows_by_table: dict[str, Rows], events: Counter[str]) -> None:
        """Append a block's rows to the columns, and count its events."""
        self.counts["events"].update(events)
        self.counts["skipped"].update({name: n for name, n in events.items() if row_of(name) is None})
        spellings = list(self.decoder.spellings)
        codes = np.array([(row_of(spelling) or ("", 0))[1] for spelling in spellings])
        if "gpu" in rows_by_table:
            fill_from_threads(rows_by_table["gpu"])
        for name, rows in rows_by_table.items():
            named = self._of_name(rows, TABLES[name].only, spellings)
            kept = self._durations(self._started(named), TABLES[name])
            self.counts["lost"][name] += len(named["start_ns"]) - len(kept["start_ns"])
            append(self.columns[name], kept | {"category": codes[kept["spelling"]]})

    def _of_name(self, rows: Rows, name: str | None, spellings: list[str]) -> Rows:
        """Return the rows of this name, where a table is of one alone; others are skipped."""
        if name is None:
            return rows
        kept = rows["name"] == self.strings[name]
        self.counts["skipped"].update(spellings[number] for number in rows["spelling"][~kept].tolist())
        return rows if kept.all() else {column: values[kept] for column, values in rows.items()}

    def _started(self, rows: Rows) -> Rows:
        """Return the rows that have a start time; others are dropped."""
        there = rows["start_ns"] != MISSING
        if there.all():
            return rows
        self.counts["dropped"]["no start time"] += len(there) - int(there.sum())
        return {column: values[there] for column, values in rows.items()}

    def _durations(self, rows: Rows, table: EventTable) -> Rows:
        """Return the rows with no duration below 0."""
        dur_ns = rows["dur_ns"]
        if "dur_ns" not in table.columns or not (dur_ns < 0).any():
            return rows
        unknown = int((dur_ns == MISSING).sum())
        self.counts["repaired"] += Counter(
            {"missing duration set to 0": unknown, "negative duration set to 0": int((dur_ns < 0).sum()) - unknown}
        )
        return rows | {"dur_ns": np.maximum(dur_ns, 0)}

    def _result(self, truncated: bool) -> RawTrace:
        self._take_held()
        rows = sum(len(columns["start_ns"]) for columns in self.columns.values())
        if truncated and not rows:
            raise self._nothing_read()
        counts = self.counts
        for kind, reason, count in (
            ("repaired", "duplicate key in the header: the last one holds", self.header.duplicates),
            ("dropped", "header entry that is not valid JSON", len(self.header.unreadable)),
        ):
            if count:
                counts[kind][reason] += count
        tables = {name: as_arrays(columns) for name, columns in self.columns.items()}
        starts = [table["start_ns"] for table in tables.values()]
        resolution_ns = _resolution_ns(starts)
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
            time_resolution_ns=resolution_ns,
            warnings=(
                *_reading_warnings(tables, counts, truncated, self.source.truncated),
                *_left_out(self.other_lists, self.behind),
            ),
        )


def _resolution_ns(starts: Sequence[Array]) -> int:
    """Return the resolution of the clock: whole microseconds where all times are such."""
    return 1 if not any(map(len, starts)) or any((start % 1000).any() for start in starts) else 1000


def _no_activity(counts: dict[str, Counter[str]]) -> str:
    """Say that a trace holds no GPU activity, and what it may hold instead."""
    if counts["events"]["cuda_profiler_range"]:
        return "The trace holds CUPTI range metrics instead of GPU activities."
    if counts["skipped"] == counts["events"] != {}:
        return "The trace holds no event that torch.profiler writes: another tool may have made it."
    if not (lost := counts["lost"]["gpu"]):
        return "The trace holds no GPU activity."
    return f"The trace holds no GPU activity that can be read: {count_text(lost, 'record')} without a start time."


def _reading_warnings(
    tables: dict[str, Any], counts: dict[str, Counter[str]], truncated: bool, short: bool
) -> list[str]:
    said = []
    if truncated:
        said.append(
            "The file is cut off: the events before the cut were read, what came after is not known."
            if not short
            else "The gzip file is cut off or damaged: what could be inflated was read, what came after is not known."
        )
    if not len(tables["gpu"]["start_ns"]):
        said.append(_no_activity(counts))
    return said


def _left_out(lists: int, behind: int) -> list[str]:
    """Say what else the file holds: further lists of events, and bytes behind the end."""
    said = []
    if lists:
        said.append(
            f"The file holds {count_text(lists + 1, 'list')} of traceEvents: the first was read, others were left out."
        )
    if behind:
        said.append(f"Behind the trace's end the file goes on: {count_text(behind, 'byte')} of content were left out.")
    return said
