"""The format of ONNX Runtime's profiles, with the optimised model that lies next to one."""

from __future__ import annotations

import re
from pathlib import Path

from tracemine.errors import InputError, Location
from tracemine.formats.format import Format, Progress
from tracemine.formats.onnxruntime.assemble import assemble
from tracemine.formats.onnxruntime.events import read_events
from tracemine.formats.onnxruntime.model import model_beside
from tracemine.formats.onnxruntime.runs import runs_of
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
    recorded = read_events(source, progress)
    runs = runs_of(recorded.events)
    path = Path(source.path)
    if not runs.runs:
        raise InputError(
            "holds no run of the model with its nodes",
            where=Location(source.path),
            hint="run the session while it profiles",
        )
    model, extra = model_beside(path, {node.name for run in runs.runs for node in run.nodes})
    return assemble(recorded, runs, model, extra, path.name)


FORMAT = Format("onnxruntime", recognises, read)
