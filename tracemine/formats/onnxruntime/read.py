"""How a profile of ONNX Runtime begins. What reads one is imported when it is read."""

from __future__ import annotations

import re

from tracemine.formats.format import Format, Progress
from tracemine.formats.source import FileSource
from tracemine.timeline import Timeline

_BEGINS = re.compile(rb'\A\[\s*\{[^{}]*"cat"\s*:\s*"(?:Session|Node)"')


def recognises(head: bytes) -> bool:
    """Return whether a file that begins so is a profile of ONNX Runtime.

    >>> recognises(b'[\\n{"cat" : "Session","pid" :7,"name" :"model_run"'), recognises(b'[{"cat": "kernel"}]')
    (True, False)
    """
    return _BEGINS.match(head.lstrip()) is not None


def read(source: FileSource, progress: Progress | None) -> Timeline:
    """Return the timeline of a profile. Raises InputError where it holds no node."""
    from tracemine.formats.onnxruntime.timeline import read_recording

    return read_recording(source, progress)


FORMAT = Format("onnxruntime", recognises, read, has_parts=True)
