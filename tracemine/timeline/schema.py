"""Describe the tables of a timeline, schema.toml: columns, Arrow types, what each says, and what null means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import pyarrow as pa
from msgspec import Struct

from tracemine.tables import table_beside

_TYPES = {
    "text": pa.dictionary(pa.int32(), pa.string()),
    "int32[3]": pa.list_(pa.int32(), 3),
    "int64[3]": pa.list_(pa.int64(), 3),
    "int64[]": pa.list_(pa.int64()),
    "string[]": pa.list_(pa.string()),
}  # others by Arrow's own names


class ColumnSchema(Struct, frozen=True, cache_hash=True):
    """One column: its Arrow type, whether it may be null, what it says, and what null means."""

    name: str
    type: pa.DataType
    says: str
    null: str | None = None  # what an absent value means; None: the column is never null


class TableSchema(Struct, frozen=True):
    """One table of the timeline: what a row is, in which order the rows stand, and its columns."""

    name: str
    row: str
    order: str
    columns: tuple[ColumnSchema, ...]
    derived: tuple[ColumnSchema, ...] = ()  # in the files, before the others; never in memory

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema that every table of this name has.

        >>> TABLES["steps"].schema.names
        ['name', 'number', 'start_ns', 'dur_ns', 'pid', 'tid']
        """
        return _schema_of(self.columns)


@cache
def _schema_of(columns: tuple[ColumnSchema, ...]) -> pa.Schema:
    return pa.schema([pa.field(c.name, c.type, nullable=c.null is not None) for c in columns])


def tables_beside(module: str) -> dict[str, TableSchema]:
    """Return the tables that `schema.toml` next to a module describes, by name.

    >>> tables_beside(__file__)["steps"].columns[0].name
    'name'
    """
    return {
        name: TableSchema(
            name, table["row"], table["order"], _columns(table["columns"]), _columns(table.get("derived", ()))
        )
        for name, table in table_beside(module, "schema.toml").items()
    }


def _columns(rows: Iterable[Sequence[str]]) -> tuple[ColumnSchema, ...]:
    return tuple(ColumnSchema(name, _TYPES.get(kind) or pa.type_for_alias(kind), *says) for name, kind, *says in rows)


TABLES = tables_beside(__file__)
EDGES, COUNTERS = TABLES.pop("edges"), TABLES.pop("counters")
ROW = TABLES["activities"].derived[0]  # a row's own number
