"""A database of rocprofv3 laid out as an export of Nsight Systems: in tables of the connection's own, in memory.

A database holds a set of tables for each process, by a suffix. Of a closed list of them, and of their columns, what a
set lacks is not known. Views are not read: they would run what the file says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from tracemine.errors import InputError, Location
from tracemine.formats.format import Progress
from tracemine.formats.nsys import database
from tracemine.formats.nsys import schema as nsys
from tracemine.formats.nsys.about import Recorder
from tracemine.formats.nsys.database import columns_in, tables_in
from tracemine.formats.source import FileSource
from tracemine.tables import table_beside
from tracemine.timeline import Timeline

_AGAIN: Final = "record again with rocprofv3 --sys-trace --output-format rocpd"
ROCPROF: Final = Recorder(
    "rocpd",
    "rocprofv3",
    f"No GPU activity was recorded: {_AGAIN}.",
    "No operators were recorded, so no activity has an owner: those of a PyTorch program come with --marker-trace, "
    "under torch.autograd.profiler.emit_nvtx(record_shapes=True).",
    "Shapes were not recorded, so bytes and savings cannot be derived: use emit_nvtx(record_shapes=True).",
)
_TABLES: Final = (
    *("rocpd_kernel_dispatch", "rocpd_memory_copy", "rocpd_region", "rocpd_string", "rocpd_event"),
    *("rocpd_info_kernel_symbol", "rocpd_info_agent", "rocpd_info_process", "rocpd_info_thread"),
)
_TABLE: Final = re.compile(rf"({'|'.join(_TABLES)})(?P<suffix>_[0-9A-Za-z_]{{1,80}})?")
_COLUMN: Final = re.compile(r'\b([a-z])\."?(\w+)"?')


class _Query(Struct, frozen=True):
    """Rows of a table, here `r`, and what others say of them, for another table. Of several expressions the first whose
    columns are there is asked for.
    """

    into: str
    table: str
    columns: Mapping[str, Sequence[str]]  # by what they become
    joins: Mapping[str, tuple[str, str]] = {}  # by the other's letter: its table, and what it is joined on
    where: Sequence[str] = ("true",)

    def text(self, suffix: str, there: Mapping[str, set[str]], texts: tuple[int, int]) -> str:
        """Return what adds the rows of one set to a table. `texts`: factor and summand of the set's numbers of texts,
        which no other set has; those of kernels' names are one further.
        """
        tables = {"r": self.table, **{letter: table for letter, (table, _) in self.joins.items()}}
        known = {letter: there.get(table + suffix, set()) for letter, table in tables.items()}
        used = {letter: join for letter, join in self.joins.items() if _holds(join[1], known)}
        known = {letter: columns for letter, columns in known.items() if letter == "r" or letter in used}
        joins = "".join(f' left join "{table}{suffix}" {letter} on {on}' for letter, (table, on) in used.items())
        names = ", ".join(f'"{name}"' for name in self.columns)
        asked = (*self.columns.values(), self.where)
        *columns, where = (next((one for one in each if _holds(one, known)), "null") for each in asked)
        query = f"select {', '.join(columns)} from {{table}} r{joins} where {where} order by r.rowid"  # noqa: S608 - names of ours
        query = query.format(table=f'"{self.table}{suffix}"', text=f"* {texts[0]} + {texts[1]}")
        return f'insert or replace into temp."{self.into}" ({names}) {query}'


def _holds(text: str, known: Mapping[str, set[str]]) -> bool:
    """Return whether all columns that an expression names are there.

    >>> _holds('r."end" - e.start', {"r": {"end"}, "e": {"start"}}), _holds("s.name", {"r": {"name"}})
    (True, False)
    """
    return all(column in known.get(letter, ()) for letter, column in _COLUMN.findall(text))


_QUERIES: Final = msgspec.convert(table_beside(__file__, "rocpd.toml")["queries"], tuple[_Query, ...])
# By the names of the tables that they become.
_COLUMNS: Final = {query.into: tuple(query.columns) for query in _QUERIES}


def read_recording(source: FileSource, progress: Progress | None) -> Timeline:
    """Return the timeline of a database. Raises InputError where it is damaged or packed, or holds no recording."""
    return database.read_database(source, progress, Database, ROCPROF)


class Database(database.Database):
    """`Tables` over a database of rocpd."""

    again = _AGAIN
    reads_ahead = False

    def _plain_tables(self) -> list[str]:
        """Fill tables of Nsight Systems with the rows of each set, and return what they are called."""
        plain = {name: _TABLE.fullmatch(name) for name, own_rows in tables_in(self._connection).items() if own_rows}
        there = {name: columns_in(self._connection, name) for name, found in plain.items() if found}
        suffixes = sorted({found["suffix"] or "" for found in plain.values() if found and found[1] != "rocpd_string"})
        if not suffixes:
            what = "is a database of rocprofv3 (rocpd) of another layout than is known"
            raise InputError(what, where=Location(self.path), hint=_AGAIN)
        self._answer("pragma temp_store = memory")
        for name, own in _COLUMNS.items():
            columns = ", ".join(f'"{column}"' for column in own)
            self._answer(f'create temp table "{name}" ({columns}{", unique (id)" if name == nsys.GPU else ""})')
        for at, suffix in enumerate(suffixes):
            for query in _QUERIES:
                if query.table + suffix in there:
                    self._answer(query.text(suffix, there, texts=(2 * len(suffixes), 2 * at)))
        return list(_COLUMNS)
