"""A timeline is written whole or not at all, is read back as it was, and says no to anything that is not one."""

from __future__ import annotations

import errno
import json
import os
import string
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tracemine.errors import TimelineError, UsageError
from tracemine.findings.tables import FINDINGS, OCCURRENCES
from tracemine.timeline import (
    EDGES,
    SCHEMA_VERSION,
    TABLES,
    ColumnSchema,
    IngestReport,
    Meta,
    RecordedDevice,
    TableSchema,
    Timeline,
)

META = Meta(tracemine_version="0", source="t.json", format="kineto")

_STEPS = pa.Table.from_pylist(
    [{"name": f"step {i}", "start_ns": i, "dur_ns": 1} for i in range(3)], schema=TABLES["steps"].schema
)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


def _values(column: ColumnSchema) -> st.SearchStrategy[Any]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        values: st.SearchStrategy[Any] = _TEXT
    elif pa.types.is_fixed_size_list(kind):
        values = st.lists(st.integers(0, 2**31 - 1), min_size=3, max_size=3)
    elif pa.types.is_list(kind):
        values = st.lists(st.integers(0, 2**62), max_size=3)
    elif pa.types.is_boolean(kind):
        values = st.booleans()
    elif pa.types.is_floating(kind):
        values = st.floats(width=32, allow_nan=False)
    else:
        values = st.integers(-(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1)
    return values if column.null is None else st.none() | values


def _rows(table: TableSchema) -> st.SearchStrategy[pa.Table]:
    row = st.fixed_dictionaries({column.name: _values(column) for column in table.columns})
    return st.lists(row, max_size=4).map(lambda rows: pa.Table.from_pylist(rows, schema=table.schema))


_COUNTS = st.dictionaries(_TEXT, st.integers(0, 2**53), max_size=2)
_METAS = st.builds(
    Meta,
    tracemine_version=_TEXT,
    source=_TEXT,
    format=st.just("kineto"),
    producer=st.none() | _TEXT,
    devices=st.lists(st.builds(RecordedDevice, ordinal=st.integers(0, 9), name=st.none() | _TEXT), max_size=2).map(
        tuple
    ),
    rank=st.none() | st.integers(0, 9),
    record_shapes=st.none() | st.booleans(),
    versions=st.dictionaries(_TEXT, _TEXT, max_size=2),
    ingest=st.builds(IngestReport, events=_COUNTS, dropped=_COUNTS, warnings=st.lists(_TEXT, max_size=2).map(tuple)),
)
_TIMELINES = st.builds(Timeline, meta=_METAS, **{name: _rows(table) for name, table in TABLES.items()})


def _facts(timeline: Timeline) -> dict[str, Any]:
    return {name: getattr(timeline, name).to_pylist() for name in TABLES} | {"meta": timeline.meta}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(timeline=_TIMELINES)
def test_what_is_written_is_read_back_equal(timeline: Timeline, tmp_path: Path) -> None:
    timeline.write(tmp_path / "out")
    again = Timeline.read(tmp_path / "out")
    assert _facts(again) == _facts(timeline)
    assert [getattr(again, name).schema for name in TABLES] == [table.schema for table in TABLES.values()]


def test_a_table_of_many_row_groups_is_read_back_as_one_chunk(tmp_path: Path) -> None:
    Timeline(meta=META).write(tmp_path / "out")
    steps = pa.Table.from_pylist(
        [{"name": f"step {i}", "start_ns": i, "dur_ns": 1} for i in range(5)], schema=TABLES["steps"].schema
    )
    pq.write_table(steps, tmp_path / "out" / "steps.parquet", row_group_size=2)
    again = Timeline.read(tmp_path / "out").steps
    assert again.column("name").num_chunks == 1
    assert again.column("name").to_pylist() == [f"step {i}" for i in range(5)]


def test_every_table_on_disk_has_its_row_numbers_and_activities_their_short_names(tmp_path: Path) -> None:
    names = ["void at::native::elementwise_kernel<128, 4, at::native::CUDAFunctor_add<float>>(int)", "Memset (Device)"]
    rows = [{"kind": "kernel", "name": name, "start_ns": i, "dur_ns": 1} for i, name in enumerate(names)]
    rows = [row | {"unowned_reason": "no_host_events"} for row in rows]
    timeline = Timeline(meta=META, activities=pa.Table.from_pylist(rows, schema=TABLES["activities"].schema))
    timeline.write(tmp_path / "out")
    for name in TABLES:
        stored = pq.ParquetFile(tmp_path / "out" / f"{name}.parquet").read()
        assert stored.column_names[0] == "row"
        assert stored["row"].to_pylist() == list(range(getattr(timeline, name).num_rows))
        assert stored.schema.field("row").type == pa.int64()  # as the columns that it is joined with
        assert stored.cast(timeline.table(name).schema) == timeline.table(name)
    activities = pq.ParquetFile(tmp_path / "out" / "activities.parquet").read()
    assert activities["short_name"].to_pylist() == ["elementwise_kernel (add)", "Memset (Device)"]
    assert activities["name"].to_pylist() == names
    with pytest.raises(UsageError, match="a timeline has no table 'kernels'"):
        timeline.table("kernels")


def test_row_numbers_on_disk_are_not_believed(tmp_path: Path) -> None:
    Timeline(meta=META, steps=_STEPS).write(tmp_path / "out")
    path = tmp_path / "out" / "steps.parquet"
    stored = pq.ParquetFile(path).read()
    pq.write_table(stored.set_column(0, "row", pa.array(["x"] * stored.num_rows)), path)
    assert Timeline.read(tmp_path / "out").steps == _STEPS


@pytest.mark.parametrize(("version", "without"), [(4, ("derived", "added")), (5, ("added",)), (6, ("light",))])
def test_a_timeline_of_an_older_schema_is_read_and_becomes_one_of_now(
    tmp_path: Path, version: int, without: tuple[str, ...]
) -> None:
    Timeline(meta=META, steps=_STEPS).write(tmp_path / "out")
    (tmp_path / "out" / "light.parquet").unlink()
    for name in [name for name in TABLES if name != "light" and version < 6]:
        path = tmp_path / "out" / f"{name}.parquet"
        stored = pq.ParquetFile(path).read()
        gone = [c.name for c in TABLES[name].derived] if "derived" in without else []
        gone += {"api": ["before_stack_row"], "ops": ["since_stack_row"]}.get(name, [])
        pq.write_table(stored.drop_columns(gone), path)
    about = tmp_path / "out" / "meta.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {"schema_version": version}))
    timeline = Timeline.read(tmp_path / "out")
    assert timeline.steps == _STEPS
    timeline.write(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "meta.json").read_text())["schema_version"] == SCHEMA_VERSION


def test_tables_of_findings_are_replaced_with_the_timeline_that_they_join(tmp_path: Path) -> None:
    found = [(FINDINGS, FINDINGS.schema.empty_table()), (OCCURRENCES, OCCURRENCES.schema.empty_table())]
    Timeline(meta=META).write(tmp_path / "out", found=found)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"findings.parquet", "occurrences.parquet"} <= names
    Timeline(meta=META).write(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == names - {"findings.parquet", "occurrences.parquet"}


def test_a_folder_named_like_a_partition_adds_no_column(tmp_path: Path) -> None:
    Timeline(meta=META).write(tmp_path / "job=7" / "out")
    assert Timeline.read(tmp_path / "job=7" / "out").steps.num_rows == 0


def _fail_at(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write = pq.write_table

    def failing(rows: pa.Table, where: Any, **options: Any) -> None:
        if Path(where.name).name == f"{table}.parquet":
            raise OSError(28, "No space left on device")
        write(rows, where, **options)

    monkeypatch.setattr(pq, "write_table", failing)


@pytest.mark.parametrize("table", TABLES)
def test_a_write_that_fails_leaves_nothing(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_at(table, monkeypatch)
    with pytest.raises(UsageError) as caught:
        Timeline(meta=META).write(tmp_path / "out")
    assert str(caught.value) == (
        f"{tmp_path / 'out'}: cannot be written: No space left on device\n"
        "  hint: make room there, or name another place"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_the_older_timeline_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Timeline(meta=META).write(tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    _fail_at("stacks", monkeypatch)
    with pytest.raises(UsageError, match="No space left"):
        Timeline(meta=META).write(tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_rename_that_fails_brings_the_older_timeline_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Timeline(meta=META).write(tmp_path / "out")
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if target == tmp_path / "out" and self.name != "old":
            raise OSError(13, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(UsageError, match="out: cannot be written: Permission denied"):
        Timeline(meta=META).write(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert Timeline.read(tmp_path / "out").meta == META


def test_a_newer_timeline_replaces_the_older_one_whole(tmp_path: Path) -> None:
    Timeline(meta=META).write(tmp_path / "out", edges=EDGES.schema.empty_table())
    newer = Meta(tracemine_version="1", source="u.json", format="kineto")
    Timeline(meta=newer).write(tmp_path / "out")
    assert Timeline.read(tmp_path / "out").meta == newer
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert not (tmp_path / "out" / "edges.parquet").exists()


@pytest.mark.parametrize(
    ("others", "said"),
    [(["notes.txt"], "notes.txt"), (["a", "b", "ops.parquet.bak", "results"], "a, b, ops.parquet.bak, … (4)")],
)
def test_a_timeline_beside_which_others_lie_is_left_alone(tmp_path: Path, others: list[str], said: str) -> None:
    Timeline(meta=META).write(tmp_path / "out")
    for name in others:
        (tmp_path / "out" / name).write_text("mine")
    with pytest.raises(TimelineError) as caught:
        Timeline(meta=Meta(tracemine_version="1", source="u.json", format="kineto")).write(tmp_path / "out")
    assert str(caught.value) == (
        f"{tmp_path / 'out'}: holds what no ingest wrote, so it is left alone: {said}\n"
        "  hint: move it away, or choose another directory with -o"
    )
    assert Timeline.read(tmp_path / "out").meta == META
    assert all((tmp_path / "out" / name).read_text() == "mine" for name in others)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_link_in_the_place_of_a_table_is_left_alone(tmp_path: Path) -> None:
    Timeline(meta=META).write(tmp_path / "out")
    (tmp_path / "out" / "ops.parquet").rename(tmp_path / "elsewhere")
    (tmp_path / "out" / "ops.parquet").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TimelineError, match=r"left alone: ops\.parquet"):
        Timeline(meta=META).write(tmp_path / "out")


@pytest.mark.parametrize("before", ["a timeline", "empty", "nothing"])
def test_a_link_keeps_pointing_to_the_timeline_that_is_written(tmp_path: Path, before: str) -> None:
    real, link = tmp_path / "real", tmp_path / "links" / "link"
    link.parent.mkdir()
    link.symlink_to(Path("..") / "real")
    if before == "empty":
        real.mkdir()
    elif before == "a timeline":
        Timeline(meta=META).write(real)
    newer = Meta(tracemine_version="1", source="u.json", format="kineto")
    Timeline(meta=newer).write(link)
    assert link.is_symlink()
    assert Timeline.read(real).meta == newer
    assert sorted(path.name for path in tmp_path.rglob("*") if path.suffix not in (".parquet", ".json")) == [
        "link",
        "links",
        "real",
    ]


def test_a_loop_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UsageError, match="loop: is a link that leads back to itself"):
        Timeline(meta=META).write(tmp_path / "loop")


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_timeline_is_readable_to_those_whom_the_umask_lets(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        Timeline(meta=META).write(tmp_path / "out")
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o777 & ~mask
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()} == {0o666 & ~mask}


def test_a_name_that_is_not_text_is_written_and_read_all_the_same(tmp_path: Path) -> None:
    out = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    for name in ("steps of \udcff.json", None):
        meta = Meta(tracemine_version="0", source="\udcff.json", format="kineto", execution_trace=name)
        Timeline(meta=meta).write(out)
        assert Timeline.read(out).meta == meta
    assert meta.source == "?.json"
    (out / "ops.parquet").unlink()
    with pytest.raises(TimelineError, match="is not a readable timeline"):
        Timeline.read(out)


def test_a_timeline_may_have_a_name_as_long_as_the_system_lets_it(tmp_path: Path) -> None:
    out = tmp_path / ("a" * 255)
    for _ in range(2):
        Timeline(meta=META).write(out)
    assert Timeline.read(out).meta == META


@pytest.mark.parametrize("there", ["a timeline", "empty"])
def test_the_current_directory_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    if there == "a timeline":
        Timeline(meta=META).write(out)
    held = sorted(path.name for path in out.iterdir())
    monkeypatch.chdir(out)
    for named in (Path(), out):
        with pytest.raises(TimelineError) as caught:
            Timeline(meta=META).write(named)
        assert str(caught.value) == (
            f"{named}: is the current directory, which cannot be replaced\n  hint: choose another directory with -o"
        )
    assert sorted(path.name for path in out.iterdir()) == held
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    Timeline(meta=META).write(Path("deeper"))
    assert Timeline.read(out / "deeper").meta == META


def test_a_folder_that_may_not_be_written_to_is_said_with_the_name_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(UsageError) as caught:
        Timeline(meta=META).write(tmp_path / "out")
    assert str(caught.value) == (
        f"{tmp_path / 'out'}: cannot be written: Read-only file system\n  hint: name a place that may be written to"
    )


def test_what_is_written_while_another_writes_waits_for_it_and_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, rename = tmp_path / "out", Path.rename
    Timeline(meta=META).write(out)
    versions = [Meta(tracemine_version=version, source="t.json", format="kineto") for version in ("first", "second")]
    ended: list[str] = []

    def written(meta: Meta) -> None:
        Timeline(meta=meta).write(out)
        ended.append(meta.tracemine_version)

    other = threading.Thread(target=written, args=versions[1:])

    def slowly(self: Path, target: Path) -> Path:
        found = rename(self, target)
        if self == out and other.ident is None:  # the older one is away, the newer not yet there
            other.start()
            other.join(0.5)
        return found

    monkeypatch.setattr(Path, "rename", slowly)
    written(versions[0])
    other.join()
    assert ended == ["first", "second"]
    assert Timeline.read(out).meta == versions[1]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_interrupt_while_the_older_timeline_is_deleted_leaves_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Timeline(meta=META).write(tmp_path / "out")
    unlink, deleted = os.unlink, []

    def interrupted(*given: Any, **named: Any) -> None:
        deleted.append(given)
        if len(deleted) == 3:
            raise KeyboardInterrupt
        unlink(*given, **named)

    monkeypatch.setattr(os, "unlink", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Timeline(meta=META).write(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert Timeline.read(tmp_path / "out").meta == META


def test_a_directory_that_is_no_timeline_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("1")
    with pytest.raises(TimelineError, match="not a timeline directory") as caught:
        Timeline(meta=META).write(tmp_path / "thesis")
    assert str(tmp_path / "thesis") in str(caught.value)
    assert (tmp_path / "thesis" / "chapter").read_text() == "1"


def test_a_file_in_the_way_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(TimelineError, match="not a timeline directory"):
        Timeline(meta=META).write(tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize("damage", ["meta.json", "ops.parquet"])
@pytest.mark.parametrize("content", [None, b"", b"{", b"PAR1 but not really PAR1"])
def test_a_damaged_timeline_says_which_and_what_to_do(damage: str, content: bytes | None, tmp_path: Path) -> None:
    Timeline(meta=META).write(tmp_path / "out")
    (tmp_path / "out" / damage).unlink()
    if content is not None:
        (tmp_path / "out" / damage).write_bytes(content)
    with pytest.raises(TimelineError, match="hint: ingest the profiler's export again") as caught:
        Timeline.read(tmp_path / "out")
    assert str(tmp_path / "out") in str(caught.value)


def test_another_schema_version_is_refused_before_anything_else_is_read(tmp_path: Path) -> None:
    Timeline(meta=META).write(tmp_path / "out")
    (tmp_path / "out" / "meta.json").write_text(json.dumps({"schema_version": 99, "source": ["of another kind"]}))
    with pytest.raises(TimelineError, match="schema version 99"):
        Timeline.read(tmp_path / "out")


def test_a_table_on_disk_without_a_column_is_refused_with_its_place(tmp_path: Path) -> None:
    Timeline(meta=META).write(tmp_path / "out")
    path = tmp_path / "out" / "steps.parquet"
    pq.write_table(pq.ParquetFile(path).read().drop_columns(["number"]), path)
    with pytest.raises(TimelineError, match="missing columns \\['number'\\]") as caught:
        Timeline.read(tmp_path / "out")
    assert str(tmp_path / "out") in str(caught.value)


def test_a_column_of_another_type_is_refused_by_name() -> None:
    schema = TABLES["steps"].schema
    wrong = schema.set(schema.get_field_index("dur_ns"), pa.field("dur_ns", pa.float64()))
    with pytest.raises(TimelineError, match="table steps, column dur_ns: double instead of int64"):
        Timeline(meta=META, steps=wrong.empty_table())


def test_a_null_where_none_may_be_is_refused_by_name() -> None:
    schema = pa.schema([field.with_nullable(True) for field in TABLES["steps"].schema])
    with pytest.raises(TimelineError, match="column dur_ns: 1 nulls where none may be"):
        Timeline(meta=META, steps=pa.Table.from_pylist([{"name": "s", "start_ns": 1}], schema=schema))


def test_every_column_says_what_it_holds_and_in_which_unit() -> None:
    for table in TABLES.values():
        for column in table.columns:
            assert column.says, f"{table.name}.{column.name}"
            assert set(column.name) <= set(string.ascii_lowercase + string.digits + "_")
            if column.name.endswith("_ns"):
                assert "nanoseconds" in column.says


def test_an_empty_directory_is_taken(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    timeline = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    timeline.write(tmp_path / "out")
    assert Timeline.read(tmp_path / "out").meta == timeline.meta
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
