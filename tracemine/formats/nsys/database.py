"""The SQLite export, opened so that nothing is written, locked or executed on the file's behalf."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from pathlib import Path
from typing import Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from tracemine.columns import Array, fixed_width
from tracemine.errors import InputError, Location, TracemineError
from tracemine.files import opened
from tracemine.formats.format import Progress
from tracemine.formats.nsys import schema
from tracemine.formats.nsys.about import NSYS, Recorder
from tracemine.formats.nsys.assemble import assemble
from tracemine.formats.nsys.tables import Numbers, nothing
from tracemine.formats.sniff import RECORD_WITH_TORCH
from tracemine.formats.source import FileSource
from tracemine.timeline import Timeline
from tracemine.timeline.arrow import MISSING

_ROWS_AT_ONCE = 1 << 15
_HALVED_ROWS = 1_000_000  # from here on two read one table
LARGE_ROWS = 100_000  # from here on the Arrow driver reads in less time than it takes to load
_JOURNAL = "A write-ahead log lies next to the database, and what only it holds is not read: close what writes to it."
_NO_TABLE = "Views and virtual tables are not read, they would run what the file says: of {} nothing is known."
_AS_IT_IS = "ifnull({}, " + str(MISSING) + ")"
NO_NUMBER = "value that is no integer, read as not recorded"

MAGIC: Final = b"SQLite format 3\0"


def read_database(
    source: FileSource, progress: Progress | None, kind: type[Database] | None = None, recorder: Recorder = NSYS
) -> Timeline:
    """Return the timeline of an SQLite export, or of what another profiler recorded that is laid out as one.

    Raises InputError where it is damaged, packed, or another database.
    """
    if source.compressed:
        raise InputError(
            "is a gzipped SQLite database, which cannot be read in place",
            where=Location(source.path),
            hint="gunzip it and pass the result",
        )
    path = Path(source.path)
    with (kind or Database)(path, progress) as tables:
        return assemble(tables, path.name, recorder, blobs=tables.payloads())


def holds_ranks(path: Path) -> bool:
    """Return whether a file is such an export in which several processes run kernels of NCCL.

    >>> holds_ranks(Path("fixtures/nsys/block_train.sqlite")), holds_ranks(Path("fixtures/kineto/chain.json.gz"))
    (False, False)
    """
    try:
        with opened(path) as file:
            if file.read(len(MAGIC)) != MAGIC:
                return False
        with Database(path) as tables:
            return tables.communicating() > 1
    except TracemineError:
        return False


class Database:
    """`Tables` over an SQLite file. Use as a context manager.

    Raises InputError where the file is damaged or no export of Nsight Systems.
    """

    again = "export again with nsys export --type sqlite FILE.nsys-rep"  # where it is damaged
    reads_ahead = True  # its tables are the file's

    def __init__(self, path: Path, progress: Callable[[int, int], None] | None = None) -> None:
        self.path = str(path)
        self.repaired: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        journal = path.with_name(path.name + "-wal")
        self.warnings = [_JOURNAL] if journal.is_file() and journal.stat().st_size else []
        self._size = path.stat().st_size
        self._progress, self._read_rows, self._all_rows = progress, 0, 1
        self._uri = uri_of(path)
        with self._damage_told(), opened(path) as checked:
            self._connection = connected(path)
            self._columns = {table: columns_in(self._connection, table) for table in self._plain_tables()}
            counts = {t: self._count(t) for t in schema.NUMBERS}
            if not os.path.samestat(os.fstat(checked.fileno()), path.stat()):  # SQLite opens by name
                raise InputError("was replaced while it was read", where=Location(self.path))
        self._counts = counts
        # Large tables are read side by side, each by a connection of its own: the driver holds no lock of Python's.
        # What is asked for first, and takes Python longest, comes first.
        large = [t for t in schema.LARGE if self.reads_ahead and counts[t] >= LARGE_ROWS and self._wanted(t)]
        large.sort(key=lambda table: table != schema.NVTX)
        self._readers = ThreadPoolExecutor(max_workers=2) if large else None
        with self._damage_told():
            self._ahead = {table: self._read_ahead(table) for table in large}
        self._all_rows = max(1, sum(counts[table] for table in schema.LARGE))

    @property
    def names(self) -> set[str]:
        """Names of the tables that are there."""
        return set(self._columns)

    def columns(self, table: str) -> set[str]:
        """Return names of a table's columns; empty where it is not there."""
        return self._columns.get(table, set())

    def numbers(self, table: str) -> Numbers:
        """Return the table's columns of `schema.NUMBERS`, all of one length."""
        rows, wanted = self._counts[table], self._wanted(table)
        columns = nothing(tuple(name for name in schema.NUMBERS[table] if name not in wanted), rows)
        if not wanted:
            return columns
        return columns | (self.arrow_columns(table) or self._plain_columns(table, wanted))

    def arrow_columns(self, table: str) -> Numbers | None:
        """Return the columns of a large table that is read ahead; None where the driver is not there or balks.

        Damage is then found, and reported, the plain way.
        """
        ahead = self._ahead.pop(table, None)
        if ahead is None:
            return None
        columns, parts = ahead
        filled = [part.result() for part in parts]
        if not all(filled):
            return None
        self._told(self._counts[table])
        return columns

    def _plain_columns(self, table: str, wanted: list[str]) -> Numbers:
        columns = {name: np.empty(self._counts[table], np.int64) for name in wanted}
        with self._damage_told():
            try:
                self._fill(columns, table, wanted, _AS_IT_IS)
            except (TypeError, ValueError, OverflowError):  # SQLite lets any column hold anything
                self._fill(columns, table, wanted, "iif(typeof({0}) = 'integer', {0}, " + str(MISSING) + ")")
                wrong = " + ".join(f"""total(typeof("{name}") not in ('integer', 'null'))""" for name in wanted)
                count = self._answer(f'select {wrong} from "{table}"').fetchone()[0]
                self.repaired[NO_NUMBER] += int(count)
        return columns

    def texts(self, table: str) -> dict[str, list[str | None]]:
        """Return the table's columns of `schema.TEXTS`, in the same order of rows."""
        found: dict[str, list[str | None]] = {}
        for name in schema.TEXTS.get(table, ()):
            found[name] = [None] * self._counts.get(table, 0)
            if name in self.columns(table):
                text = f"iif(typeof({_quoted(name)}) = 'text', {_quoted(name)}, null)"
                with self._damage_told():
                    cursor = self._answer(f'select {text} from "{table}" order by rowid')
                    found[name] = [value for (value,) in cursor]
        return found

    def payloads(self) -> dict[int, bytes | str]:
        """Return the payloads of NVTX events, by row."""
        if schema.NVTX_ENTRIES not in self.names or schema.PAYLOAD not in self.columns(schema.NVTX):
            return {}
        numbered = f'select row_number() over (order by rowid) - 1, "{schema.PAYLOAD}" as said from "{schema.NVTX}"'
        with self._damage_told():
            cursor = self._answer(f"select * from ({numbered}) where typeof(said) in ('text', 'blob')")
            return dict(cursor)

    def close(self) -> None:
        """Close the database."""
        if self._readers is not None:
            self._readers.shutdown(cancel_futures=True)
        self._connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, query: str) -> sqlite3.Cursor:
        """Return what a query of ours gives. Its names are those of `schema`, never what the file says."""
        return self._connection.execute(query)

    def _wanted(self, table: str) -> list[str]:
        return [name for name in schema.NUMBERS[table] if name in self.columns(table)]

    def _fill(self, columns: Numbers, table: str, wanted: list[str], value: str) -> None:
        at = 0
        for rows in self._plain_rows(_query(table, wanted, value), len(wanted)):
            for name, values in zip(wanted, rows, strict=True):
                columns[name][at : at + len(values)] = values
            at += len(rows[0])
            self._told(len(rows[0]))
        for name in wanted:
            columns[name][at:] = MISSING

    def _told(self, rows: int) -> None:
        """Say how far reading has come."""
        if self._progress is not None:
            self._read_rows += rows
            self._progress(min(self._size, self._size * self._read_rows // self._all_rows), self._size)

    def _plain_rows(self, query: str, width: int) -> Iterator[Sequence[Array]]:
        """Yield what a query gives, by columns. Raises TypeError, ValueError, OverflowError: not all of it is int64."""
        cursor = self._answer(query)
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            flat = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * width)
            yield list(flat.reshape(len(rows), width).T)

    def _read_ahead(self, table: str) -> tuple[Numbers, list[Future[bool]]]:
        """Begin to read a table, in halves where it is long: its columns, which the futures fill, and say whether."""
        assert self._readers is not None  # noqa: S101 - made where there are large tables
        wanted, count = self._wanted(table), self._counts[table]
        columns = {name: np.empty(count, np.int64) for name in wanted}
        parts = [("", 0, count)]
        if count >= _HALVED_ROWS:
            ends = (f'(select {end}(rowid) from "{table}")' for end in ("min", "max"))  # each at once, by the index
            (half,) = self._answer(f"select ({' + '.join(ends)}) / 2").fetchone()
            (first,) = self._answer(f'select count(*) from "{table}" where rowid <= {int(half)}').fetchone()
            parts = [(f"where rowid <= {int(half)}", 0, first), (f"where rowid > {int(half)}", first, count)]
        return columns, [
            self._readers.submit(
                self._fill_by_arrow,
                [columns[name][begin:end] for name in wanted],
                _query(table, wanted, _AS_IT_IS, where),
            )
            for where, begin, end in parts
        ]

    def _fill_by_arrow(self, columns: Sequence[Array], query: str) -> bool:
        """Fill columns with what a query gives, without a Python object a value; false where that cannot be done."""
        try:
            from adbc_driver_manager import Error
            from adbc_driver_sqlite import dbapi
        except ImportError:
            return False
        at, count = 0, len(columns[0])
        try:
            with dbapi.connect(self._uri) as connection, connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(2 * _ROWS_AT_ONCE)})
                cursor.execute(query)
                for batch in cursor.fetch_record_batch():
                    if at + len(batch) > count or any(kind != pa.int64() for kind in batch.schema.types):
                        return False
                    for column, values in zip(columns, batch.columns, strict=True):
                        column[at : at + len(batch)] = fixed_width(values, np.int64)
                    at += len(batch)
        except (Error, pa.ArrowException, OSError, ImportError):  # the last: without all that the driver needs
            return False
        return at == count

    def _no_export(self, names: Sequence[str]) -> InputError:
        """Return what another database is, and the way out."""
        what, hint = "an SQLite database, but no Nsight Systems export", "pass what nsys export --type sqlite wrote"
        if any(name.startswith("rocpd_") for name in names):
            what, hint = "a database of rocprofv3 (rocpd) of another layout than is known", RECORD_WITH_TORCH
        return InputError(f"is {what}", where=Location(self.path), hint=hint)

    def _plain_tables(self) -> list[str]:
        """Return known tables that hold rows of their own: no view and no virtual table, which would run something."""
        found = tables_in(self._connection)
        names = [name for name, plain in found.items() if plain]
        if others := sorted(name for name, plain in found.items() if not plain and name in schema.NUMBERS):
            self.warnings.append(_NO_TABLE.format(", ".join(others)))
        if not schema.is_export(set(names)):
            raise self._no_export(names)
        return [name for name in names if name in schema.NUMBERS]

    def _count(self, table: str) -> int:
        if table not in self._columns:
            return 0
        return int(self._answer(f'select count(*) from "{table}"').fetchone()[0])

    def communicating(self) -> int:
        """Return how many processes run kernels of NCCL."""
        if schema.STRINGS not in self._columns or not {"shortName", "globalPid"} <= self._columns.get(
            schema.KERNEL, set()
        ):
            return 0
        names = f'select id from "{schema.STRINGS}" where value like ?'
        query = f'select count(distinct globalPid) from "{schema.KERNEL}" where shortName in ({names})'
        with self._damage_told():
            return int(self._connection.execute(query, ("nccl%",)).fetchone()[0])

    def _damage_told(self) -> AbstractContextManager[None]:
        return damage_told(self.path, self.again)


def _query(table: str, wanted: Sequence[str], value: str, where: str = "") -> str:
    """Return all rows of a table of the closed list; `value`: how a column is asked for; `where`: of which rows."""
    selected = ", ".join(value.format(_quoted(name)) for name in wanted)
    return f'select {selected} from "{table}" {where} order by rowid'


def _quoted(name: str) -> str:
    """Return a column of the closed list; `end` is a keyword."""
    return f'"{name}"'


def uri_of(path: Path) -> str:
    """Return how SQLite is asked for a file: no lock is taken and no journal next to it is looked at."""
    return f"file:{quote(os.fsencode(path.absolute()))}?mode=ro&immutable=1"


def connected(path: Path) -> sqlite3.Connection:
    """Return a connection on which no function of a view or generated column runs, and a damaged page is an error."""
    connection = sqlite3.connect(uri_of(path), uri=True, isolation_level=None)
    connection.execute("pragma trusted_schema = off")
    connection.execute("pragma cell_size_check = on")
    return connection


def tables_in(connection: sqlite3.Connection) -> dict[str, bool]:
    """Return names of tables and views, and whether each is a table with rows of its own."""
    query = "select name, type = 'table' and rootpage > 0 from sqlite_master where type in ('table', 'view')"
    return {name: bool(plain) for name, plain in connection.execute(query) if isinstance(name, str)}


def columns_in(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return a table's columns that are no expressions."""
    found = connection.execute(f'pragma table_xinfo("{table}")').fetchall()
    return {name for _, name, _, _, _, _, hidden in found if not hidden}


@contextmanager
def damage_told(path: str, again: str) -> Iterator[None]:
    """Convert what SQLite says of damage to an InputError; `again`: how to get another file."""
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning, UnicodeDecodeError) as error:
        # SQLite's own messages can quote what is in the file, so only the known ones are passed on.
        known = ("malformed", "not a database", "encrypted", "disk I/O", "UTF-8")
        reason = next((word for word in known if word in str(error)), None)
        raise InputError(
            "is a damaged SQLite database" + (f" ({reason})" if reason else ""),
            where=Location(path),
            hint=f"it may be cut short: copy it again, or {again}",
        ) from None
