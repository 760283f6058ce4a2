"""Waits for Python's lock: recorded with a thread beside the step, and what looks like one and is none."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.screens import host_tables
from tracemine.formats import open_trace
from tracemine.pipeline import analysed, mined
from tracemine.timeline import Timeline
from tracemine.top import HostTop

RECORDED = Path(__file__).parents[2] / "fixtures/lock"


def of_steps(timeline: Timeline) -> HostTop:
    analysis = analysed(timeline)
    return host_tables(analysis, mined(analysis))["line"]


def locked_ns(top: HostTop) -> int:
    return next((kind.host_ns or 0 for kind in top.kinds if kind.kind == "lock"), 0)


def frames(timeline: Timeline, column: str) -> set[str]:
    rows = timeline.lock_waits[column].drop_null()
    return {timeline.stacks["frame"][row.as_py()].as_py() for row in rows}


def test_a_thread_in_python_has_the_step_wait_behind_its_operators() -> None:
    timeline = open_trace(RECORDED / "decoding.json.gz")
    top = of_steps(timeline)
    assert sum(row.own_ns for row in top.rows) == top.host_ns
    assert 0.25 < locked_ns(top) / top.host_ns < 0.95
    assert all("step" in frame for frame in frames(timeline, "stack_row"))
    assert any("record.py:" in note and "parsed" in note for note in top.notes)


def test_a_wait_for_a_queue_or_a_sleeping_thread_wants_no_lock() -> None:
    queued, asleep = (open_trace(RECORDED / f"{name}.json.gz") for name in ("queued", "asleep"))
    assert not any("get" in frame for frame in frames(queued, "stack_row"))  # where most of its time passes
    assert asleep.lock_waits.num_rows == 0
    assert {kind.kind: kind.host_ns for kind in of_steps(asleep).kinds}["lock"] is None  # none to be seen


def test_a_thread_of_torch_has_no_line_that_could_be_named(tmp_path: Path) -> None:
    trace = json.loads(gzip.decompress((RECORDED / "decoding.json.gz").read_bytes()))
    (step,) = {event["tid"] for event in trace["traceEvents"] if event.get("cat") == "cpu_op"}
    for event in trace["traceEvents"]:
        if event.get("cat") == "python_function" and event["tid"] != step:
            event["name"] = "torch/utils/data/_utils/pin_memory.py(20): _pin_memory_loop"
    (tmp_path / "pinning.json").write_text(json.dumps(trace))
    top = of_steps(open_trace(tmp_path / "pinning.json"))
    assert locked_ns(top) > 0
    assert not [note for note in top.notes if "held" in note]


def in_a_process_of_its_own(events: list[dict[str, Any]], step: int) -> None:
    for event in events:
        event["pid"] += (event["tid"] != step) * 1000


def in_no_python(events: list[dict[str, Any]], step: int) -> None:
    events[:] = [event for event in events if event["tid"] == step or event["cat"] != "python_function"]


def within_one_operator(events: list[dict[str, Any]], step: int) -> None:
    own = [event for event in events if event["tid"] == step]
    begin, end = min(event["ts"] for event in own), max(event["ts"] + event["dur"] for event in own)
    events.append({**next(event for event in own if event["cat"] == "cpu_op"), "ts": begin, "dur": end - begin})


@pytest.mark.parametrize("change", [in_a_process_of_its_own, in_no_python, within_one_operator])
def test_near_misses(tmp_path: Path, change: Callable[[list[dict[str, Any]], int], None]) -> None:
    trace = json.loads(gzip.decompress((RECORDED / "decoding.json.gz").read_bytes()))
    events = [
        event for event in trace["traceEvents"] if event.get("cat") in ("cpu_op", "python_function", "user_annotation")
    ]
    (step,) = {event["tid"] for event in events if event["cat"] == "cpu_op"}
    (tmp_path / "same.json").write_text(json.dumps({**trace, "traceEvents": events}))
    assert open_trace(tmp_path / "same.json").lock_waits.num_rows > 0
    change(events, step)
    (tmp_path / "changed.json").write_text(json.dumps({**trace, "traceEvents": events}))
    assert open_trace(tmp_path / "changed.json").lock_waits.num_rows == 0
