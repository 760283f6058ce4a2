"""How a database of rocprofv3 begins. What reads one is imported when it is read."""

from __future__ import annotations

from tracemine.formats.format import Format, Progress
from tracemine.formats.nsys.read import is_database
from tracemine.formats.source import FileSource
from tracemine.timeline import Timeline


def recognises(head: bytes) -> bool:
    """Return whether a file that begins so is an SQLite database with tables of rocpd."""
    return is_database(head) and b"rocpd_" in head


def read(source: FileSource, progress: Progress | None) -> Timeline:
    """Return the timeline of a database. Raises InputError where it is damaged or packed, or holds no recording."""
    from tracemine.formats.rocpd.timeline import read_recording

    return read_recording(source, progress)


FORMAT = Format("rocpd", recognises, read)
