"""From a profiler's export to a timeline. What a file is, is decided by its content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tracemine.errors import InputError, Location

if TYPE_CHECKING:  # NumPy and Arrow are loaded when a trace is opened, not when the command line starts
    from tracemine.formats.kineto.scan import Progress
    from tracemine.formats.source import FileSource
    from tracemine.timeline import Timeline

__all__ = ["FORMATS", "open_trace"]


def _kineto(source: FileSource, progress: Progress | None) -> Timeline:
    from tracemine.formats.kineto.assemble import assemble
    from tracemine.formats.kineto.scanner import scan

    return assemble(scan(source, progress=progress), Path(source.path).name)


# A format's name, as `sniff` gives it → what reads it.
FORMATS: Mapping[str, Callable[[FileSource, Progress | None], Timeline]] = {
    "kineto": _kineto,
}


def open_trace(path: Path | str, progress: Progress | None = None) -> Timeline:
    """Read a profiler's export, plain or gzipped, or a timeline directory that was written before.

    `progress` is told after each block how many of the file's bytes are read, and how many there are.

    Raises InputError if the path is no readable trace, TimelineError if a timeline directory is damaged.

    >>> open_trace("no/such/trace.json")
    Traceback (most recent call last):
    tracemine.errors.InputError: no/such/trace.json: there is no such file
    """
    from tracemine.formats.sniff import sniff
    from tracemine.formats.source import FileSource
    from tracemine.timeline import Timeline

    path = Path(path)
    if path.is_dir():
        if not (path / "meta.json").is_file():
            raise InputError(
                "is a folder, and no timeline lies in it",
                where=Location(str(path)),
                hint="pass a trace file, or a directory that tracemine ingest wrote",
            )
        return Timeline.read(path)
    with FileSource(path) as source:
        return FORMATS[sniff(source)](source, progress)
