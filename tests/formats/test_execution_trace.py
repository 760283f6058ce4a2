"""Execution traces: both layouts, what is wrong in real files, how they join, and what is no execution trace."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.formats.kineto_file import BASE_NS, Event, call, kernel, op
from tracemine.errors import InputError
from tracemine.formats import open_trace
from tracemine.formats.execution_trace.read import read
from tracemine.formats.execution_trace.trace import ExecutionTrace
from tracemine.formats.source import FileSource
from tracemine.timeline import Timeline

CHAIN = Path(__file__).parents[2] / "fixtures" / "captures" / "chain"
PID = 7  # of kineto_file's events

RELU = "aten::relu(Tensor self) -> Tensor"
X = [1, 2, 0, 8, 4, "cuda:0"]
Y = [3, 4, 16, 8, 4, "cuda:0"]

Node = dict[str, Any]


def side(*arguments: tuple[Any, Any, str, Any]) -> dict[str, Any]:
    """Inputs or outputs from (value, shape, type, strides)."""
    columns = [list(column) for column in zip(*arguments, strict=True)] or [[], [], [], []]
    return dict(zip(("values", "shapes", "types", "strides"), columns, strict=True))


def node(number: int, name: str = "aten::relu", rf: int | None = None, **parts: Any) -> Node:
    """A node in the layout since torch 2.2: x in, y out."""
    attributes = {"rf_id": number if rf is None else rf, "tid": parts.pop("tid", 1), "op_schema": RELU}
    return {
        "id": number,
        "name": name,
        "ctrl_deps": 1,
        "inputs": parts.get("inputs", side((X, [2, 4], "Tensor(float)", [4, 1]))),
        "outputs": parts.get("outputs", side((Y, [8], "Tensor(float)", [1]))),
        "attrs": [{"name": key, "type": "uint64", "value": value} for key, value in attributes.items()],
    }


def flat(number: int, name: str = "aten::relu") -> Node:
    """The same in the layout of torch 1.13 to 2.1."""
    return {
        "name": name,
        "id": number,
        "rf_id": number,
        "parent": 1,
        "tid": 1,
        "op_schema": RELU,
        "inputs": [X],
        "input_shapes": [[2, 4]],
        "input_types": ["Tensor(float)"],
        "outputs": [Y],
        "output_shapes": [[8]],
        "output_types": ["Tensor(float)"],
    }


def text(*nodes: Node | str, schema: str = "1.1.1-chakra.0.0.4", between: str = ",\n    ") -> str:
    """A file as PyTorch lays it out; a node may be text."""
    inner = between.join(one if isinstance(one, str) else json.dumps(one) for one in nodes)
    return f'{{\n  "schema": "{schema}", "pid": {PID}, "nodes": [\n    {inner}\n  ],\n  "finish_ts": 5\n}}\n'


def read_text(folder: Path, content: str | bytes, **options: Any) -> ExecutionTrace:
    path = folder / "et.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with FileSource(path) as source:
        return read(source, **options)


def names(trace: ExecutionTrace) -> list[str]:
    return [trace.strings[name] for name in trace.nodes["name"].tolist()]


def joined(folder: Path, content: str, *events: Event) -> Timeline:
    """A trace of these events, joined with an execution trace."""
    trace = folder / "trace.json"
    trace.write_text(json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS, "traceEvents": list(events)}))
    (folder / "et.json").write_text(content)
    return open_trace(trace, execution_trace=folder / "et.json")


def launched(number: int, start: int, name: str = "aten::relu", **arguments: Any) -> list[Event]:
    """An operator with one kernel; its record function id is `number` unless it says otherwise."""
    arguments = {"Record function id": number} | arguments
    return [
        op(name, start, start + 10, args=arguments),
        call("cudaLaunchKernel", start + 2, start + 4, number),
        kernel("k", start + 20, start + 25, number),
    ]


def test_a_tensor_is_kept_with_everything_that_is_recorded_of_it(tmp_path: Path) -> None:
    timeline = joined(tmp_path, text(node(5)), *launched(5, 0))
    assert timeline.ops.column("execution_node_id").to_pylist() == [5]
    assert timeline.ops.column("op_schema").to_pylist() == [RELU]
    assert timeline.meta.execution_trace == "et.json"
    given = {"op_row": 0, "position": 0, "list_index": None, "numel": 8, "itemsize_bytes": 4, "device": "cuda:0"}
    given["dtype"] = "float"
    taken = {"is_output": False, "tensor_id": 1, "storage_id": 2, "offset_elements": 0}
    made = {"is_output": True, "tensor_id": 3, "storage_id": 4, "offset_elements": 16}
    assert timeline.tensors.to_pylist() == [
        given | taken | {"shape": [2, 4], "strides": [4, 1]},
        given | made | {"shape": [8], "strides": [1]},
    ]


def test_the_old_layout_says_the_same_but_for_strides(tmp_path: Path) -> None:
    new = joined(tmp_path, text(node(5)), *launched(5, 0)).tensors
    old = joined(tmp_path, text(flat(5), schema="1.0.1"), *launched(5, 0)).tensors
    assert old.column("strides").to_pylist() == [None, None]
    assert old.drop_columns("strides").equals(new.drop_columns("strides"))


def test_lists_are_laid_out_flat_and_what_is_undefined_is_left_out(tmp_path: Path) -> None:
    nothing = [9, 0, 0, 0, 0, ""]
    of_list = "GenericList[Tensor(float),None,Tensor(nullptr (uninitialized)),Tensor(c10::Half)]"
    of_lists = "GenericList[GenericList[Tensor(float)],GenericList[Tensor(float)]]"
    inputs = side(
        ([X, "<None>", nothing, Y], [[8], [], [], [8]], of_list, [[1], [], [], [1]]),
        (2, [], "Int", []),
        ([[X], [Y]], [[[8]], [[8]]], of_lists, [[[1]], [[1]]]),
        ("<None>", [], "None", []),
    )
    tensors = joined(tmp_path, text(node(5, inputs=inputs, outputs=side())), *launched(5, 0)).tensors
    assert tensors.column("position").to_pylist() == [0, 0, 2, 2]
    assert tensors.column("list_index").to_pylist() == [0, 3, 0, 1]
    assert tensors.column("dtype").to_pylist() == ["float", "c10::Half", "float", "float"]
    assert tensors.column("storage_id").to_pylist() == [2, 4, 2, 4]


@pytest.mark.parametrize(
    "name",
    [
        'say "hi"',
        "C:\\path\\n",
        "two\nlines",
        'end"',
        '"',
        "\\",
        'a", "ctrl_deps": 3, "x": "b',
        "tab\there",
        "ümlaut \\u",
    ],
)
def test_a_name_that_was_not_escaped_is_read_and_counted(tmp_path: Path, name: str) -> None:
    raw = json.dumps(node(5, "NAME")).replace("NAME", name)
    places: tuple[list[dict[str, Any] | str], ...] = ([raw, node(6)], [node(6), raw])
    for place in places:
        trace = read_text(tmp_path, text(*place))
        found = [one for one in names(trace) if one != "aten::relu"]
        assert len(trace.nodes["id"]) == 2
        if "ctrl_deps" not in name:  # made to look like a key: then a part of the name is lost, and nothing else
            assert found == [name]
            assert trace.repaired
        assert not trace.dropped


@pytest.mark.parametrize("between", [" ", ",,", ", ,\n", ""])
def test_commas_that_are_missing_or_too_many_between_nodes_are_mended(tmp_path: Path, between: str) -> None:
    trace = read_text(tmp_path, text(node(5), node(6), node(7), between=between))
    assert trace.nodes["id"].tolist() == [5, 6, 7]
    assert trace.repaired["execution trace: comma repaired"] == 2


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('"shapes": [[2, 4]]', '"shapes": [,[2, 4]]'),
        ('"shapes": [[2, 4]]', '"shapes": [[2, 4],]'),
        ('4], "types"', '4] "types"'),
    ],
)
def test_commas_inside_a_node_are_mended(tmp_path: Path, right: str, wrong: str) -> None:
    raw = json.dumps(node(5)).replace("[[2, 4]]", "[[2, 4]]").replace(right, wrong)
    trace = read_text(tmp_path, text(raw.replace(', "types"', ' "types"') if "types" in right else raw, node(6)))
    assert trace.nodes["id"].tolist() == [5, 6]
    assert trace.sizes.tolist() == [2, 4, 8, 2, 4, 8]
    assert trace.repaired.total() == 1


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", "NaN", "Infinity"])
def test_a_bare_number_that_is_none_costs_nothing_else(tmp_path: Path, number: str) -> None:
    inputs = side((X, [8], "Tensor(float)", [1]), (12345, [], "Double", []))
    trace = read_text(tmp_path, text(json.dumps(node(5, inputs=inputs)).replace("12345", number), node(6)))
    assert len(trace.tensors["node"]) == 4
    assert trace.repaired.total() == 1


@pytest.mark.parametrize("ending", ["", ",", ",\n  ", "\n  ]", "\n  ],"])
def test_a_file_that_was_never_closed_keeps_all_its_nodes(tmp_path: Path, ending: str) -> None:
    whole = text(node(5), node(6))
    trace = read_text(tmp_path, whole[: whole.rindex("}\n  ]") + 1] + ending)
    assert trace.nodes["id"].tolist() == [5, 6]
    assert trace.truncated
    assert not trace.dropped


def test_a_node_that_is_cut_off_is_dropped_and_counted(tmp_path: Path) -> None:
    whole = text(node(5), node(6))
    trace = read_text(tmp_path, whole[: whole.rindex('"outputs"')])
    assert trace.nodes["id"].tolist() == [5]
    assert dict(trace.dropped) == {"execution trace: cut off by the end of the file": 1}
    assert trace.truncated


def test_a_node_that_cannot_be_mended_is_dropped_and_its_neighbours_are_not(tmp_path: Path) -> None:
    wrong = json.dumps(node(6)).replace('"inputs"', "}{ inputs")
    trace = read_text(tmp_path, text(node(5), wrong, node(7)))
    assert trace.nodes["id"].tolist() == [5, 7]
    assert dict(trace.dropped) == {"execution trace: not valid JSON": 1}


def test_how_the_file_is_cut_into_blocks_changes_nothing(tmp_path: Path) -> None:
    nodes = [node(number) for number in range(5, 500)]
    nodes[17]["name"] = "NAME"
    content = text(*nodes).replace("NAME", 'un"escaped')
    whole = read_text(tmp_path, content)
    assert len(content) > 3 * 65536
    for block_bytes in (1, 70_000, 100_003):
        trace = read_text(tmp_path, content, block_bytes=block_bytes)
        assert all((trace.tensors[key] == whole.tensors[key]).all() for key in whole.tensors)
        assert names(trace) == names(whole)
        assert trace.repaired == whole.repaired


def test_a_gzipped_file_is_read_as_a_plain_one(tmp_path: Path) -> None:
    plain = read_text(tmp_path, text(node(5)))
    assert names(read_text(tmp_path, gzip.compress(text(node(5)).encode()))) == names(plain)


@pytest.mark.parametrize(
    "value",
    [
        "[1, 2, 0, 8, 4]",
        '"<None>"',
        '[1, 2, 0, 99999999999999999999, 4, "cuda:0"]',
        '[1, 2, 0, 8.5, 4, "cuda:0"]',
        "null",
        "[]",
    ],
)
def test_a_tensor_that_is_none_is_left_out_and_counted(tmp_path: Path, value: str) -> None:
    trace = read_text(tmp_path, text(json.dumps(node(5)).replace(json.dumps(X), value)))
    assert trace.tensors["storage_id"].tolist() == [4]
    assert dict(trace.dropped) == {"execution trace: tensor that cannot be read": 1}


@pytest.mark.parametrize("shape", ['["a"]', "[99999999999999999999]", "[[1], [2]]", "[2.5]"])
def test_a_shape_that_is_none_takes_its_tensor_with_it_and_no_other(tmp_path: Path, shape: str) -> None:
    trace = read_text(tmp_path, text(node(4), json.dumps(node(5)).replace("[2, 4]", shape), node(6)))
    assert trace.tensors["node"].tolist() == [0, 0, 1, 2, 2]
    assert trace.sizes.tolist() == [2, 4, 8, 8, 2, 4, 8]


@pytest.mark.parametrize(
    "content",
    ['{"schemaVersion": 1, "traceEvents": []}', "[]", "{}", '{"schema": "1.0.1", "nodes": 3}', "hello", '{"nodes": ['],
)
def test_what_is_no_execution_trace_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError, match=r"no PyTorch execution trace|holds no node"):
        read_text(tmp_path, content)


def test_a_deep_nest_is_refused(tmp_path: Path) -> None:
    deep = json.dumps(node(5)).replace('"ctrl_deps": 1', '"ctrl_deps": ' + "[" * 100_000 + "]" * 100_000)
    with pytest.raises(InputError, match=r"nested more deeply|holds no"):
        read_text(tmp_path, text(deep))


def test_nodes_outside_the_window_are_counted_and_operators_without_a_node_are_said(tmp_path: Path) -> None:
    timeline = joined(tmp_path, text(node(5), node(6), node(8)), *launched(5, 0), *launched(7, 100))
    assert timeline.ops.column("execution_node_id").to_pylist() == [5, None]
    assert timeline.meta.ingest.skipped["execution trace: node outside the profiler's window"] == 2
    assert any(warning.startswith("1 of 2 activities") for warning in timeline.meta.ingest.warnings)


def test_ids_that_meet_under_other_names_are_another_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="another run: its operators have other names"):
        joined(tmp_path, text(node(5, "aten::mul"), node(6, "aten::add")), *launched(5, 0), *launched(6, 100))


def test_an_execution_trace_of_another_process_is_refused(tmp_path: Path) -> None:
    content = text(node(5)).replace(f'"pid": {PID}', '"pid": 8')
    with pytest.raises(InputError, match="was written by process 8"):
        joined(tmp_path, content, *launched(5, 0))


def test_without_ids_the_order_of_names_joins_where_there_is_one_way(tmp_path: Path) -> None:
    nodes = [node(5, "aten::mul", rf=1), node(6, "aten::add", rf=2), node(7, "aten::mul", rf=3)]
    none = {"Record function id": 0}
    both = [*launched(1, 0, "aten::mul", **none), *launched(2, 100, "aten::add", **none)]
    timeline = joined(tmp_path, text(*nodes), *both)
    assert timeline.ops.column("execution_node_id").to_pylist() == [5, 6]
    assert any("matched by their order, 2 of 2" in warning for warning in timeline.meta.ingest.warnings)
    twice = joined(tmp_path, text(*nodes), *launched(1, 0, "aten::mul", **none))
    assert twice.ops.column("execution_node_id").to_pylist() == [None]


def test_a_folder_with_a_trace_and_its_execution_trace_is_one_trace(tmp_path: Path) -> None:
    for name in ("trace.json.gz", "et.json.gz"):
        (tmp_path / name).write_bytes((CHAIN / name).read_bytes())
    (tmp_path / "capture.json").write_text("{}")
    whole = open_trace(tmp_path)
    both = open_trace(CHAIN / "trace.json.gz", execution_trace=CHAIN / "et.json.gz")
    assert whole.tensors.num_rows
    assert whole.tensors.equals(both.tensors)
    assert whole.ops.equals(both.ops)


def test_tensors_survive_on_disk_and_can_be_added_to_a_timeline_there(tmp_path: Path) -> None:
    both = open_trace(CHAIN / "trace.json.gz", execution_trace=CHAIN / "et.json.gz")
    both.write(tmp_path / "both")
    assert open_trace(tmp_path / "both").tensors.to_pylist() == both.tensors.to_pylist()
    open_trace(CHAIN / "trace.json.gz").write(tmp_path / "bare")
    later = open_trace(tmp_path / "bare", execution_trace=CHAIN / "et.json.gz")
    assert later.tensors.to_pylist() == both.tensors.to_pylist()


def test_what_stands_behind_its_gzip_data_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    shutil.copytree(CHAIN, folder)
    (folder / "et.json.gz").write_bytes((CHAIN / "et.json.gz").read_bytes() + b"junk")
    assert open_trace(folder).meta.ingest.warnings == (
        *open_trace(CHAIN).meta.ingest.warnings,
        "Behind the gzip data of et.json.gz stand 4 bytes that are none.",
    )
