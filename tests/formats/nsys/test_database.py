"""Large tables come through Arrow, small ones and odd ones row by row: both give the same."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.formats.nsys.make import Export, timeline
from tests.formats.nsys.test_schemas import recording, same
from tracemine.errors import InputError
from tracemine.formats import open_trace
from tracemine.formats.nsys import database, schema


@pytest.mark.parametrize("halved_rows", [2, 1_000_000])
def test_both_ways_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halved_rows: int) -> None:
    plain = timeline(tmp_path, recording())
    asked: list[bool] = []
    arrow_columns = database.Database.arrow_columns

    def watched(tables: database.Database, table: str) -> object:
        columns = arrow_columns(tables, table)
        if table in schema.LARGE:
            asked.append(columns is not None)
        return columns

    monkeypatch.setattr(database, "LARGE_ROWS", 0)
    monkeypatch.setattr(database, "_HALVED_ROWS", halved_rows)
    monkeypatch.setattr(database.Database, "arrow_columns", watched)
    assert same(timeline(tmp_path, recording()), plain)
    assert asked
    assert all(asked)


def test_values_that_are_no_numbers_are_counted_the_plain_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LARGE_ROWS", 0)
    export = Export().kernel(10, 20, 1, streamId="seven").kernel(30, 40, 2).kernel(50, 60, 3, gridX=2.5)
    t = timeline(tmp_path, export)
    assert t.activities["stream"].to_pylist() == [None, 7, 7]
    assert t.meta.ingest.repaired == {"value that is no integer, read as not recorded": 2}


def test_without_the_arrow_driver_everything_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = timeline(tmp_path, recording())
    monkeypatch.setattr(database, "LARGE_ROWS", 0)
    monkeypatch.setitem(sys.modules, "adbc_driver_sqlite", None)
    assert same(timeline(tmp_path, recording()), plain)


def test_damage_is_told_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export = Export()
    for at in range(3000):
        export.kernel(at * 10, at * 10 + 3, at + 1)
    path = export.write(tmp_path / "t.sqlite")
    path.write_bytes(path.read_bytes()[:100_000])
    monkeypatch.setattr(database, "LARGE_ROWS", 0)
    with pytest.raises(InputError, match="is a damaged SQLite database"):
        open_trace(path)


def test_progress_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    path = recording().write(tmp_path / "t.sqlite")
    open_trace(path, progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1] == (path.stat().st_size, path.stat().st_size)
