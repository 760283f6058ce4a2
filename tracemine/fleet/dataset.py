"""The data set that a fleet's scans are kept in: Parquet files of four tables, of each one a trace.

    DATASET/dataset.json                     the schema's version, and with what traces were scanned: generations
    DATASET/runs/day=2026-11-23/KEY.parquet
    DATASET/findings/…  DATASET/occurrences/…  DATASET/steps/…
    DATASET/_known/…                         an index of `runs` (known.py), no table

A file is written whole or not at all, and never changed. `runs` is written last: a trace whose row is not there was not
scanned to its end, and is scanned again under the same names, so that nothing is kept twice. DuckDB, pandas, Polars and
Spark read each folder as one table, partitioned by `day`.

An object store knows no locks. There whoever wants to be alone leaves a mark and then looks for others' marks; if there
are some, it takes its own away and comes back after a while of random length. Of two, at least one sees the other's, so
never both go on. A mark that is much older than one's own was left by a process that is gone.
"""

from __future__ import annotations

import contextlib
import io
import posixpath
import random
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from tracemine.errors import InputError, Location
from tracemine.files import locked, make_folder, write_file
from tracemine.findings.tables import FINDINGS, OCCURRENCES
from tracemine.fleet.known import DAMAGED, KNOWN_FOLDER, NO_DAY, Runs, Stored
from tracemine.fleet.places import filesystem, shown, without_secrets
from tracemine.patterns import deferred
from tracemine.timeline import ColumnSchema, TableSchema, tables_beside

_ALONE_MARK: Final = ".alone-"
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
    own = posixpath.join(folder, f"{_ALONE_MARK}{secrets.token_hex(8)}")
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
        if one.base_name.startswith(_ALONE_MARK)
    }
    now = marks.pop(own, 0)
    for path, then in list(marks.items()):
        if now - then > _STALE_NS:
            with contextlib.suppress(OSError):
                store.delete_file(path)
            del marks[path]
    return not marks


DATASET_SCHEMA_VERSION: Final = 1
_ABOUT: Final = "dataset.json"
_MARK: Final = b"tracemine_fleet"
_LARGEST_ABOUT: Final = 1 << 24  # bytes
_DAY = deferred(r"\d{4}-\d\d-\d\d")
_WITHOUT_FOLDERS: Final = ("s3", "gcs", "abfs")  # there one is a request for each part of its path, and of no use
_TEXT, _INT = pa.string(), pa.int64()
_KEY = (
    ColumnSchema("key", _TEXT, "the trace and what it was scanned with, as in `runs`"),
    ColumnSchema("generation", _INT, "with what it was scanned: its number in dataset.json, counted from 1"),
)

RUNS, STEPS = (
    TableSchema(one.name, one.row, one.order, (*_KEY, *one.columns)) for one in tables_beside(__file__).values()
)
FLEET_FINDINGS = TableSchema(FINDINGS.name, FINDINGS.row, FINDINGS.order, (*_KEY, *FINDINGS.columns))
FLEET_OCCURRENCES = TableSchema(OCCURRENCES.name, OCCURRENCES.row, OCCURRENCES.order, (*_KEY, *OCCURRENCES.columns))
TABLES = (FLEET_FINDINGS, FLEET_OCCURRENCES, STEPS, RUNS)  # in the order of writing: `runs` says that all is there


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """What traces were scanned with."""

    digest: str
    tracemine: str
    options: dict[str, Any]


class DatasetHead(msgspec.Struct, frozen=True, kw_only=True):
    """What dataset.json says."""

    schema_version: int
    generations: tuple[Generation, ...] = ()

    def number(self, generation: Generation) -> int | None:
        """Return a generation's number, counted from 1; None: it is new."""
        return next((k for k, one in enumerate(self.generations, 1) if one.digest == generation.digest), None)


class Dataset:
    """A data set in a folder of this machine or of an object store."""

    def __init__(self, uri: str) -> None:
        self.uri, self._given = shown(uri), uri
        self._store, self._root = filesystem(uri)
        self._stored = Stored(self._store, self._root)

    def begin(self, generation: Generation) -> int:
        """Take a generation up, if it is new; return its number, counted from 1.

        Calls may begin at once. Raises InputError where the folder is another's, of another version, or
        has a link in place of a table's.
        """
        for folder in (*(table.name for table in TABLES), KNOWN_FOLDER):
            self._stored.path(folder)  # no link, through which it would be written elsewhere
        found = self.about().number(generation)
        if found is not None:
            return found
        try:
            with alone(self._store, self._root):
                about = self.about()  # others may have been here before
                found = about.number(generation)
                if found is None:
                    about = msgspec.structs.replace(about, generations=(*about.generations, generation))
                    self._write(_ABOUT, msgspec.json.format(msgspec.json.encode(about), indent=1))
                return found or len(about.generations)
        except OSError as error:
            raise InputError(f"cannot be written: {self._said(error)}", where=Location(self.uri)) from None

    def about(self) -> DatasetHead:
        """Return what dataset.json says; of a folder that is not there or empty, that there is nothing yet."""
        place = Location(posixpath.join(self.uri, _ABOUT))
        try:
            about = msgspec.json.decode(self._stored.read(_ABOUT, _LARGEST_ABOUT), type=DatasetHead)
        except FileNotFoundError:
            names = self._names()
            if _ABOUT in names:  # another call has just begun it
                return self.about()
            if names:
                says, hint = "is a folder of something else", "name one that is empty, or not there"
                raise InputError(says, where=Location(self.uri), hint=hint) from None
            return DatasetHead(schema_version=DATASET_SCHEMA_VERSION)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"is no data set of tracemine fleet: {error}", where=place) from None
        except OSError as error:
            raise InputError(f"cannot be read: {self._said(error)}", where=place) from None
        if about.schema_version != DATASET_SCHEMA_VERSION:
            says = f"is of version {about.schema_version}; this tracemine reads {DATASET_SCHEMA_VERSION}"
            is_older = about.schema_version < DATASET_SCHEMA_VERSION
            hint = "scan the traces again into another folder" if is_older else "it takes a newer tracemine"
            raise InputError(says, where=place, hint=hint)
        return about

    def known(self) -> pa.Table:
        """Return of each row of `runs` what says that a trace need not be scanned. Raises InputError."""
        try:
            return Runs(self._stored, [one.digest for one in self.about().generations], self._write).read()
        except OSError as error:
            raise InputError(f"cannot be listed: {self._said(error)}", where=Location(self.uri)) from None

    def has(self, day: str | None, key: str) -> bool:
        """Return whether a run is there whole."""
        info = self._store.get_file_info(self._stored.path(self._name(RUNS, day, key)))
        return bool(info.type == fs.FileType.File)

    def write(self, day: str | None, key: str, tables: Mapping[str, pa.Table]) -> None:
        """Write a trace's tables, `runs` last. Raises UsageError, OSError."""
        for one in TABLES:
            table = tables.get(one.name)
            if table is None or (not table.num_rows and one is not RUNS):
                continue
            made = io.BytesIO()
            marked = table.replace_schema_metadata(
                {**(table.schema.metadata or {}), _MARK: str(DATASET_SCHEMA_VERSION).encode()}
            )
            pq.write_table(marked, made, compression="zstd", version="2.6")
            self._write(self._name(one, day, key), made.getvalue())

    def read(self, table: TableSchema) -> pa.Table:
        """Return a table of all traces, with `day`. Raises InputError where a file is damaged."""
        schema = table.schema.append(pa.field("day", _TEXT))

        def part(name: str) -> pa.Table:
            try:
                return _as(schema, self._stored.table(f"{table.name}/{name}", table.schema.names), name)
            except DAMAGED as error:
                where = Location(posixpath.join(self.uri, table.name, name))
                raise InputError(f"cannot be read: {self._said(error)}", where=where) from None

        try:
            names = self._stored.tables(table.name)
        except OSError as error:
            where = Location(posixpath.join(self.uri, table.name))
            raise InputError(f"cannot be read: {self._said(error)}", where=where) from None
        return pa.concat_tables([schema.empty_table(), *self._stored.each(part, names)])

    def _name(self, table: TableSchema, day: str | None, key: str) -> str:
        part = day if day is not None and _DAY.fullmatch(day) else NO_DAY
        return f"{table.name}/day={part}/{key}.parquet"

    def _names(self) -> set[str]:
        """Return the names of what lies in the folder and is not hidden; of a file in its place that file's."""
        selector = fs.FileSelector(self._root, allow_not_found=True)
        try:
            found = {one.base_name for one in self._store.get_file_info(selector)}
        except NotADirectoryError:
            return {posixpath.basename(self._root)}
        except FileNotFoundError:  # another call made it between two looks of Arrow's: it is there now
            return self._names()
        return {name for name in found if not name.startswith(".")}

    def _write(self, name: str, content: bytes) -> None:
        try:
            path = self._stored.path(name)
        except InputError as error:
            raise OSError(str(error)) from None  # it is no fault of the trace
        if self._stored.is_local:
            target = Path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_file(target, content, named=False, staged=Path(self._root))  # readers of a table find nothing else
            return
        try:
            if self._store.type_name not in _WITHOUT_FOLDERS:
                with contextlib.suppress(NotImplementedError):
                    self._store.create_dir(posixpath.dirname(path), recursive=True)
            with self._store.open_output_stream(path, compression=None) as file:  # an object is there once it is closed
                file.write(content)
        except OSError as error:
            raise OSError(self._said(error)) from None

    def _said(self, error: Exception) -> str:
        return without_secrets(str(error), self._given)


def _as(schema: pa.Schema, table: pa.Table, name: str) -> pa.Table:
    """Return a file's table with all columns: those that it lacks are null, and its folder says the day."""
    day = next((part.removeprefix("day=") for part in name.split("/") if part.startswith("day=")), None)
    table = table.append_column("day", pa.array([day] * table.num_rows, _TEXT))
    columns = [
        table[field.name].cast(field.type) if field.name in table.schema.names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
