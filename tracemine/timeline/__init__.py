"""The timeline: what a profiler said, as Arrow tables with one documented schema, stored as Parquet.

Facts only. Classes, gaps, bounds and other opinions are derived from these tables when they are loaded, so a
better classifier improves old files without reading the profiler's export again.

A row number ("row" in a column's name) is a position in the table it names. Null means "not recorded".

Two columns are in the files and not in memory, for whoever joins the files: `row`, a row's own number, and a kernel's
`short_name`. `read` drops them; `Timeline.table` gives a table with them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import force_setattr

from tracemine import files
from tracemine.columns import from_numbers, string_ids, texts
from tracemine.errors import InputError, Location, TimelineError, UsageError
from tracemine.files import beside, folder_beside, locked, make_folder, read_file, resolved, writing
from tracemine.frames import frame
from tracemine.ops.kernel_names import short_name
from tracemine.timeline.meta import (
    MEANS,
    PRODUCERS,
    SCHEMA_VERSION,
    IngestReport,
    Meta,
    RecordedDevice,
    producer_named,
    producer_of,
    schema_version_of,
    warned,
)
from tracemine.timeline.schema import COUNTERS, EDGES, ROW, TABLES, ColumnSchema, TableSchema, tables_beside

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "COUNTERS",
    "EDGES",
    "MEANS",
    "PRODUCERS",
    "SCHEMA_VERSION",
    "TABLES",
    "ColumnSchema",
    "IngestReport",
    "Meta",
    "RecordedDevice",
    "TableSchema",
    "Timeline",
    "producer_named",
    "producer_of",
    "read_counters_table",
    "tables_beside",
    "warned",
]

# Version 4 has no derived columns, versions 5 to 9 not all columns of _ADDED, versions 6 to 9 not all tables of
# _ADDED_TABLES; they are the same otherwise.
_READ_VERSIONS = (4, 5, 6, 7, 8, 9, SCHEMA_VERSION)
_ADDED = (
    ("api", "before_stack_row"),
    ("ops", "since_stack_row"),
    *(("activities", name) for name in ("module", "stack_row", "calls", "stated_bytes", "stated_flops")),
    *(("instructions", name) for name in ("dtypes", "multiplies")),
)
_ADDED_TABLES = ("light", "collectives", "instructions", "lock_waits")
_LARGEST_META = 1 << 26  # bytes of a meta.json; real ones have some thousands

_META = "meta.json"
_OF_FINDINGS = ("findings", "occurrences")  # tables of what a scan found, written next to those of its trace
_FILES = {_META, *(f"{name}.parquet" for name in (*TABLES, EDGES.name, COUNTERS.name, *_OF_FINDINGS))}
_SHOWN = 3  # names in a message


class Timeline(Struct, frozen=True, kw_only=True):
    """All tables of one trace, checked against the schema once, here.

    Raises TimelineError naming the table and the column that differ.

    >>> empty = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    >>> empty.activities.num_rows
    0
    """

    meta: Meta
    activities: pa.Table = None
    ops: pa.Table = None
    api: pa.Table = None
    steps: pa.Table = None
    stacks: pa.Table = None
    memory: pa.Table = None
    tensors: pa.Table = None
    collectives: pa.Table = None
    instructions: pa.Table = None
    light: pa.Table = None
    lock_waits: pa.Table = None

    def __post_init__(self) -> None:
        for table in TABLES.values():
            given = getattr(self, table.name)
            force_setattr(self, table.name, _checked(given, table))

    @property
    def untimed(self) -> bool:
        """Whether activities are sums of several runs: when these ran, and after what, is not known."""
        return bool(self.activities["calls"].null_count < self.activities.num_rows)

    def write(
        self,
        directory: Path,
        edges: pa.Table | None = None,
        counters: pa.Table | None = None,
        found: Sequence[tuple[TableSchema, pa.Table]] = (),
    ) -> None:
        """Write the Parquet directory, whole or not at all: it gets its name when every file is in it.

        A link keeps pointing to the directory. `edges`, a table of the schema `EDGES`, is written with the others for
        who reads the directory, and so is `counters`, one of the schema `COUNTERS`; `read` leaves both alone. `found`
        are the tables of findings, each with its schema, which are written likewise.

        Raises TimelineError if `directory` exists already and holds anything but a timeline, UsageError where it cannot
        be written.
        """
        tables = {table.name: getattr(self, table.name) for table in TABLES.values()}
        for table, given in ((EDGES, edges), (COUNTERS, counters), *found):
            if given is not None:
                tables[table.name] = _checked(given, table)
        with writing(directory):
            target = resolved(directory)
            make_folder(target.parent)
            with locked(target.parent):
                _check_replaceable(target, directory)
            with folder_beside(target) as folder:
                staging = folder / "new"
                staging.mkdir()
                files.write_tables(staging, _stored(tables))
                (staging / _META).write_bytes(msgspec.json.format(msgspec.json.encode(self.meta), indent=1))
                with locked(target.parent):
                    _check_replaceable(target, directory)
                    _replace(staging, target, folder / "old")

    def table(self, name: str) -> pa.Table:
        """Return a table as `write` stores it: with the number of each row, and of kernels their short names.

        Raises UsageError where there is no table of that name.

        >>> Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto")).table("steps").column_names[:2]
        ['row', 'name']
        """
        if name not in TABLES:
            raise UsageError(f"a timeline has no table {name!r}", hint=f"there are: {', '.join(TABLES)}")
        return _with_derived(getattr(self, name), name)

    def to_pandas(self, name: str) -> pd.DataFrame:
        """Return the same as a DataFrame, in which integers that were not recorded are `pd.NA`. Raises as `table`."""
        return frame(self.table(name))

    @staticmethod
    def lies_in(directory: Path) -> bool:
        """Return whether `directory` looks like one that `write` made."""
        return (directory / _META).is_file() and (directory / "activities.parquet").is_file()

    @staticmethod
    def read(directory: Path) -> Timeline:
        """Read a Parquet directory that `write` made.

        Raises TimelineError if a file is missing, damaged, or of another schema version.
        """
        with _readable(directory):
            meta = _read_meta(directory / _META)
            return Timeline(meta=meta, **{table.name: _facts(directory, table) for table in TABLES.values()})


def read_counters_table(directory: Path) -> pa.Table | None:
    """Return the table of the schema `COUNTERS` that lies in a timeline directory; None where there is none.

    Raises TimelineError if it is damaged, or of another schema.

    >>> read_counters_table(Path("no/such/folder")) is None
    True
    """
    path = directory / f"{COUNTERS.name}.parquet"
    if not (os.path.lexists(path) and os.path.lexists(directory / _META)):
        return None
    with _readable(directory):
        _read_meta(directory / _META)
        return _checked(_read_table(path), COUNTERS)


@contextmanager
def _readable(directory: Path) -> Iterator[None]:
    """Convert whatever is wrong with a timeline's files to a TimelineError that names the directory."""
    try:
        yield
    except (InputError, TimelineError, *_DAMAGED) as error:
        reason = error.message if isinstance(error, TimelineError) else f"is not a readable timeline: {_says(error)}"
        hint = "ingest the profiler's export again"
        raise TimelineError(reason, where=Location(str(directory)), hint=hint) from None


def _checked(given: Any, table: TableSchema) -> pa.Table:
    schema = table.schema
    if given is None:
        return pa.Table.from_batches([], schema)  # Schema.empty_table would import pandas
    if given.schema.names != schema.names:
        missing = [n for n in schema.names if n not in given.schema.names]
        extra = [n for n in given.schema.names if n not in schema.names]
        raise TimelineError(f"table {table.name}: missing columns {missing}, unknown columns {extra}, or another order")
    as_it_is = given.schema.equals(schema, check_metadata=True)
    for wanted, column in zip(table.columns, given.columns, strict=True):
        if not as_it_is and column.type != wanted.type:
            raise TimelineError(f"table {table.name}, column {wanted.name}: {column.type} instead of {wanted.type}")
        if wanted.null is None and column.null_count:
            raise TimelineError(
                f"table {table.name}, column {wanted.name}: {column.null_count} nulls where none may be"
            )
    return given if as_it_is else pa.Table.from_arrays(given.columns, schema=schema)


_DAMAGED = (OSError, pa.ArrowException, msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _says(error: Exception) -> str:
    """Return the name of a file in the folder and what is wrong with it."""
    if not isinstance(error, InputError) or error.where is None:
        return str(error)
    return f"{Path(error.where.path).name} {error.message}"


def _read_meta(path: Path) -> Meta:
    text = read_file(path, _LARGEST_META)
    version = schema_version_of(text)
    if version not in _READ_VERSIONS:
        known = " and ".join(map(str, _READ_VERSIONS))
        raise TimelineError(f"has schema version {version}, this tracemine reads {known}")
    return msgspec.structs.replace(msgspec.json.decode(text, type=Meta), schema_version=SCHEMA_VERSION)


def _facts(directory: Path, table: TableSchema) -> pa.Table | None:
    """Return a table that was stored, without what was derived from it; None: it was stored before there was one."""
    if table.name in _ADDED_TABLES and not (directory / f"{table.name}.parquet").is_file():
        return None
    found = _read_table(directory / f"{table.name}.parquet")
    derived = [column.name for column in table.derived if column.name in found.column_names]
    found = found.drop_columns(derived) if derived else found
    for name, added in _ADDED:
        if name == table.name and added not in found.column_names:
            field = table.schema.field(added)
            found = found.append_column(field, pa.nulls(found.num_rows, field.type))
    return found


def _with_derived(rows: pa.Table, name: str) -> pa.Table:
    """Return a table and what is derived from it, before its facts."""
    if name not in TABLES:
        return rows
    made = [_DERIVE[column.name](rows) for column in TABLES[name].derived]
    fields = [pa.field(column.name, column.type, nullable=False) for column in TABLES[name].derived]
    return pa.Table.from_arrays([*made, *rows.columns], schema=pa.schema([*fields, *rows.schema]))


def _stored(tables: dict[str, pa.Table]) -> Iterator[tuple[str, pa.Table, dict[str, Any]]]:
    """Yield each table as its file holds it, and how its columns are packed."""
    for name, rows in tables.items():
        full = _with_derived(rows, name)
        yield name, full, _encodings(full)


def _encodings(rows: pa.Table) -> dict[str, Any]:
    """Return how columns are packed: row numbers as their differences, which take no room, all else by dictionaries."""
    if ROW.name not in rows.column_names:
        return {}
    lists = {field.name: pa.types.is_nested(field.type) for field in rows.schema if field.name != ROW.name}
    others = [f"{name}.list.element" if nested else name for name, nested in lists.items()]
    return {"use_dictionary": others, "column_encoding": {ROW.name: "DELTA_BINARY_PACKED"}}


def _row_numbers(rows: pa.Table) -> pa.Array:
    return from_numbers(np.arange(rows.num_rows, dtype=np.int64), pa.int64())


def _short_names(rows: pa.Table) -> pa.Array:
    return texts(*string_ids(rows.column("name")), short_name)


_DERIVE: dict[str, Callable[[pa.Table], pa.Array]] = {"row": _row_numbers, "short_name": _short_names}


def _read_table(path: Path) -> pa.Table:
    table = files.read_parquet(path).unify_dictionaries().combine_chunks()
    table.validate(full=True)  # that text is text, and an index one of the dictionary's
    return table


def _check_replaceable(directory: Path, given: Path) -> None:
    """Raises TimelineError where there is anything but a timeline's own files, or the folder is the current one."""
    if not os.path.lexists(directory):
        return
    where = Location(str(given))
    elsewhere = "choose another directory with -o"
    if not (Timeline.lies_in(directory) or (directory.is_dir() and not any(directory.iterdir()))):
        raise TimelineError("exists and is not a timeline directory, so it is left alone", where=where, hint=elsewhere)
    others = sorted(path.name for path in directory.iterdir() if path.name not in _FILES or not _is_plain(path))
    if others:
        names = ", ".join(others[:_SHOWN]) + (f", … ({len(others)})" if len(others) > _SHOWN else "")
        hint = f"move it away, or {elsewhere}"
        raise TimelineError(f"holds what no ingest wrote, so it is left alone: {names}", where=where, hint=hint)
    if directory.samefile("."):
        raise TimelineError("is the current directory, which cannot be replaced", where=where, hint=elsewhere)


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _replace(staging: Path, directory: Path, old: Path) -> None:
    """Give `staging` its final name. An older timeline there becomes `old` meanwhile, which is not deleted here."""
    replaces = directory.exists()
    try:
        if replaces:
            directory.rename(old)
        staging.rename(directory)
    except BaseException:
        if staging.exists() and old.exists():
            old.rename(beside(directory) if os.path.lexists(directory) else directory)
        raise
