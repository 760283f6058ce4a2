"""Allocations and frees of a Kineto trace in the timeline's table `memory`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tracemine.formats import open_trace
from tracemine.timeline import Timeline

OP = {"ph": "X", "cat": "cpu_op", "name": "aten::empty", "pid": 3, "tid": 4, "ts": 10.0, "dur": 5.0, "args": {}}
KERNEL = {
    "ph": "X",
    "cat": "kernel",
    "name": "k",
    "pid": 0,
    "tid": 7,
    "ts": 30.0,
    "dur": 1.0,
    "args": {"correlation": 1},
}


def event(ts: float, size: int | None = 512, tid: int = 4, **more: Any) -> dict[str, Any]:
    arguments = {"Device Type": 1, "Device Id": 0, "Addr": 4096, "Bytes": size, "Total Allocated": 8, **more}
    told = {key: value for key, value in arguments.items() if value is not None}
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "s": "t",
        "name": "[memory]",
        "pid": 3,
        "tid": tid,
        "ts": ts,
        "args": told,
    }


def opened(folder: Path, *events: dict[str, Any]) -> Timeline:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [OP, KERNEL, *events]}))
    return open_trace(path)


def test_an_allocation_belongs_to_the_operator_around_it(tmp_path: Path) -> None:
    memory = opened(tmp_path, event(20.0, -512), event(12.0), event(13.0, tid=5)).memory.to_pylist()
    assert [row["start_ns"] for row in memory] == [12_000, 13_000, 20_000]
    assert [row["op_row"] for row in memory] == [0, None, None]
    assert [row["bytes"] for row in memory] == [512, 512, -512]
    assert memory[0] == {
        "start_ns": 12_000,
        "bytes": 512,
        "address": 4096,
        "device": "cuda:0",
        "pid": 3,
        "tid": 4,
        "op_row": 0,
        "allocated_bytes": 8,
        "reserved_bytes": None,
    }


@pytest.mark.parametrize(
    ("told", "device"),
    [
        ({"Device Type": 0, "Device Id": -1}, "cpu"),
        ({"Device Type": 1, "Device Id": 3}, "cuda:3"),
        ({"Device Type": 77, "Device Id": 1}, "type77:1"),
        ({"Device Type": None}, None),
    ],
)
def test_devices_are_called_as_in_execution_traces(tmp_path: Path, told: dict[str, Any], device: str | None) -> None:
    assert opened(tmp_path, event(12.0, **told)).memory.column("device").to_pylist() == [device]


def test_what_does_not_say_how_much_is_counted_and_left_out(tmp_path: Path) -> None:
    found = opened(tmp_path, event(12.0, None), event(13.0, Addr=None))
    assert found.memory.column("address").to_pylist() == [None]
    assert found.meta.ingest.dropped == {"allocation without size": 1}


def test_other_instants_carry_no_row(tmp_path: Path) -> None:
    found = opened(tmp_path, event(12.0) | {"name": "[OutOfMemory]"}, event(13.0))
    assert found.memory.num_rows == 1
    assert found.meta.ingest.skipped == {"cpu_instant_event": 1}
    assert found.meta.ingest.events["cpu_instant_event"] == 2


def test_before_torch_1_9_allocations_had_no_category(tmp_path: Path) -> None:
    plain = {key: value for key, value in event(12.0).items() if key != "cat"}
    assert opened(tmp_path, plain).memory.num_rows == 1


def test_a_trace_without_allocations_has_none(tmp_path: Path) -> None:
    assert opened(tmp_path).memory.num_rows == 0
