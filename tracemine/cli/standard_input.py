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

STDIN: Final = Path("standard input")  # this object alone: a file may have the name


@contextmanager
def from_standard_input(path: Path) -> Iterator[Path]:
    """Hold what standard input brings in a file, where `path` is STDIN; errors name standard input. Else `path` itself.

    Raises UsageError where standard input is a terminal, or brings nothing.
    """
    if path is not STDIN:
        yield path
        return
    if sys.stdin.isatty():
        hint = "tracemine scan - < trace.json, or another program's output: … | tracemine scan -"
        raise UsageError("is a terminal, not a trace", where=Location(str(STDIN)), hint=hint)
    with TemporaryDirectory(prefix="tracemine-") as folder:
        file = Path(folder) / "trace"
        with file.open("wb") as out:
            shutil.copyfileobj(sys.stdin.buffer, out)
        try:
            yield file
        except TracemineError as error:
            if error.where is not None and error.where.path == str(file):
                error.where = Location(str(STDIN), error.where.line, error.where.key)
            raise
