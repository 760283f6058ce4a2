"""Files of a data set, wherever it lies: read within bounds, as all files are, and through no link.

Whoever hands a data set on can have put anything there: a pipe, a link, a file that inflates without bound, texts that
are none.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from tracemine.errors import InputError, Location
from tracemine.files import Inflation, parquet_of, read_file

LARGEST_BYTES: Final = 1 << 30  # of one file
_AT_ONCE: Final = 32  # requests to a store
DAMAGED: Final = (OSError, pa.ArrowException, KeyError, UnicodeDecodeError, RecursionError, msgspec.DecodeError)


class Stored:
    """The files below a folder of this machine or of an object store."""

    def __init__(self, store: fs.FileSystem, root: str) -> None:
        self.store, self.root = store, root
        self.is_local = isinstance(store, fs.LocalFileSystem)
        self._inflation = defaultdict[str, Inflation](Inflation)  # of a folder: small files may be many

    def path(self, name: str) -> str:
        """Return a file's path in the store. Raises InputError where a link leads to it."""
        path = posixpath.join(self.root, name)
        if self.is_local:
            self._check_no_link(name)
        return path

    def tables(self, folder: str) -> list[str]:
        """Return the names of Parquet files in a folder and below, as they stand below it. Raises OSError."""
        path = self.path(folder)
        start = len(path.removesuffix("/")) + 1
        infos = self.store.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        return sorted(one.path[start:] for one in infos if one.is_file and one.path.endswith(".parquet"))

    def read(self, name: str, most_bytes: int = LARGEST_BYTES) -> bytes:
        """Return what a file holds, in one request. Raises InputError, FileNotFoundError, OSError."""
        path = self.path(name)
        if self.is_local:
            if not os.path.lexists(path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return read_file(Path(path), most_bytes)
        with self.store.open_input_file(path) as file:
            if file.size() > most_bytes:
                raise InputError(f"is larger than {most_bytes:,} bytes", where=Location(path))
            content: bytes = file.read_buffer().to_pybytes()
        return content

    def table(self, name: str, columns: Sequence[str]) -> pa.Table:
        """Return those of the columns that a Parquet file has. Raises InputError, and the errors of DAMAGED."""
        content = self.read(name)
        where = Location(posixpath.join(self.root, name))
        found = parquet_of(content, set(columns), self._inflation[name.partition("/")[0]], where)
        found.validate(full=True)
        return pa.table({name: _plain(found[name], where) for name in columns if name in found.schema.names})

    def each(self, read: Callable[[str], pa.Table], names: Iterable[str]) -> list[pa.Table]:
        """Return a table of each file, several read at once."""
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            return list(threads.map(read, names))

    def _check_no_link(self, name: str) -> None:
        """Raises InputError: the root was named, and what lies below it was not."""
        path = self.root
        for part in name.split("/"):
            path = posixpath.join(path, part)
            if os.path.islink(path):  # noqa: PTH114 - as Arrow has it
                raise InputError("is a link, and is not followed", where=Location(path), hint="move it away")


def _plain(column: pa.ChunkedArray, where: Location) -> pa.ChunkedArray:
    """Return a column of texts as such; it was read as a dictionary. Raises InputError where that is too much."""
    if not pa.types.is_dictionary(column.type):
        return column
    lengths = (pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() for chunk in column.chunks)
    if sum(length or 0 for length in lengths) > LARGEST_BYTES:
        raise InputError(f"holds more than {LARGEST_BYTES:,} bytes of texts", where=where)
    return column.cast(column.type.value_type)
