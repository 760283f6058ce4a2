"""The timeline of a database of rocprofv3."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tracemine.errors import InputError, Location
from tracemine.files import opened
from tracemine.formats.format import Progress
from tracemine.formats.nsys.about import Recorder
from tracemine.formats.nsys.assemble import assemble
from tracemine.formats.rocpd.database import Database
from tracemine.formats.source import FileSource
from tracemine.formats.sqlite import connected, damage_told
from tracemine.timeline import Timeline

_AGAIN: Final = "record again with rocprofv3 --sys-trace --output-format rocpd"
ROCPROF: Final = Recorder(
    "rocpd",
    "rocprofv3",
    f"No GPU activity was recorded: {_AGAIN}.",
    "No operators were recorded, so no activity has an owner: those of a PyTorch program come with --marker-trace, "
    "under torch.autograd.profiler.emit_nvtx(record_shapes=True).",
    "Shapes were not recorded, so bytes and savings cannot be derived: use emit_nvtx(record_shapes=True).",
)


def read_recording(source: FileSource, progress: Progress | None) -> Timeline:
    """Return the timeline of a database. Raises InputError where it is damaged or packed, or holds no recording."""
    where = Location(source.path)
    if source.compressed:
        raise InputError("is a gzipped SQLite database", where=where, hint="gunzip it and pass the result")
    path = Path(source.path)
    with damage_told(source.path, _AGAIN), opened(path):
        connection = connected(path)
        try:
            tables = Database(connection, source.path)
        finally:
            connection.close()
    if not tables.suffixes:
        raise InputError("is a database of rocprofv3 (rocpd) of another layout than is known", where=where, hint=_AGAIN)
    if progress is not None:
        progress(source.size, source.size)
    return assemble(tables, path.name, ROCPROF)
