"""A database of a stranger, opened so that nothing is written, locked or executed on its behalf."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tracemine.errors import InputError, Location

MAGIC: Final = b"SQLite format 3\0"


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
