"""Events of ONNX Runtime's profiler, one a line of a JSON array; of a file that is cut off those before the cut."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct, field

from tracemine.errors import InputError, Location
from tracemine.formats.format import Progress
from tracemine.formats.small_tables import TimedEvent
from tracemine.formats.source import FileSource

_LARGEST_BYTES = 1 << 31
_Id = Annotated[int, Meta(ge=-1, le=1 << 62)]


class NodeArguments(Struct, frozen=True):
    """What is recorded of a node or a kernel."""

    op_name: str = ""
    provider: str = ""
    input_type_shape: Raw = Raw(b"[]")
    output_type_shape: Raw = Raw(b"[]")
    stream: int | str = 0


class Event(TimedEvent, kw_only=True):
    """An event, in microseconds since the profiler's start."""

    cat: str
    name: str
    pid: _Id = 0
    tid: _Id = 0
    args: NodeArguments = field(default_factory=NodeArguments)


class RecordedEvents(Struct, frozen=True):
    """The events of a file in their order, and what became of those that are none."""

    events: list[Event]
    dropped: dict[str, int]
    truncated: bool


_ALL = msgspec.json.Decoder(list[Event])
_ONE = msgspec.json.Decoder(Event)


def read_events(source: FileSource, progress: Progress | None) -> RecordedEvents:
    """Return the events of a profile. Raises InputError where there is none."""
    text = bytes(source.whole(progress, _LARGEST_BYTES, "ONNX Runtime's profiler")).decode("utf-8", "replace").encode()
    damaged, truncated = 0, source.truncated
    try:
        events = _ALL.decode(text)
    except (msgspec.DecodeError, RecursionError):
        events, damaged = _by_lines(text)
        truncated = truncated or not text.rstrip().endswith(b"]")
    kept = [event for event in events if min(event.start_ns, event.dur_ns) >= 0]
    if not any(event.cat == "Node" for event in kept):
        raise InputError(
            "holds no node of ONNX Runtime" + (", and is cut off" if truncated else ""),
            where=Location(source.path),
            hint="call session.run, then session.end_profiling, before the process ends",
        )
    kept.sort(key=lambda event: event.ts)
    dropped = {"line that is no event": damaged, "event of no time that can be": len(events) - len(kept)}
    return RecordedEvents(kept, dropped, truncated)


def _by_lines(text: bytes) -> tuple[list[Event], int]:
    """Return the events of lines that are whole, and how many are not."""
    events, damaged = list[Event](), 0
    for line in text.strip().removeprefix(b"[").removesuffix(b"]").splitlines():
        if written := line.strip().rstrip(b","):
            try:
                events.append(_ONE.decode(written))
            except (msgspec.DecodeError, RecursionError):
                damaged += 1
    return events, damaged
