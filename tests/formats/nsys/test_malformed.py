"""Damaged and strange exports: one line that says so, or what is readable, counted."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import pytest

from tests.formats.nsys.make import PROCESS, Export, timeline
from tests.formats.nsys.test_schemas import recording
from tracemine.errors import InputError
from tracemine.formats import open_trace


def big(path: Path) -> bytes:
    export = Export()
    for at in range(2000):
        export.call(at * 10, at * 10 + 3, at + 1).kernel(at * 10 + 5, at * 10 + 9, at + 1)
    return export.write(path).read_bytes()


@pytest.mark.parametrize("share", [0.001, 0.02, 0.3, 0.6, 0.97])
def test_a_database_that_is_cut_short_is_refused_in_one_line(tmp_path: Path, share: float) -> None:
    path = tmp_path / "t.sqlite"
    content = big(path)
    path.write_bytes(content[: max(40, int(len(content) * share))])
    with pytest.raises(InputError) as refused:
        open_trace(path)
    first, hint = str(refused.value).splitlines()
    assert first.startswith(f"{path}: is a damaged SQLite database")
    assert "copy it again" in hint


def test_a_damaged_page_is_refused_or_read_whole_and_never_a_bug(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    content = big(path)
    for at in range(100, len(content), 4096):
        path.write_bytes(content[:at] + b"\xff" * 64 + content[at + 64 :])
        try:
            t = open_trace(path)
        except InputError as refused:
            assert "is a damaged SQLite database" in str(refused)
        else:
            assert t.activities.num_rows == 2000


def test_another_database_and_a_packed_one_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("create table users (name)")
    database.close()
    with pytest.raises(InputError, match="is an SQLite database, but no Nsight Systems export"):
        open_trace(path)
    packed = tmp_path / "t.sqlite.gz"
    packed.write_bytes(gzip.compress(recording().write(tmp_path / "t.sqlite").read_bytes()))
    with pytest.raises(InputError, match="is a gzipped SQLite database"):
        open_trace(packed)


def test_a_text_id_without_a_text_says_its_number_and_is_counted(tmp_path: Path) -> None:
    export = Export().call(1, 2, 1, nameId=90).kernel(10, 20, 1, demangledName=77, shortName=78)
    t = timeline(tmp_path, export)
    assert t.activities["name"].to_pylist() == ["<string id 78>"]
    assert t.api["name"].to_pylist() == ["<string id 90>"]
    assert t.meta.ingest.repaired == {"text id without a text": 2}


def test_the_short_name_stands_in_for_a_demangled_one_that_has_no_text(tmp_path: Path) -> None:
    export = Export()
    export.kernel(10, 20, 1, demangledName=77, shortName=export.text("short"))
    t = timeline(tmp_path, export)
    assert t.activities["name"].to_pylist() == ["short"]
    assert t.meta.ingest.repaired == {}


def test_what_ends_before_it_starts_has_no_duration_and_is_counted(tmp_path: Path) -> None:
    export = Export().call(5, 2, 1).kernel(20, 10, 1).range("a", 9, 3)
    t = timeline(tmp_path, export)
    assert [t.activities["dur_ns"].to_pylist(), t.api["dur_ns"].to_pylist(), t.ops["dur_ns"].to_pylist()] == [[0]] * 3
    assert sum(t.meta.ingest.repaired.values()) == 3


def test_a_range_that_was_never_closed_is_dropped_and_counted(tmp_path: Path) -> None:
    t = timeline(tmp_path, Export().range("open", 0, None).range("closed", 1, 9))
    assert t.ops["name"].to_pylist() == ["closed"]
    assert t.meta.ingest.dropped == {"NVTX range that was never closed": 1}


def test_marks_and_domains_carry_no_row_and_are_counted(tmp_path: Path) -> None:
    t = timeline(tmp_path, Export().range("m", 0, None, eventType=34).range("NCCL", 0, None, eventType=75, domainId=1))
    assert t.ops.num_rows == 0
    assert t.meta.ingest.skipped == {"NVTX_EVENTS: domain": 1, "NVTX_EVENTS: mark": 1}


def test_a_value_that_is_no_number_is_not_recorded_and_counted(tmp_path: Path) -> None:
    export = Export().kernel(10, 20, 1, streamId="seven; drop table StringIds", gridX=1.5).kernel(30, 40, 2)
    t = timeline(tmp_path, export)
    assert t.activities["stream"].to_pylist() == [None, 7]
    assert t.activities["grid"].to_pylist() == [None, [4, 1, 1]]
    assert t.meta.ingest.repaired == {"value that is no integer, read as not recorded": 2}


def test_a_view_or_a_trigger_in_the_file_is_never_run(tmp_path: Path) -> None:
    path = recording().write(tmp_path / "t.sqlite")
    with sqlite3.connect(path) as database:
        database.execute("drop table CUPTI_ACTIVITY_KIND_KERNEL")
        database.execute(
            "create view CUPTI_ACTIVITY_KIND_KERNEL as with recursive r(i) as (select 1 union all select i + 1 from r) "
            "select i as start, i as end from r"
        )
    database.close()
    assert open_trace(path).activities.num_rows == 2


def test_names_with_quotes_are_text_and_nothing_else(tmp_path: Path) -> None:
    name = 'x"; drop table "StringIds"; --'
    folder = tmp_path / "a?b#c%20"
    folder.mkdir()
    t = timeline(folder, Export().kernel(10, 20, 1, name=name).range(name, 0, 5))
    assert t.activities["name"].to_pylist() == [name]
    assert t.ops["name"].to_pylist() == [name]


def test_the_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = recording().write(tmp_path / "t.sqlite")
    path.chmod(0o444)
    before = path.read_bytes()
    open_trace(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["t.sqlite"]


def test_rows_that_only_a_journal_holds_are_said_to_be_missing(tmp_path: Path) -> None:
    path = recording().write(tmp_path / "t.sqlite")
    (tmp_path / "t.sqlite-wal").write_bytes(b"something")
    assert "A write-ahead log lies next to the database" in " ".join(open_trace(path).meta.ingest.warnings)


def test_an_export_without_gpu_work_is_read_and_says_so(tmp_path: Path) -> None:
    t = timeline(tmp_path, Export().range("a", 0, 9))
    assert t.activities.num_rows == 0
    assert "No GPU activity was recorded" in " ".join(t.meta.ingest.warnings)


def test_times_that_are_no_times_are_counted(tmp_path: Path) -> None:
    export = Export().kernel(10, 20, 1).add("CUPTI_ACTIVITY_KIND_KERNEL", start=None, end=5, globalPid=PROCESS)
    t = timeline(tmp_path, export)
    assert t.activities.num_rows == 1
    assert t.meta.ingest.dropped == {"CUPTI_ACTIVITY_KIND_KERNEL: row without a start or an end": 1}


@pytest.mark.parametrize(("kind", "what"), [("parquetdir", "Parquet"), ("arrowdir", "Arrow")])
def test_a_table_that_is_cut_short_is_named(tmp_path: Path, kind: str, what: str) -> None:
    folder = recording().folder(tmp_path / "t", kind)
    (path,) = folder.glob("CUPTI_ACTIVITY_KIND_KERNEL.*")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match=f"CUPTI_ACTIVITY_KIND_KERNEL.*is a damaged {what} file"):
        open_trace(folder)


def test_a_table_that_is_a_view_or_virtual_is_named_and_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    path = recording().write(tmp_path / "t.sqlite")
    whole = open_trace(path)
    with sqlite3.connect(path) as database:
        database.execute("alter table CUPTI_ACTIVITY_KIND_KERNEL rename to kernels")
        database.execute("create view CUPTI_ACTIVITY_KIND_KERNEL as select * from kernels")
        database.execute("create view others as select * from kernels")
        database.execute("drop table CUPTI_ACTIVITY_KIND_MEMCPY")
        database.execute("create virtual table CUPTI_ACTIVITY_KIND_MEMCPY using fts5(start)")
    database.close()
    found = open_trace(path).meta.ingest.warnings
    said = "of CUPTI_ACTIVITY_KIND_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY nothing is known."
    assert [text for text in found if text.endswith(said)]
    assert not [text for text in whole.meta.ingest.warnings if "Views" in text]
