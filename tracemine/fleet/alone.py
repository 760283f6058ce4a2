"""One process at a time at what a data set has only once: its dataset.json, in a folder or in an object store.

An object store knows no locks. There whoever wants to be alone leaves a mark and then looks for others' marks; if there
are some, it takes its own away and comes back after a while of random length. Of two, at least one sees the other's, so
never both go on. A mark that is much older than one's own was left by a process that is gone.
"""

from __future__ import annotations

import contextlib
import posixpath
import random
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyarrow import fs

from tracemine.errors import InputError, Location
from tracemine.files import locked, make_folder

_MARK: Final = ".alone-"
_STALE_NS: Final = 60_000_000_000
_PAUSE_S: Final = 0.5
_PATIENCE_S: Final = 300.0


@contextlib.contextmanager
def alone(store: fs.FileSystem, folder: str) -> Iterator[None]:
    """Let no other process of this kind work in a folder meanwhile. Raises OSError, and InputError after minutes."""
    if isinstance(store, fs.LocalFileSystem):
        make_folder(Path(folder))
        with locked(Path(folder)):
            yield
        return
    own = posixpath.join(folder, f"{_MARK}{secrets.token_hex(8)}")
    began = time.monotonic()
    try:
        while not _is_alone(store, folder, own):
            if time.monotonic() - began > _PATIENCE_S:
                raise InputError("other calls write there all the time", where=Location(folder), hint="try again later")
            store.delete_file(own)
            time.sleep(random.uniform(_PAUSE_S / 10, _PAUSE_S))  # noqa: S311 - no secret
        yield
    finally:
        with contextlib.suppress(OSError):
            store.delete_file(own)


def _is_alone(store: fs.FileSystem, folder: str, own: str) -> bool:
    """Leave a mark, and return whether no other is there. The store's clock says how old marks are."""
    with store.open_output_stream(own, compression=None) as file:
        file.write(b"tracemine fleet\n")
    marks = {
        one.path: one.mtime_ns or 0
        for one in store.get_file_info(fs.FileSelector(folder))
        if one.base_name.startswith(_MARK)
    }
    now = marks.pop(own, 0)
    for path, then in list(marks.items()):
        if now - then > _STALE_NS:
            with contextlib.suppress(OSError):
                store.delete_file(path)
            del marks[path]
    return not marks
