"""A report (`.nsys-rep`) exported by the nsys on PATH, into a folder that is gone afterwards."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tracemine.errors import InputError, Location
from tracemine.formats.format import Progress
from tracemine.formats.nsys.database import read_database
from tracemine.formats.source import FileSource
from tracemine.programs import program, run
from tracemine.timeline import Timeline

_SECONDS = 1800  # the largest reports take minutes


def read_report(path: Path, progress: Progress | None) -> Timeline:
    """Return the timeline of a `.nsys-rep`, by way of the nsys on PATH.

    Raises InputError where there is no nsys, or it cannot export the report.
    """
    with exported(path) as database, FileSource(database) as source:
        timeline = read_database(source, progress)
    return replace(timeline, meta=msgspec.structs.replace(timeline.meta, source=path.name))


@contextmanager
def exported(path: Path) -> Iterator[Path]:
    """Yield the SQLite export of a report, for as long as the block lasts.

    Raises InputError where no nsys is on PATH, or it does not export the report.
    """
    where = Location(str(path))
    by_hand = f"nsys export --type sqlite {path.name}"
    nsys = program("nsys")
    if nsys is None:
        raise InputError(
            "is an Nsight Systems report, which only nsys can open, and no nsys is on PATH",
            where=where,
            hint=f"run: {by_hand}   and pass the .sqlite",
        )
    with tempfile.TemporaryDirectory(prefix="tracemine-nsys-") as folder:
        database = Path(folder) / "report.sqlite"
        command = [nsys, "export", "--type", "sqlite", "--output", str(database), str(path.absolute())]
        try:
            done = run(command, _SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            done = None
        if done is None or done.returncode or not database.is_file():
            raise InputError(  # what nsys itself says may quote the report
                "is an Nsight Systems report that nsys could not export",
                where=where,
                hint=f"see what it says: {by_hand}; a newer nsys reads reports of older ones, not the reverse",
            )
        yield database
