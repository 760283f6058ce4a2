"""A trace with further events, its own text as it is: read and passed on piece by piece, never held as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tracemine.errors import InputError, Location
from tracemine.formats.json_text import members
from tracemine.formats.kineto.window import Window
from tracemine.formats.source import ByteSource

_BLOCK_BYTES = 1 << 20


def with_events(source: ByteSource, events: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text of a trace with these events before its own. What is not a list of events stays as it is.

    Raises InputError where it has no list of events.
    """
    window = Window(source, _BLOCK_BYTES)
    begin = _first_event(window)
    yield bytes(window.buffer[window.start : begin])
    written = False
    for event in events:
        yield (b",\n" if written else b"\n") + event
        written = True
    window.start = begin
    while not window.buffer[window.start : window.fill].strip() and window.more():
        pass
    if written and window.buffer[window.skip_blanks() : window.fill][:1] != b"]":
        yield b","
    yield bytes(window.buffer[window.start : window.fill])
    block = memoryview(bytearray(_BLOCK_BYTES))
    while count := source.readinto(block):
        yield bytes(block[:count])


def _first_event(window: Window) -> int:
    """Return the position behind the bracket with which the list of events begins; all before it is in the window."""
    window.more()
    while True:
        start = window.skip_blanks()
        if window.buffer[start : start + 1] == b"[":
            return start + 1
        for name, value, _ in members(window.buffer, start + 1, window.fill, upto="traceEvents"):
            if name == "traceEvents" and value < window.fill and window.buffer[value : value + 1] == b"[":
                return value + 1
        if not window.more():
            raise InputError("has no list of traceEvents", where=Location(window.source.path))
