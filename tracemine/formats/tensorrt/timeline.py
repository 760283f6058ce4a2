"""The timeline of an engine: a profile of layers and the layers, one passed and the other next to it."""

from __future__ import annotations

from pathlib import Path

from tracemine.errors import InputError, Location
from tracemine.formats.format import Progress
from tracemine.formats.source import FileSource
from tracemine.formats.tensorrt.assemble import assemble
from tracemine.formats.tensorrt.files import Export, export_of, exports_beside
from tracemine.formats.tensorrt.layers import DETAILED, read_layers
from tracemine.formats.tensorrt.times import read_profile, read_runs
from tracemine.timeline import Timeline

_EXPORT_LAYERS = f"put the layers next to it, or pass --layers FILE: trtexec … --exportLayerInfo=FILE {DETAILED}"
_EXPORT_PROFILE = "pass the profile, and these by --layers: trtexec … --exportProfile=profile.json"
# What a file is without what it needs, and the way out.
_ALONE = {
    Export.LAYERS: ("is TensorRT's layers, which have no times", _EXPORT_PROFILE),
    Export.PROFILE: ("is a profile of TensorRT layers, which does not say how they are joined", _EXPORT_LAYERS),
    Export.TIMES: ("is a profile of TensorRT layers, which does not say how they are joined", _EXPORT_LAYERS),
    Export.SUMMARY: ("is a summary of TensorRT runs, which names no layer", _EXPORT_LAYERS),
}


def read_recording(source: FileSource, progress: Progress | None) -> Timeline:
    """Return the timeline of the engine that an export is of, with those that lie next to it.

    Raises InputError where the layers or the profile are missing or damaged, or do not belong together.
    """
    path = Path(source.path)
    given = export_of(source.head)
    beside = exports_beside(path, source.part)
    layers, profile = (_chosen(path, given, kind, beside) for kind in (Export.LAYERS, Export.PROFILE))
    if layers is None or profile is None:
        assert given is not None  # noqa: S101 - as it was recognised
        says, hint = _ALONE[given]
        raise InputError(says, where=Location(source.path), hint=hint)
    timeline = assemble(read_layers(layers), read_profile(profile), read_runs(beside, profile), profile)
    if progress is not None:
        progress(source.size, source.size)
    return timeline


def _chosen(path: Path, given: Export | None, kind: Export, beside: dict[Export, list[Path]]) -> Path | None:
    return path if given is kind else next(iter(beside.get(kind, ())), None)
