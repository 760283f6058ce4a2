"""`capture.json`: what a recording cost the step, as `tracemine.capture` measured it, next to the traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import replace

from tracemine.errors import InputError
from tracemine.files import read_head
from tracemine.patterns import deferred
from tracemine.timeline import Timeline

SIZE_LIMIT = 1 << 20  # bytes; a real one has less than a thousand
_StepTime = Annotated[int, msgspec.Meta(gt=0, lt=1 << 62)]


_VERSION = deferred(r"\d{1,3}\.\d{1,3}[\w.+-]{0,50}")


_MOST_SPANS = 10_000
_TIMES = ("alone_step_ns", "alone_step_p10_ns", "alone_step_p90_ns", "recorded_step_ns", "host_step_ns")


class _About(msgspec.Struct):
    torch: object = None
    alone_step_ns: _StepTime | None = None
    alone_step_p10_ns: _StepTime | None = None
    alone_step_p90_ns: _StepTime | None = None
    recorded_step_ns: _StepTime | None = None
    host_step_ns: _StepTime | None = None
    garbage_ns: Annotated[list[tuple[_StepTime, _StepTime, int]], msgspec.Meta(max_length=_MOST_SPANS)] | None = None


def with_step_times(timeline: Timeline, path: Path) -> Timeline:
    """Return the timeline with a step's time alone and recorded, and what else the file says of the recording.

    It says nothing that the traces need, so a file that cannot be read is one that was not measured.
    """
    try:
        about = msgspec.json.decode(read_head(path, SIZE_LIMIT), type=_About)
    except (InputError, msgspec.DecodeError, UnicodeDecodeError):
        return timeline
    facts = {name: getattr(about, name) for name in _TIMES}
    garbage = None if about.garbage_ns is None else tuple(about.garbage_ns)
    meta = msgspec.structs.replace(timeline.meta, **facts, garbage_ns=garbage)
    if isinstance(about.torch, str) and _VERSION.fullmatch(about.torch):
        meta = msgspec.structs.replace(meta, versions={**meta.versions, "torch": about.torch})
    return replace(timeline, meta=meta)
