"""From a profiler's export to a timeline. What a file is, is decided by its content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracemine.errors import InputError, Location

if TYPE_CHECKING:  # NumPy and Arrow are loaded when a trace is opened, not when the command line starts
    from tracemine.formats.kineto.scan import Progress
    from tracemine.formats.source import FileSource
    from tracemine.timeline import Timeline

__all__ = ["FORMATS", "Format", "format_of", "open_trace"]


@dataclass(frozen=True, slots=True)
class Format:
    """An input that can be read: how a file of it begins, and what makes a timeline of it."""

    name: str
    recognises: Callable[[bytes], bool]  # is told the file's first 64 KB, inflated
    read: Callable[[FileSource, Progress | None], Timeline]


def _looks_like_kineto(head: bytes) -> bool:
    from tracemine.formats.sniff import is_trace_json

    return is_trace_json(head)


def _read_kineto(source: FileSource, progress: Progress | None) -> Timeline:
    from tracemine.formats.kineto.assemble import assemble
    from tracemine.formats.kineto.scanner import scan

    return assemble(scan(source, progress=progress), Path(source.path).name)


# The first that recognises a file reads it, so what is told by less stands later.
FORMATS: Sequence[Format] = (Format("kineto", _looks_like_kineto, _read_kineto),)


def format_of(source: FileSource, formats: Sequence[Format] = FORMATS) -> Format:
    """The format that `source` is in; it is not consumed.

    Raises InputError, with what the file is and the way out, if none of `formats` reads it.
    """
    from tracemine.formats.sniff import refusal

    found = next((form for form in formats if form.recognises(source.head)), None)
    if found is None:
        raise refusal(source)
    return found


def open_trace(path: Path | str, progress: Progress | None = None, formats: Sequence[Format] = FORMATS) -> Timeline:
    """Read a profiler's export, plain or gzipped, or a timeline directory that was written before.

    `progress` is told after each block how many of the file's bytes are read, and how many there are.

    Raises InputError if the path is no readable trace, TimelineError if a timeline directory is damaged.

    >>> open_trace("no/such/trace.json")
    Traceback (most recent call last):
    tracemine.errors.InputError: no/such/trace.json: there is no such file
    """
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
        return format_of(source, formats).read(source, progress)
