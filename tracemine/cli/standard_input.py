"""A trace that comes by standard input: kept in a file for as long as it is read, for formats read files."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tracemine.errors import Location, TracemineError, UsageError

_MOST_BYTES: Final = 1 << 36
_PIECE_BYTES: Final = 1 << 20
STDIN: Final = Path("standard input")  # this object alone: a file may have the name


@contextmanager
def from_standard_input(path: Path) -> Iterator[Path]:
    """Hold what standard input brings in a file, where `path` is STDIN; errors name standard input. Else `path` itself.

    Raises UsageError where standard input is a terminal, or brings more than half of what is free for temporary files.
    """
    if path is not STDIN:
        yield path
        return
    if sys.stdin.isatty():
        hint = "tracemine scan - < trace.json, or another program's output: … | tracemine scan -"
        raise UsageError("is a terminal, not a trace", where=Location(str(STDIN)), hint=hint)
    with TemporaryDirectory(prefix="tracemine-") as folder:
        file = Path(folder) / "trace"
        _copy(file, min(_MOST_BYTES, shutil.disk_usage(folder).free // 2))
        try:
            yield file
        except TracemineError as error:
            if error.where is not None and error.where.path == str(file):
                error.where = Location(str(STDIN), error.where.line, error.where.key)
            raise


def _copy(file: Path, most_bytes: int) -> None:
    """Write standard input to a file. Raises UsageError where it is more."""
    left = most_bytes
    with file.open("wb") as out:
        while piece := sys.stdin.buffer.read(min(_PIECE_BYTES, left + 1)):
            left -= len(piece)
            if left < 0:
                says = f"brings more than {most_bytes:,} bytes, which is all that may be kept here"
                raise UsageError(says, where=Location(str(STDIN)), hint="name a file, or set TMPDIR to a larger disk")
            out.write(piece)
