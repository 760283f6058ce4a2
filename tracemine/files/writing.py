"""Files and folders that are written whole or not at all, and nowhere but where they were asked for."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from tracemine.errors import Location, UsageError

_HINTS = (
    ((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room there, or name another place"),
    ((errno.EACCES, errno.EPERM, errno.EROFS), "name a place that may be written to"),
    ((errno.EBUSY, errno.EXDEV), "another disk may begin there: name a folder in it"),
)


def write_file(path: Path, content: str | bytes, *, named: bool = True, staged: Path | None = None) -> None:
    """Write as `write_pieces`, from memory."""
    pieces = [content.encode("utf-8", "replace") if isinstance(content, str) else content]
    write_pieces(path, pieces, named=named, staged=staged)


def write_pieces(path: Path, pieces: Iterable[bytes], *, named: bool = True, staged: Path | None = None) -> None:
    """Write `path` whole or not at all: what is written gets its name when all of it is on the disk.

    named: the user gave this name. Then a link keeps pointing to what is written, and a pipe or a terminal is written
    to; of any other name nothing but a plain file is replaced.

    staged: the folder of the same disk in which it lies until then, where others read that of `path` meanwhile.

    Raises UsageError where it cannot be written.
    """
    with writing(path):
        if named and path.exists() and not path.is_file():
            with path.open("wb") as file:
                file.writelines(pieces)
            return
        if not named:
            check_plain(path)
        target = resolved(path) if named else path
        staging = beside(target if staged is None else staged / target.name)
        try:
            with staging.open("xb") as file:  # made here: a link that lies there is not followed
                file.writelines(pieces)
            staging.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                staging.unlink()
            raise


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises UsageError, which names `path` and says why, where the machine refuses something meanwhile."""
    try:
        yield
    except OSError as error:
        hint = next((hint for numbers, hint in _HINTS if error.errno in numbers), None)
        says = f"cannot be written: {error.strerror or error}"
        raise UsageError(says, where=Location(str(path)), hint=hint) from None


def resolved(path: Path) -> Path:
    """Return the place that a path leads to, there or not. Raises UsageError for a link that leads to no place."""
    found = Path(os.path.realpath(path))
    if found.is_symlink():
        raise UsageError("is a link that leads back to itself", where=Location(str(path)), hint="name another place")
    return found


def check_plain(path: Path) -> None:
    """Raises UsageError where something else than a plain file lies at a name that the user did not give.

    Whoever packed the folder can have put a link there, to a file of the user's.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        says = "is a link, and is not written through" if stat.S_ISLNK(mode) else "is not a regular file"
        raise UsageError(says, where=Location(str(path)), hint="move it away")


def beside(path: Path) -> Path:
    """Return a short name in the same folder that cannot be guessed: the path's own may be as long as names can be."""
    return path.with_name(f".{os.urandom(8).hex()}.tmp")


def path_text(path: Path | str) -> str:
    """Return a path as a report has it: a file's name need not be text.

    >>> path_text("runs/t\\udcff.json")
    'runs/t?.json'
    """
    return str(path).encode("utf-8", "replace").decode()


@contextlib.contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """Yield a folder in the same folder, gone at the end: what is made in it gets its own name by a rename."""
    folder = beside(path)
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        try:
            shutil.rmtree(folder, ignore_errors=True)
        except BaseException:  # Ctrl-C comes at any time
            shutil.rmtree(folder, ignore_errors=True)
            raise


def make_folder(path: Path) -> None:
    """Make a folder, with those above it, unless it is there. Raises OSError, also where a file has the name of one."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock, so that no other process reads and writes there meanwhile, where the system has such locks."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            held = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, held)
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
