"""A timeline directory is input too: damage in it is an error of one line, never a crash further on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.timelines import Trace
from tracemine.errors import TimelineError
from tracemine.formats import open_trace


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    trace = Trace()
    step = trace.step(0, 5000)
    frame = trace.frame("train.py(12): step")
    for start in (1000, 2000, 3000):
        trace.kernel("k", start, 500, launch=(start - 100, 50), op="aten::add", step_row=step, stack=frame)
    trace.timeline().write(tmp_path / "timeline")
    return tmp_path / "timeline"


def change(directory: Path, table: str, column: str, alter: Callable[[list[Any]], list[Any]]) -> None:
    path = directory / f"{table}.parquet"
    rows = pq.ParquetFile(path).read()
    at = rows.schema.get_field_index(column)
    values = pa.array(alter(rows.column(column).to_pylist()), rows.schema.field(at).type)
    pq.write_table(rows.set_column(at, rows.schema.field(at), values), path)


def test_what_was_written_is_read(directory: Path) -> None:
    assert open_trace(directory).activities.num_rows == 3


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("activities", "op_row"),
        ("activities", "launch_row"),
        ("activities", "step_row"),
        ("ops", "parent_row"),
        ("ops", "stack_row"),
        ("api", "op_row"),
        ("stacks", "parent_row"),
    ],
)
@pytest.mark.parametrize("row", [-1, 3, 2**62, 2**63 - 1, -(2**63) + 1])
def test_a_row_number_beyond_its_table_is_refused(directory: Path, table: str, column: str, row: int) -> None:
    change(directory, table, column, lambda values: [row] * len(values))
    with pytest.raises(TimelineError, match=f"{table}.parquet: is damaged: {column} holds a number that is no row of"):
        open_trace(directory)


@pytest.mark.parametrize(
    ("column", "alter", "said"),
    [
        ("dur_ns", lambda values: [-1 for _ in values], "dur_ns holds what is no time"),
        ("dur_ns", lambda values: [2**62 for _ in values], "dur_ns holds what is no time"),
        ("start_ns", lambda values: [-(2**63) for _ in values], "start_ns holds what is no time"),
        ("start_ns", lambda values: values[::-1], "its rows are not in order of start"),
    ],
)
def test_times_that_are_none_are_refused(
    directory: Path, column: str, alter: Callable[[list[Any]], list[Any]], said: str
) -> None:
    change(directory, "activities", column, alter)
    with pytest.raises(TimelineError, match=said):
        open_trace(directory)


def test_a_table_of_equal_rows_is_not_inflated_without_bound(directory: Path) -> None:
    path = directory / "memory.parquet"
    schema = pq.read_schema(path)
    row = {field.name: None if field.nullable else 1 for field in schema}
    part = pa.concat_tables([pa.Table.from_pylist([row], schema=schema)] * 100_000).combine_chunks()
    with pq.ParquetWriter(path, schema, compression="zstd") as out:
        for _ in range(30):
            out.write_table(part)
    with pytest.raises(TimelineError, match=r"memory\.parquet inflates to more than 200 times its size"):
        open_trace(directory)


def test_a_meta_file_that_is_no_text_is_refused(directory: Path) -> None:
    path = directory / "meta.json"
    path.write_bytes(path.read_bytes().replace(b"test.json", b"te\xfft.json"))
    with pytest.raises(TimelineError, match="is not a readable timeline"):
        open_trace(directory)
