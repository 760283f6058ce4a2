"""How every file is opened that is read: it is a regular file, opening it waits for nothing, and what is held of it has
a bound."""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from tracemine.errors import InputError, Location

_MOST_PARTS = 64
_LONGEST = 4_096

# A table that inflates without bound is rejected unread. Counted as 8 bytes a value, real timelines and exports
# come to 21 times their size at most; equal values in a row cost a file nothing. The first 64 MB are free, so that
# small tables of equal values are read.
_MOST_INFLATION = 200
_FREE_BYTES = 64_000_000
_PIECE_BYTES = 1 << 22


def opened(path: Path) -> io.FileIO:
    """Return a regular file, open for reading. A pipe, a socket, a device and a folder are refused, not waited for.

    Raises InputError.

    >>> opened(Path("no/such/file"))
    Traceback (most recent call last):
    tracemine.errors.InputError: no/such/file: there is no such file
    """
    where = Location(str(path))
    try:
        _check(path.stat(), where)  # before it is opened: that alone can set a device going
        file = _File(path, "r", opener=_without_waiting)
    except FileNotFoundError:
        raise InputError("there is no such file", where=where) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=where) from None
    except ValueError:
        raise InputError("is not a path", where=where) from None
    try:
        _check(os.fstat(file.fileno()), where)  # another may stand there by now
        _confined.check(file.fileno(), where)
    except BaseException:
        file.close()
        raise
    return file


@contextlib.contextmanager
def within(folders: Sequence[Path]) -> Iterator[None]:
    """Let files be opened meanwhile, by all threads, that lie below folders: a name may be another file's by the time
    that it is opened, and what was opened is looked at.

    folders: resolved. Where the system does not say what a descriptor is of, names are all there is to check.
    """
    before, _confined.folders = _confined.folders, (*_confined.folders, tuple(folders))
    try:
        yield
    finally:
        _confined.folders = before


class _Confined:
    """The folders that files may lie below; none: everywhere."""

    def __init__(self) -> None:
        self.folders: tuple[tuple[Path, ...], ...] = ()

    def check(self, descriptor: int, where: Location) -> None:
        """Raises InputError where an open file lies elsewhere."""
        if not self.folders:
            return
        try:
            place = Path(f"/proc/self/fd/{descriptor}").readlink()
        except OSError:
            return
        if not all(any(place.is_relative_to(folder) for folder in each) for each in self.folders):
            raise InputError("was replaced by a link to what may not be read", where=where)


_confined = _Confined()


def read_file(path: Path, most_bytes: int) -> bytes:
    """Return all of a regular file. Raises InputError, also where it holds more than `most_bytes`."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        found = b"" if size > most_bytes else _read(file, most_bytes + 1)
    if max(size, len(found)) > most_bytes:
        raise InputError(f"is larger than {most_bytes:,} bytes", where=Location(str(path)))
    return found


def read_head(path: Path, count: int) -> bytes:
    """Return the first `count` bytes of a regular file. Raises InputError."""
    with opened(path) as file:
        return _read(file, count)


def bounded(inflated: int, file: io.FileIO, path: Path) -> None:
    """Raises InputError where a file holds, inflated, more bytes than one of its size can say."""
    Inflation().add(inflated, os.fstat(file.fileno()).st_size, Location(str(path)))


class Inflation:
    """What files hold, inflated, and their sizes: of one file, or of all that one caller reads."""

    def __init__(self) -> None:
        self._inflated = self._size = 0
        self._lock = Lock()

    def add(self, inflated: int, size: int, where: Location) -> None:
        """Take a file into account. Raises InputError where they hold more than files of their size can say."""
        with self._lock:
            self._inflated, self._size = self._inflated + inflated, self._size + size
            is_too_much = self._inflated > _FREE_BYTES + _MOST_INFLATION * self._size
        if is_too_much:
            raise InputError(
                f"inflates to more than {_MOST_INFLATION} times its size, which no table of a trace does", where=where
            )


class _File(io.FileIO):
    """A file of which every error, as of a disk that fails, names it. Raises InputError."""

    def read(self, size: int | None = -1, /) -> bytes:
        with self._named():
            return super().read(size) or b""

    def readinto(self, buffer: Any, /) -> int:
        with self._named():
            return super().readinto(buffer) or 0

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = Location(os.fsdecode(self.name))
            raise InputError(f"cannot be read: {error.strerror}", where=where) from None


def _read(file: io.FileIO, count: int) -> bytes:
    found = bytearray()
    while len(found) < count and (piece := file.read(min(count - len(found), _PIECE_BYTES))):
        found += piece
    return bytes(found)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _check(status: os.stat_result, where: Location) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise InputError("is a folder, not a file", where=where)
    if not stat.S_ISREG(status.st_mode):
        raise InputError("is not a regular file", where=where, hint="write what it holds to a file first")


def path_in(root: Path, recorded: str) -> str | None:
    """Return the path from a repository's root of the file that a recording names: the longest end of it that is there.

    None where none is, or the name is no path that could be: nothing outside of the root is looked at.
    """
    parts = [part for part in re.split(r"[\\/]+", recorded) if part not in ("", ".")]
    if not parts or ".." in parts or len(recorded) > _LONGEST or "\0" in recorded:
        return None
    for start in range(max(len(parts) - _MOST_PARTS, 0), len(parts)):
        end = parts[start:]
        with suppress(OSError, ValueError):
            if not end[0].endswith(":") and root.joinpath(*end).is_file():
                return "/".join(end)
    return None
