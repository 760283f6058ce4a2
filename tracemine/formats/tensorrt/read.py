"""How an export of trtexec begins. What reads one is imported when it is read."""

from __future__ import annotations

from tracemine.formats.format import Format, Progress
from tracemine.formats.source import FileSource
from tracemine.formats.tensorrt.files import export_of
from tracemine.timeline import Timeline


def recognises(head: bytes) -> bool:
    """Return whether a file that begins so is an export of trtexec."""
    return export_of(head) is not None


def read(source: FileSource, progress: Progress | None) -> Timeline:
    """Return the timeline of the engine that an export is of, with those that lie next to it.

    Raises InputError where the layers or the profile are missing or damaged, or do not belong together.
    """
    from tracemine.formats.tensorrt.timeline import read_recording

    return read_recording(source, progress)


FORMAT = Format("tensorrt", recognises, read, has_parts=True)
