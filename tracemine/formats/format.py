"""What a format is: how a file of it begins, and what makes a timeline of it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Protocol

from msgspec import Struct

from tracemine.formats.source import FileSource
from tracemine.timeline import Timeline


class Progress(Protocol):
    """Called after each block with how many of the file's bytes are read."""

    def __call__(self, done_bytes: int, total_bytes: int) -> None: ...


class Format(Struct, frozen=True):
    """An input that can be read: how a file of it begins, and what makes a timeline of it."""

    name: str
    recognises: Callable[[bytes], bool]  # takes the file's first 64 KB, inflated
    read: Callable[[FileSource, Progress | None], Timeline]
    has_parts: bool = False  # files of its own say how a recording's parts are joined, and no execution trace does


def reader(module: str) -> Callable[[FileSource, Progress | None], Timeline]:
    """Return what reads a format, `read_recording` of a module: who reads another format needs none of it."""

    def read(source: FileSource, progress: Progress | None) -> Timeline:
        timeline: Timeline = import_module(module).read_recording(source, progress)
        return timeline

    return read
