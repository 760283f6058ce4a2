"""Events of ONNX Runtime's profiler, one a line of a JSON array; of a file that is cut off those before the cut."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import msgspec
from msgspec import Struct, field

from tracemine.errors import InputError, Location
from tracemine.formats.format import Progress
from tracemine.formats.source import FileSource

MOST_EVENTS = 1_000_000  # that the profiler keeps: what comes after is not recorded
_LARGEST_BYTES = 1 << 31
_LATEST_US = 1 << 52
_BAD_LINE = "line that is no event"


_Id = Annotated[int, msgspec.Meta(ge=-1, le=1 << 62)]


class NodeArguments(Struct, frozen=True):
    """What is recorded of a node or a kernel."""

    op_name: str = ""
    provider: str = ""
    input_type_shape: Any = None
    output_type_shape: Any = None
    stream: int | str = 0


class Event(Struct, frozen=True):
    """An event, in microseconds since the profiler's start."""

    cat: str
    name: str
    ts: int | float
    dur: int | float
    pid: _Id = 0
    tid: _Id = 0
    args: NodeArguments = field(default_factory=NodeArguments)

    @property
    def start_ns(self) -> int:
        """When it began."""
        return round(self.ts * 1_000)

    @property
    def dur_ns(self) -> int:
        """How long it lasted."""
        return round(self.dur * 1_000)


class RecordedEvents(Struct, frozen=True):
    """The events of a file, and what became of those that are none."""

    events: list[Event]
    dropped: Counter[str]
    truncated: bool


_ALL = msgspec.json.Decoder(list[Event])
_ONE = msgspec.json.Decoder(Event)


def read_events(source: FileSource, progress: Progress | None) -> RecordedEvents:
    """Return the events of a profile. Raises InputError where there is none."""
    content = source.whole(progress, _LARGEST_BYTES, "ONNX Runtime's profiler")
    text = bytes(content).decode("utf-8", "replace").encode()
    try:
        events, dropped, truncated = _ALL.decode(text), Counter[str](), False
    except (msgspec.DecodeError, RecursionError):
        events, dropped, truncated = _by_lines(text)
    kept = [event for event in events if 0 <= event.ts < _LATEST_US and 0 <= event.dur < _LATEST_US]
    if len(kept) < len(events):
        dropped["event of no time that can be"] += len(events) - len(kept)
    if not any(event.cat == "Node" for event in kept):
        raise InputError(
            "holds no node of ONNX Runtime" + (", and is cut off" if truncated else ""),
            where=Location(source.path),
            hint="call session.run, then session.end_profiling, before the process ends",
        )
    kept.sort(key=lambda event: event.ts)
    return RecordedEvents(kept, dropped, truncated or source.truncated)


def _by_lines(text: bytes) -> tuple[list[Event], Counter[str], bool]:
    events, dropped = list[Event](), Counter[str]()
    lines = [line.strip().rstrip(b",") for line in text.strip().removeprefix(b"[").splitlines()]
    closed = bool(lines) and lines[-1].endswith(b"]")
    for line in lines:
        if line in (b"", b"]"):
            continue
        try:
            events.append(_ONE.decode(line.removesuffix(b"]") if line.endswith(b"}]") else line))
        except (msgspec.DecodeError, RecursionError):
            dropped[_BAD_LINE] += 1
    return events, dropped, not closed
