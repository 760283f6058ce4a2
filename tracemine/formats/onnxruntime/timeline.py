"""The timeline of a profile of ONNX Runtime, with the optimised model that lies next to it."""

from __future__ import annotations

from pathlib import Path

from tracemine.errors import InputError, Location
from tracemine.formats.format import Progress
from tracemine.formats.onnxruntime.assemble import assemble
from tracemine.formats.onnxruntime.events import read_events
from tracemine.formats.onnxruntime.model import model_beside
from tracemine.formats.onnxruntime.runs import runs_of
from tracemine.formats.source import FileSource
from tracemine.timeline import Timeline


def read_recording(source: FileSource, progress: Progress | None) -> Timeline:
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
    model, extra = model_beside(path, source.part, {node.name for run in runs.runs for node in run.nodes})
    return assemble(recorded, runs, model, extra, path.name)
