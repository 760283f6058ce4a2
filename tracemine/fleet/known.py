"""What `runs` has already, without a request a trace: an index beside the tables.

    DATASET/_known/ID.parquet    of each file of `runs`, under its name, what says that a trace need not be scanned

Files of `runs` are never changed, so what the index says of one that is there is true. It is of no other use: what it
lacks is read from `runs`, and without it nothing is lost. A call that read many such files writes a new one, of all,
and then removes those that it read: at each moment another call finds enough.
"""

from __future__ import annotations

import contextlib
import posixpath
import secrets
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from tracemine.errors import InputError, Location, TracemineError

_FOLDER: Final = "_known"  # Spark and Arrow take no folder for a table whose name begins so
_COLUMNS: Final = ("uri", "generation", "size_bytes", "modified_ns", "content_sha256", "status")
_INTEGERS: Final = ("generation", "size_bytes", "modified_ns")
_SCHEMA: Final = pa.schema(
    [("file", pa.string()), *((name, pa.int64() if name in _INTEGERS else pa.string()) for name in _COLUMNS)]
)
_AT_ONCE: Final = 32  # requests to a store
_WORTH: Final = 64  # files of `runs` that are read, from which on an index is written
_DAMAGED: Final = (OSError, pa.ArrowInvalid, pa.ArrowKeyError, KeyError)


class Runs:
    """The files of `runs` in a data set's folder, and the index of them."""

    def __init__(self, store: fs.FileSystem, root: str, write: Callable[[str, bytes], None]) -> None:
        """write: a file below the root, whole or not at all."""
        self._store, self._root, self._write = store, root, write

    def read(self) -> pa.Table:
        """Return a row of each file. Raises InputError where one is damaged, OSError where they cannot be listed."""
        there = self._names("runs")
        parts = self._names(_FOLDER)
        found = _once(pa.concat_tables([_SCHEMA.empty_table(), *self._in_threads(self._part, parts)]))
        found = found.filter(pc.is_in(found["file"], value_set=pa.array(there, pa.string())))
        left = sorted(set(there).difference(found["file"].to_pylist()))
        found = pa.concat_tables([found, *self._in_threads(self._row, left)])
        if len(left) >= _WORTH:
            with contextlib.suppress(OSError, TracemineError):  # who may not write there reads them again
                self._replace(parts, found)
        return found

    def _names(self, folder: str) -> list[str]:
        """Return the names of Parquet files in a folder and below, as they stand below it."""
        path = posixpath.join(self._root, folder)
        selector = fs.FileSelector(path, recursive=True, allow_not_found=True)
        start = len(path.removesuffix("/")) + 1
        infos = self._store.get_file_info(selector)
        return [one.path[start:] for one in infos if one.is_file and one.path.endswith(".parquet")]

    def _in_threads(self, read: Callable[[str], pa.Table], names: Iterable[str]) -> list[pa.Table]:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            return list(threads.map(read, names))

    def _part(self, name: str) -> pa.Table:
        """Return what one file of the index says; of a damaged one, or one that was just replaced, nothing."""
        try:
            return self._table(posixpath.join(self._root, _FOLDER, name), _SCHEMA.names).cast(_SCHEMA)
        except _DAMAGED:
            return _SCHEMA.empty_table()

    def _row(self, name: str) -> pa.Table:
        path = posixpath.join(self._root, "runs", name)
        try:
            row = self._table(path, _COLUMNS)
        except _DAMAGED as error:
            raise InputError(f"cannot be read: {error}", where=Location(path), hint="remove it") from None
        return row.add_column(0, "file", pa.array([name] * row.num_rows, pa.string())).cast(_SCHEMA)

    def _table(self, path: str, columns: Sequence[str]) -> pa.Table:
        """Read a file as a whole: its parts one by one are as many requests."""
        with self._store.open_input_file(path) as file:
            content: Any = file.read_buffer()
        return pq.ParquetFile(pa.BufferReader(content)).read(list(columns), use_threads=False).select(columns)

    def _replace(self, parts: Iterable[str], found: pa.Table) -> None:
        made = pa.BufferOutputStream()
        pq.write_table(found, made, compression="zstd")
        self._write(f"{_FOLDER}/{secrets.token_hex(16)}.parquet", made.getvalue().to_pybytes())
        for name in parts:
            self._store.delete_file(posixpath.join(self._root, _FOLDER, name))


def _once(table: pa.Table) -> pa.Table:
    """Return the first row of each file: two calls at once may have indexed it both."""
    seen = dict[str, int]()
    for number, name in enumerate(table["file"].to_pylist()):
        seen.setdefault(name, number)
    return table if len(seen) == table.num_rows else table.take(pa.array(seen.values(), pa.int64()))
