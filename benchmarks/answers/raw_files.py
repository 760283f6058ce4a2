"""A trace's file as json or sqlite3 reads it: what tracemine's own sums are held against. No reader of tracemine's."""

from __future__ import annotations

import gzip
import json
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def opened(
    path: Path, parse_float: Callable[[str], Any] = float
) -> Iterator[dict[str, Any] | sqlite3.Connection | None]:
    """Hold what a file, or the trace in a folder, says: JSON with events, or SQLite; None: it is neither."""
    if path.is_dir():
        path = next((one for one in (path / "trace.json.gz", path / "trace.json") if one.exists()), path)
    data = b"" if path.is_dir() else path.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    if data[:6] != b"SQLite":
        yield _events(data, parse_float)
        return
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as file:
        file.write(data)
        file.flush()
        with closing(sqlite3.connect(file.name)) as connection:
            yield connection


def _events(data: bytes, parse_float: Callable[[str], Any]) -> dict[str, Any] | None:
    try:
        whole = json.loads(data.decode("utf-8", "replace"), strict=False, parse_float=parse_float)
    except ValueError:
        return None
    return whole if isinstance(whole, dict) and isinstance(whole.get("traceEvents"), list) else None


def tables_of(connection: sqlite3.Connection) -> set[str]:
    """Names of the tables of a database."""
    return {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
