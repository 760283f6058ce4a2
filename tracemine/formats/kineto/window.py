"""The part of a source that is in memory, and where in it one event ends and the next begins."""

from __future__ import annotations

import re

from tracemine.errors import InputError, Location
from tracemine.formats.source import ByteSource

MAX_EVENT_BYTES = 32_000_000  # the longest event, and the longest header, that is read; real ones stay below 1 MB

# With the key that follows, so that a list of other objects is not taken for events.
_SEPARATOR = re.compile(rb'(\}\s*+(,)\s*+\{)\s*+"(?:ph|name|cat|ts|pid|args)"')


class Window:
    """The part of the source that is in memory: `buffer[start:fill]`, read but not yet taken in.

    The buffer is never resized, only replaced by a larger one: decoded values may still look into it.
    """

    def __init__(self, source: ByteSource, block_bytes: int) -> None:
        self.source = source
        self.block_bytes = block_bytes
        self.buffer = bytearray(2 * block_bytes + 1)
        # One byte in front of the first event is always there, to be framed with.
        self.start = self.fill = 1
        self.searched = 0  # no boundary before this one will do
        self.separator = b"\n  },\n  {"

    def more(self) -> bool:
        """Read another block behind what is there; False at the end.

        Raises InputError if what is there has grown longer than any event.
        """
        rest = self.fill - self.start
        if rest > MAX_EVENT_BYTES:
            raise InputError(
                f"has an event or header entry of more than {MAX_EVENT_BYTES // 10**6} MB",
                where=Location(self.source.path),
                hint="no trace has that; see what wrote the file",
            )
        wanted = max(self.block_bytes, rest)
        if rest + wanted + 1 > len(self.buffer):
            buffer = bytearray(2 * (rest + wanted) + 1)
            buffer[: rest + 1] = memoryview(self.buffer)[self.start - 1 : self.fill]
            self.buffer = buffer
        elif self.start > 1:
            view = memoryview(self.buffer)
            view[: rest + 1] = bytes(view[self.start - 1 : self.fill])
        self.searched -= self.start - 1
        self.start, self.fill = 1, rest + 1
        end = self.fill + wanted
        while self.fill < end:
            with memoryview(self.buffer) as view:
                count = self.source.readinto(view[self.fill : end])
            if not count:
                break
            self.fill += count
        return self.fill > rest + 1

    def skip_blanks(self) -> int:
        """Position of the first byte that is not blank.

        Raises InputError if there is none.
        """
        match = re.compile(rb"\s*+").match(self.buffer, self.start, self.fill)
        start = match.end() if match else self.start
        if start == self.fill:
            raise InputError("is empty", where=Location(self.source.path), hint="record the trace again")
        return start

    def event_boundary(self) -> int | None:
        """Position of the last comma between two events, as far as their layout tells; None if there is none yet.

        A raw newline cannot stand in a valid JSON string, nor a quote unescaped, so what looks like a boundary is
        one, except inside an object in `args` that is laid out like an event. There decoding fails, and the block is
        read strictly.
        """
        low = max(self.start, self.searched)
        found = self.buffer.rfind(self.separator, low, self.fill)
        if found >= 0:
            return self.buffer.index(b",", found)
        near_the_end = list(_SEPARATOR.finditer(self.buffer, max(low, self.fill - (1 << 16)), self.fill))
        if not near_the_end:
            return None
        last = near_the_end[-1]
        # A line of its own keeps its indentation: at another depth it separates something else.
        line = self.buffer.rfind(b"\n", 0, last.start()) + 1
        own_line = not self.buffer[line : last.start()].strip()
        self.separator = bytes(self.buffer[line - 1 : last.end(1)] if own_line and line else last[0])
        return last.start(2)

    def framed(self, stop: int) -> Framed:
        """Return the events up to the comma at `stop` as one JSON array, made in place."""
        return Framed(self.buffer, self.start - 1, stop)


class Framed:
    """Brackets put around a stretch of the buffer, taken away again at the end."""

    def __init__(self, buffer: bytearray, start: int, stop: int) -> None:
        self.buffer, self.start, self.stop = buffer, start, stop

    def __enter__(self) -> memoryview:
        self.saved = self.buffer[self.start]
        self.buffer[self.start] = 0x5B
        self.buffer[self.stop] = 0x5D
        return memoryview(self.buffer)[self.start : self.stop + 1]

    def __exit__(self, *_: object) -> None:
        self.buffer[self.start] = self.saved
        self.buffer[self.stop] = 0x2C
