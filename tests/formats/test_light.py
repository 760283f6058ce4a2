"""A light window is matched call by call to the whole one, and tells nothing where it does not fit."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.light_windows import Event, with_light_window
from tracemine.findings.light import in_light
from tracemine.formats import open_trace
from tracemine.formats.discover import traces
from tracemine.rows.gaps import gap_rows
from tracemine.rows.table import number
from tracemine.timeline import Timeline

CAPTURES = Path(__file__).parents[2] / "fixtures" / "captures"
DECODE = CAPTURES / "decoder_decode"
UNUSED = "The light window is not used, and idle time is estimated: "


def unused(timeline: Timeline) -> str:
    assert not timeline.light.num_rows and timeline.meta.light_step_ns is None
    (said,) = [each for each in timeline.meta.ingest.warnings if each.startswith(UNUSED)]
    return said.removeprefix(UNUSED)


def idle_ns(timeline: Timeline) -> int:
    return int(number(gap_rows(timeline), "dur_ns").sum())


@pytest.mark.parametrize("name", ["chain", "clean_gemms", "convnet_train", "decoder_decode", "decoder_prefill"])
@pytest.mark.parametrize("faster", [1.0, 4.0])
def test_idle_time_is_the_light_windows_to_the_nanosecond(tmp_path: Path, name: str, faster: float) -> None:
    folder, idle = with_light_window(tmp_path / "run", CAPTURES / name, faster)
    timeline = open_trace(folder)
    assert timeline.meta.ingest.warnings == open_trace(CAPTURES / name).meta.ingest.warnings
    activities = timeline.light["activity_row"].drop_null().to_pylist()
    in_steps = [row for row, step in enumerate(timeline.activities["step_row"].to_pylist()) if step is not None]
    assert sorted(activities) == in_steps
    light = in_light(timeline)
    assert idle_ns(replace(light, activities=light.activities.take(in_steps))) == idle


def test_a_light_window_that_was_unpacked_is_the_same(tmp_path: Path) -> None:
    folder, _ = with_light_window(tmp_path / "run", DECODE)
    packed = folder / "light.json.gz"
    light = open_trace(folder).light
    (folder / "light.json").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    assert open_trace(folder).light == light
    assert light.num_rows
    (folder / "light.json").unlink()
    assert unused(open_trace(folder)) == "there is no such file."


def test_each_launch_and_wait_has_its_own_time(tmp_path: Path) -> None:
    folder, _ = with_light_window(tmp_path / "run", DECODE, faster=2.0, more=0)
    timeline = open_trace(folder)
    origin = timeline.steps["start_ns"][0].as_py()
    light = {row["api_row"]: row for row in timeline.light.to_pylist() if row["api_row"] is not None}
    of_first = [
        row
        for row, call in enumerate(timeline.api.to_pylist())
        if row in light and call["start_ns"] < timeline.steps["start_ns"][1].as_py()
    ]
    assert len(of_first) > 50
    for row in of_first:
        call = {name: timeline.api[name][row].as_py() for name in ("start_ns", "dur_ns")}
        assert light[row]["start_ns"] - origin == pytest.approx((call["start_ns"] - origin) / 2, abs=2)
        assert light[row]["dur_ns"] == pytest.approx(call["dur_ns"] / 2, abs=2)


def test_operators_go_with_the_calls_around_them(tmp_path: Path) -> None:
    folder, _ = with_light_window(tmp_path / "run", DECODE)
    whole = open_trace(folder)
    light = in_light(whole)
    assert light.ops.num_rows == whole.ops.num_rows
    begin, dur = (light.ops[name].to_pylist() for name in ("start_ns", "dur_ns"))
    assert min(dur) >= 0
    for row, parent in enumerate(whole.ops["parent_row"].to_pylist()):
        if parent is not None:
            assert begin[parent] <= begin[row] and begin[row] + dur[row] <= begin[parent] + dur[parent]
    calls = zip(light.api["op_row"].to_pylist(), light.api["start_ns"].to_pylist(), strict=True)
    assert all(begin[op] <= start <= begin[op] + dur[op] for op, start in calls if op is not None)


def test_it_survives_on_disk_and_a_folder_is_one_trace(tmp_path: Path) -> None:
    folder, idle = with_light_window(tmp_path / "run", DECODE, alone_step_ns=1_900_000)
    assert list(traces(str(tmp_path))) == [folder]
    open_trace(folder).write(tmp_path / "out")
    again = open_trace(tmp_path / "out")
    assert again.light.num_rows and idle_ns(in_light(again)) == idle
    (tmp_path / "out" / "light.parquet").unlink()  # as versions before wrote it
    meta = json.loads((tmp_path / "out" / "meta.json").read_text())
    (tmp_path / "out" / "meta.json").write_text(json.dumps({**meta, "schema_version": 6}))
    before = open_trace(tmp_path / "out")
    assert not before.light.num_rows and in_light(before) is before


def test_a_capture_without_one_says_nothing(tmp_path: Path) -> None:
    folder, _ = with_light_window(tmp_path / "run", DECODE)
    (folder / "capture.json").write_text('{"light": null}')
    timeline = open_trace(folder)
    assert not timeline.light.num_rows and not any("light" in each for each in timeline.meta.ingest.warnings)


def _launches(events: list[Event]) -> list[Event]:
    return sorted((each for each in events if each["name"] == "cudaLaunchKernel"), key=lambda each: each["ts"])


def _drop_one(events: list[Event]) -> None:
    events.remove(_launches(events)[-3])


def _rename_one(events: list[Event]) -> None:
    kernels = sorted((each for each in events if each["cat"] == "kernel"), key=lambda each: each["ts"])
    kernels[-3]["name"] = "another_kernel"


def _other_thread(events: list[Event]) -> None:
    _launches(events)[-3]["tid"] = 7


def _nothing(events: list[Event]) -> None:
    events.clear()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_drop_one, "step 1 makes 92 calls to launch or to wait in the trace and 91 in it."),
        (_rename_one, "of step 1 is cudaLaunchKernel of "),
        (_other_thread, "calls of step 1 come from 1 thread in the trace and from 2 in it."),
    ],
)
def test_another_sequence_is_refused_and_said(tmp_path: Path, change: Any, says: str) -> None:
    folder, _ = with_light_window(tmp_path / "run", DECODE, more=0, change=change)
    assert says in unused(open_trace(folder))


def test_a_step_unlike_the_rest_is_passed_over(tmp_path: Path) -> None:
    folder, _ = with_light_window(tmp_path / "run", DECODE, more=3, change=_rename_one)
    timeline = open_trace(folder)
    assert timeline.light.num_rows
    last = max(timeline.light["start_ns"].to_pylist())
    assert last < timeline.steps["start_ns"][1].as_py() + timeline.steps["dur_ns"][1].as_py()


@pytest.mark.parametrize(
    "content",
    [b"", b"nothing", b"{}", b'{"traceEvents": [', gzip.compress(b"{", mtime=0)[:-4]],
    ids=["none", "text", "object", "cut", "cut_gzip"],
)
def test_a_damaged_light_window_is_a_warning(tmp_path: Path, content: bytes) -> None:
    folder, _ = with_light_window(tmp_path / "run", DECODE)
    (folder / "light.json.gz").write_bytes(content)
    assert unused(open_trace(folder))


def test_a_missing_or_an_empty_one_is_a_warning(tmp_path: Path) -> None:
    folder, _ = with_light_window(tmp_path / "run", DECODE, change=_nothing)
    assert unused(open_trace(folder))
    (folder / "light.json.gz").unlink()
    assert "there is no such file" in unused(open_trace(folder))


@pytest.mark.parametrize(
    ("marks", "says"),
    [
        ([[1, 2]], "it has 1 step, the trace 2."),
        ([[1, 2], [3, 4]], "calls of step 0 come from 1 thread in the trace and from 0 in it."),
        ([[1, 20], [3, 40]], "steps overlap."),
        ([[20, 10], [30, 40]], "steps overlap."),
    ],
)
def test_marks_that_cannot_be_are_a_warning(tmp_path: Path, marks: list[list[int]], says: str) -> None:
    folder, _ = with_light_window(tmp_path / "run", DECODE)
    (folder / "capture.json").write_text(json.dumps({"light": {"marks_ns": marks}}))
    assert says in unused(open_trace(folder))


@pytest.mark.parametrize("marks", [[], [[1]], [["a", 2]], [[-1, 2]], [[1, 1 << 70]], None, 7])
def test_marks_that_are_none_leave_it_unread(tmp_path: Path, marks: Any) -> None:
    folder, _ = with_light_window(tmp_path / "run", DECODE)
    (folder / "capture.json").write_text(json.dumps({"alone_step_ns": 5, "light": {"marks_ns": marks}}))
    timeline = open_trace(folder)
    assert not timeline.light.num_rows and timeline.meta.alone_step_ns == 5
