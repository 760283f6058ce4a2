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
from tracemine.fleet.dataset import RUNS, Dataset, Generation
from tracemine.fleet.known import Runs, run_key, unread

MANY = 70  # from 64 on an index is written


GENERATION = Generation(digest="0123456789abcdef", tracemine="0", options={})


def day_of(number: int) -> str:
    return f"2026-11-{1 + number % 3:02}"


def key_of(number: int) -> str:
    return run_key(f"a/{number}", day_of(number), unread(number, None), GENERATION.digest)


def filled(folder: Path, first: int = 0, count: int = MANY) -> Dataset:
    dataset = Dataset(str(folder))
    dataset.begin(GENERATION)
    for number in range(first, first + count):
        key = key_of(number)
        row = {"key": key, "generation": 1, "uri": f"a/{number}", "size_bytes": number, "status": "scanned"}
        dataset.write(day_of(number), key, {"runs": table(RUNS, [row])})
    return dataset


def uris(dataset: Dataset) -> list[str]:
    return sorted(dataset.known()["uri"].to_pylist())


def read_of(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the files that are read to say what is known."""
    read, own = list[str](), Runs._table

    def told(self: Runs, name: str, columns: Sequence[str]) -> pa.Table:
        read.append(name)
        return own(self, name, columns)

    with monkeypatch.context() as patch:
        patch.setattr(Runs, "_table", told)
        dataset.known()
    return read


def test_the_index_is_one_file_and_stands_for_those_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = filled(tmp_path)
    assert len(read_of(dataset, monkeypatch)) == MANY
    (index,) = (tmp_path / "_known").iterdir()
    assert read_of(dataset, monkeypatch) == [f"_known/{index.name}"]
    few, more = filled(tmp_path, MANY, 3), filled(tmp_path, MANY + 3, MANY)
    assert uris(few) == sorted(f"a/{k}" for k in range(2 * MANY + 3))
    (other,) = (tmp_path / "_known").iterdir()
    assert other != index and read_of(more, monkeypatch) == [f"_known/{other.name}"]


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
    next((tmp_path / "runs").rglob(f"{key_of(3)}.parquet")).unlink()
    assert "a/3" not in uris(dataset) and len(uris(dataset)) == MANY - 1


def test_a_damaged_row_is_named(tmp_path: Path) -> None:
    dataset = filled(tmp_path, count=3)
    next((tmp_path / "runs").rglob(f"{key_of(2)}.parquet")).write_bytes(b"PAR1")
    with pytest.raises(InputError, match=f"{key_of(2)}.parquet: cannot be read"):
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
