"""Nsight Systems exports: SQLite databases, folders of Parquet or Arrow files, tables of `nsys stats`, and reports.

`database.Database` and `folder.Folder` give the same columns of either, and `assemble` makes a timeline of them. A
`.nsys-rep` is first exported by the user's own nsys.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tracemine.errors import InputError, Location

if TYPE_CHECKING:
    from tracemine.formats.source import FileSource
    from tracemine.timeline import Timeline

    Progress = Callable[[int, int], None]


def is_database(head: bytes) -> bool:
    """Whether a file that begins so is an SQLite database; whether of nsys, only its tables tell."""
    return head.startswith(b"SQLite format 3\0")


def read_database(source: FileSource, progress: Progress | None) -> Timeline:
    """The timeline of an SQLite export.

    Raises InputError where it is damaged, packed, or another database.
    """
    from tracemine.formats.nsys.assemble import assemble
    from tracemine.formats.nsys.database import Database

    if source.compressed:
        raise InputError(
            "is a gzipped SQLite database, which cannot be read in place",
            where=Location(source.path),
            hint="gunzip it and pass the result",
        )
    path = Path(source.path)
    with Database(path, progress) as tables:
        return assemble(tables, path.name)


def is_folder(path: Path) -> bool:
    """Whether a folder holds a parquetdir or arrowdir export."""
    from tracemine.formats.nsys.folder import files_in

    return bool(files_in(path))


def read_folder(path: Path) -> Timeline:
    """The timeline of a parquetdir or arrowdir export.

    Raises InputError where a file of it is damaged.
    """
    from tracemine.formats.nsys.assemble import assemble
    from tracemine.formats.nsys.folder import Folder

    with Folder(path) as tables:
        return assemble(tables, path.name)


def read_report(path: Path, progress: Progress | None) -> Timeline:
    """The timeline of a `.nsys-rep`, by way of the nsys on PATH.

    Raises InputError where there is no nsys, or it cannot export the report.
    """
    from tracemine.formats.nsys.report import exported
    from tracemine.formats.source import FileSource

    with exported(path) as database, FileSource(database) as source:
        timeline = read_database(source, progress)
    return _named(timeline, path.name)


def is_stats(head: bytes) -> bool:
    """Whether a file that begins so is a timeline that `nsys stats` wrote as CSV."""
    from tracemine.formats.nsys import stats

    return stats.is_stats(head)


def read_stats(source: FileSource, progress: Progress | None) -> Timeline:
    """The timeline of tables of `nsys stats`.

    Raises InputError where there is none in the file.
    """
    from tracemine.formats.nsys.assemble import assemble
    from tracemine.formats.nsys.stats import Stats

    if source.compressed:
        raise InputError(
            "is a gzipped table of nsys stats", where=Location(source.path), hint="gunzip it and pass the result"
        )
    path = Path(source.path)
    return assemble(Stats.of(path), path.name)


def is_json_lines(head: bytes) -> bool:
    """Whether a file that begins so is the JSON export of nsys until 2025.5."""
    from tracemine.formats.nsys import jsonlines

    return jsonlines.is_json_lines(head)


def read_json_lines(source: FileSource, progress: Progress | None) -> Timeline:
    """The timeline of such an export.

    Raises InputError where a line of it is no JSON.
    """
    from tracemine.formats.nsys.assemble import assemble
    from tracemine.formats.nsys.jsonlines import JsonLines

    with JsonLines(source, progress) as tables:
        return assemble(tables, Path(source.path).name)


def _named(timeline: Timeline, source_name: str) -> Timeline:
    from dataclasses import replace

    import msgspec

    return replace(timeline, meta=msgspec.structs.replace(timeline.meta, source=source_name))
