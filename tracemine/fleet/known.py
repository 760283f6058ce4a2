"""What `runs` has already, without a request a trace: an index next to the tables.

    DATASET/_known/ID.parquet    of each file of `runs`, under its name, what says that a trace need not be scanned

Files of `runs` are never changed, and each has its name from the trace, its day, its content and what it was scanned
with (`run_key`): what the index says of a file that is there counts where the file's name follows from it. What it
lacks is read from `runs`, and without it nothing is lost. A call that read many such files writes a new one, of all,
and then removes those that it read: at each moment another call finds enough.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import posixpath
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from tracemine.errors import InputError, Location, TracemineError
from tracemine.files import Inflation, parquet_of, read_file

KNOWN_FOLDER: Final = "_known"  # Spark and Arrow take no folder for a table whose name begins so
_COLUMNS: Final = ("uri", "generation", "size_bytes", "modified_ns", "content_sha256", "status")
_INTEGERS: Final = ("generation", "size_bytes", "modified_ns")
_SCHEMA: Final = pa.schema(
    [("file", pa.string()), *((name, pa.int64() if name in _INTEGERS else pa.string()) for name in _COLUMNS)]
)
_WORTH: Final = 64  # files of `runs` that are read, from which on an index is written
NO_DAY: Final = "unknown"

LARGEST_BYTES: Final = 1 << 30  # of one file
_AT_ONCE: Final = 32  # requests to a store
DAMAGED: Final = (OSError, pa.ArrowException, KeyError, UnicodeDecodeError, RecursionError, msgspec.DecodeError)


def run_key(uri: str, day: str | None, content: str, digest: str) -> str:
    """Return the name of a trace's files: one place, day, content and generation have one.

    content: digest of its own, or `unread`; digest: of the generation.
    """
    parts = (uri, day or "", content, digest)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def unread(size_bytes: int, modified_ns: int | None) -> str:
    """Return what replaces the content of a trace that could not be read."""
    return f"not read {size_bytes} {modified_ns}"


class Runs:
    """The files of `runs` in a data set's folder, and the index of them."""

    def __init__(self, stored: Stored, digests: Sequence[str], write: Callable[[str, bytes], None]) -> None:
        """digests: of generations, in order; write: a file below the root, whole or not at all."""
        self._stored, self._digests, self._write = stored, digests, write

    def read(self) -> pa.Table:
        """Return a row of each file. Raises InputError where one is damaged, OSError where they cannot be listed."""
        there = self._stored.tables("runs")
        parts = self._stored.tables(KNOWN_FOLDER)
        found = _once(pa.concat_tables([_SCHEMA.empty_table(), *self._stored.each(self._part, parts)]))
        found = found.filter(pc.is_in(found["file"], value_set=pa.array(there, pa.string())))
        left = sorted(set(there).difference(found["file"].to_pylist()))
        found = pa.concat_tables([found, *self._stored.each(self._row, left)])
        if len(left) >= _WORTH:
            with contextlib.suppress(OSError, TracemineError):  # who may not write there reads them again
                self._replace(parts, found)
        return found

    def _part(self, name: str) -> pa.Table:
        """Return what counts of one file of the index; of a damaged one, or one that was just replaced, nothing."""
        try:
            return self._vouched(
                self._table(f"{KNOWN_FOLDER}/{name}", _SCHEMA.names).select(_SCHEMA.names).cast(_SCHEMA)
            )
        except (InputError, *DAMAGED):
            return _SCHEMA.empty_table()

    def _vouched(self, found: pa.Table) -> pa.Table:
        """Return the rows from which the name of their file follows."""
        columns = (found[name].to_pylist() for name in ("file", *_COLUMNS[:-1]))
        return found.filter(pa.array([self._is_of(*row) for row in zip(*columns, strict=True)], pa.bool_()))

    def _is_of(
        self,
        file: str | None,
        uri: str | None,
        generation: int | None,
        size: int | None,
        modified: int | None,
        content: str | None,
    ) -> bool:
        if file is None or uri is None or size is None or not 1 <= (generation or 0) <= len(self._digests):
            return False
        day = file.partition("/")[0].removeprefix("day=")
        digest = self._digests[(generation or 0) - 1]
        key = run_key(uri, None if day == NO_DAY else day, content or unread(size, modified), digest)
        return file.endswith(f"/{key}.parquet")

    def _row(self, name: str) -> pa.Table:
        try:
            row = self._table(f"runs/{name}", _COLUMNS).select(_COLUMNS)
            return row.add_column(0, "file", pa.array([name] * row.num_rows, pa.string())).cast(_SCHEMA)
        except DAMAGED as error:
            where = Location(f"{self._stored.root}/runs/{name}")
            raise InputError(f"cannot be read: {error}", where=where, hint="remove it") from None

    def _table(self, name: str, columns: Sequence[str]) -> pa.Table:
        return self._stored.table(name, columns)

    def _replace(self, parts: Iterable[str], found: pa.Table) -> None:
        made = pa.BufferOutputStream()
        pq.write_table(found, made, compression="zstd")
        self._write(f"{KNOWN_FOLDER}/{secrets.token_hex(16)}.parquet", made.getvalue().to_pybytes())
        for name in parts:
            self._stored.store.delete_file(self._stored.path(f"{KNOWN_FOLDER}/{name}"))


def _once(table: pa.Table) -> pa.Table:
    """Return the first row of each file: two calls at once may have indexed it both."""
    seen = dict[str, int]()
    for number, name in enumerate(table["file"].to_pylist()):
        seen.setdefault(name, number)
    return table if len(seen) == table.num_rows else table.take(pa.array(seen.values(), pa.int64()))


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
