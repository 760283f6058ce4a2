"""What `runs` has already is found in the index, and the index may always be thrown away."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fleet.test_report import table
from tracemine.errors import InputError
from tracemine.fleet.dataset import RUNS, Dataset
from tracemine.fleet.known import Runs

MANY = 70  # from 64 on an index is written


def filled(folder: Path, first: int = 0, count: int = MANY) -> Dataset:
    dataset = Dataset(str(folder))
    for number in range(first, first + count):
        row = {"key": f"{number:032}", "generation": 1, "uri": f"a/{number}", "size_bytes": number, "status": "scanned"}
        dataset.write(f"2026-11-{1 + number % 3:02}", row["key"], {"runs": table(RUNS, [row])})
    return dataset


def uris(dataset: Dataset) -> list[str]:
    return sorted(dataset.known()["uri"].to_pylist())


def read_of(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the files that are read to say what is known."""
    read, own = list[str](), Runs._table

    def told(self: Runs, path: str, columns: Sequence[str]) -> pa.Table:
        read.append(path)
        return own(self, path, columns)

    with monkeypatch.context() as patch:
        patch.setattr(Runs, "_table", told)
        dataset.known()
    return read


def test_the_index_is_one_file_and_stands_for_those_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = filled(tmp_path)
    assert len(read_of(dataset, monkeypatch)) == MANY
    (index,) = (tmp_path / "_known").iterdir()
    assert read_of(dataset, monkeypatch) == [str(index)]
    few, more = filled(tmp_path, MANY, 3), filled(tmp_path, MANY + 3, MANY)
    assert uris(few) == sorted(f"a/{k}" for k in range(2 * MANY + 3))
    (other,) = (tmp_path / "_known").iterdir()
    assert other != index and read_of(more, monkeypatch) == [str(other)]


def test_few_rows_are_read_and_no_index_is_written(tmp_path: Path) -> None:
    assert len(uris(filled(tmp_path, count=5))) == 5
    assert not (tmp_path / "_known").exists()


@pytest.mark.parametrize("content", [b"", b"PAR1", b"other columns"])
def test_an_index_that_is_damaged_or_gone_loses_nothing(tmp_path: Path, content: bytes) -> None:
    dataset = filled(tmp_path)
    uris(dataset)
    (index,) = (tmp_path / "_known").iterdir()
    index.write_bytes(content)
    if content == b"other columns":
        pq.write_table(pa.table({"file": ["a"]}), index)
    assert uris(dataset) == sorted(f"a/{k}" for k in range(MANY))
    assert not index.exists() and len(list((tmp_path / "_known").iterdir())) == 1


def test_calls_that_index_at_once_double_no_row(tmp_path: Path) -> None:
    dataset = filled(tmp_path)
    uris(dataset)
    (index,) = (tmp_path / "_known").iterdir()
    (tmp_path / "_known" / "other.parquet").write_bytes(index.read_bytes())
    assert uris(dataset) == sorted(f"a/{k}" for k in range(MANY))


def test_a_row_that_was_removed_is_not_known_any_more(tmp_path: Path) -> None:
    dataset = filled(tmp_path)
    uris(dataset)
    next((tmp_path / "runs").rglob(f"{3:032}.parquet")).unlink()
    assert "a/3" not in uris(dataset) and len(uris(dataset)) == MANY - 1


def test_a_damaged_row_is_named(tmp_path: Path) -> None:
    dataset = filled(tmp_path, count=3)
    next((tmp_path / "runs").rglob(f"{2:032}.parquet")).write_bytes(b"PAR1")
    with pytest.raises(InputError, match=f"{2:032}.parquet: cannot be read"):
        dataset.known()


def test_who_may_not_write_reads_what_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = filled(tmp_path)

    def refuse(*_: Any) -> None:
        raise OSError("read-only")

    monkeypatch.setattr(Dataset, "_write", refuse)
    assert len(uris(dataset)) == MANY and not (tmp_path / "_known").exists()


def test_readers_of_tables_do_not_see_the_index(tmp_path: Path) -> None:
    dataset = filled(tmp_path)
    uris(dataset)
    assert duckdb.read_parquet(f"{tmp_path}/runs/*/*.parquet").count("key").fetchall() == [(MANY,)]
    assert dataset.read(RUNS).num_rows == MANY
