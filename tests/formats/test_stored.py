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
from tracemine.flow import flow
from tracemine.formats import open_trace
from tracemine.fusion import groups


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
        ("api", "before_stack_row"),
        ("ops", "since_stack_row"),
        ("stacks", "parent_row"),
    ],
)
@pytest.mark.parametrize("row", [-1, 3, 2**62, 2**63 - 1, -(2**63) + 1, -(2**63)])
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


@pytest.fixture
def with_tensors(tmp_path: Path) -> Path:
    open_trace(Path(__file__).parents[2] / "fixtures" / "captures" / "chain").write(tmp_path / "timeline")
    return tmp_path / "timeline"


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("position", -1, "position holds a negative number"),
        ("position", -(2**31), "position holds a negative number"),
        ("list_index", -1, "list_index holds a negative number"),
        ("numel", 2**63 - 1, "numel holds more than can be"),
        ("numel", -(2**63), "numel holds more than can be"),
        ("offset_elements", 2**62, "offset_elements holds more than can be"),
        ("itemsize_bytes", 2**63 - 1, "itemsize_bytes holds more than can be"),
    ],
)
def test_positions_and_sizes_that_cannot_be_are_refused(with_tensors: Path, column: str, value: int, said: str) -> None:
    change(with_tensors, "tensors", column, lambda values: [*values[:-1], value])
    with pytest.raises(TimelineError, match=f"tensors.parquet: is damaged: {said}"):
        open_trace(with_tensors)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [2**62 - 1, 2**45, -5, 0])
def test_sizes_that_no_gpu_holds_make_no_tensor_and_no_noise(with_tensors: Path, value: int) -> None:
    change(with_tensors, "tensors", "numel", lambda values: [value] * len(values))
    change(with_tensors, "tensors", "position", lambda values: [0] * len(values))  # as members of one list are summed
    groups(flow(open_trace(with_tensors)))


def with_first(text: str) -> Callable[[list[Any]], list[Any]]:
    return lambda values: [text, *values[1:]]


@pytest.mark.parametrize("column", ["input_shapes", "input_dtypes", "input_strides", "concrete_inputs"])
def test_json_that_nests_more_deeply_than_any_traces_is_refused(with_tensors: Path, column: str) -> None:
    for text in ("[" * 3000, "[" * 101 + "]" * 101, '{"a":' * 3000):
        change(with_tensors, "ops", column, with_first(text))
        with pytest.raises(TimelineError, match=f"ops.parquet: is damaged: {column} holds JSON that is nested more"):
            open_trace(with_tensors)
    for text in ("[" + "[[4,8]]," * 3000 + "[]]", '["' + "[" * 3000 + '"]', "[" * 50 + "]" * 50):
        change(with_tensors, "ops", column, with_first(text))
        groups(flow(open_trace(with_tensors)))


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
