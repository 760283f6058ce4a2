"""Records that are lost or cannot be: said before all else, counted, and without effect beyond themselves."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.formats.test_scanner import FIXTURES
from tracemine import pipeline
from tracemine.findings.record import Scan
from tracemine.formats import open_trace
from tracemine.report import Drawing, text

NAMES = ("decoder_decode", "decoder_prefill")
Events = list[dict[str, Any]]
Plant = Callable[[Events], None]


def _loaded(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(gzip.decompress((FIXTURES / f"{name}.json.gz").read_bytes()))
    return loaded


@cache
def _whole(name: str) -> Scan:
    return pipeline.scan(FIXTURES / f"{name}.json.gz")


def _scanned(tmp_path: Path, name: str, plant: Plant) -> Scan:
    trace = _loaded(name)
    plant(trace["traceEvents"])
    path = tmp_path / "t.json"
    path.write_text(json.dumps(trace))
    return pipeline.scan(path)


def _kernels(events: Events) -> Events:
    return sorted((event for event in events if event.get("cat") == "kernel"), key=lambda event: event["ts"])


def _told(scan: Scan) -> str:
    out = StringIO()
    text.render(scan, out, Drawing(width=500))
    return out.getvalue().splitlines()[0]


@pytest.mark.parametrize("at", [lambda count: count // 2, lambda count: count - 3], ids=["middle", "end"])
@pytest.mark.parametrize("name", NAMES)
def test_a_record_over_its_successors_ends_where_the_next_begins(
    tmp_path: Path, name: str, at: Callable[[int], int]
) -> None:
    whole = _whole(name)

    def overlong(events: Events) -> None:
        kernels = _kernels(events)
        kernels[at(len(kernels))]["dur"] = 5_000_000

    found = _scanned(tmp_path, name, overlong)
    assert abs(found.summary.gpu_busy_ns - whole.summary.gpu_busy_ns) < whole.summary.gpu_busy_ns * 0.1
    assert found.summary.span_ns == whole.summary.span_ns
    assert _told(found).startswith("1 GPU record of up to 5.00 s over what ran after on the same stream")
    assert found.warnings[0] == found.recorded.doubts[0]  # type: ignore[union-attr]
    assert found.summary.bound is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_last_record_longer_than_all_else_leaves_no_verdict(tmp_path: Path, name: str) -> None:
    def endless(events: Events) -> None:
        _kernels(events)[-1]["dur"] = 50_000_000

    found = _scanned(tmp_path, name, endless)
    assert _told(found).startswith("One GPU record reaches 50.0 s beyond all else, and that takes ")
    _no_verdict(found)


@pytest.mark.parametrize("name", NAMES)
def test_a_record_long_after_all_else_leaves_no_verdict(tmp_path: Path, name: str) -> None:
    def late(events: Events) -> None:
        _kernels(events)[-40]["ts"] += 50_000_000

    found = _scanned(tmp_path, name, late)
    assert "beyond all else" in _told(found)
    _no_verdict(found)


@pytest.mark.parametrize("at", [slice(3, 40, 10), slice(0, 1), slice(-1, None), slice(7, 12)])
@pytest.mark.parametrize("name", NAMES)
def test_records_without_any_time_count_and_take_none(tmp_path: Path, name: str, at: slice) -> None:
    whole = _whole(name)
    lost_us = []

    def lost(events: Events) -> None:
        for event in _kernels(events)[at]:
            lost_us.append(event["dur"])
            event.update(ts=0, dur=0)

    found = _scanned(tmp_path, name, lost)
    count = "1 GPU record" if len(lost_us) == 1 else f"{len(lost_us)} GPU records"
    assert _told(found) == f"{count} without any time: when they ran is lost, and how long each took counts as 0."
    assert (found.trace.activities, found.trace.steps) == (whole.trace.activities, whole.trace.steps)
    assert whole.summary.gpu_time_ns - found.summary.gpu_time_ns == round(sum(lost_us) * 1000)
    assert 0 <= whole.summary.span_ns - found.summary.span_ns < whole.summary.span_ns * 0.05
    assert found.summary.gpu_saving_ns.mid <= whole.summary.gpu_saving_ns.mid * 1.001
    assert not any("clocks disagree" in warning for warning in found.warnings)


def test_records_without_any_time_stand_where_their_streams_order_has_them(tmp_path: Path) -> None:
    trace = _loaded("decoder_decode")
    path = tmp_path / "t.json"
    path.write_text(json.dumps(trace))
    names = open_trace(path).activities["name"].to_pylist()
    for event in _kernels(trace["traceEvents"])[10:90:7]:
        event.update(ts=0, dur=0)
    path.write_text(json.dumps(trace))
    timeline = open_trace(path)
    assert timeline.activities["name"].to_pylist() == names
    assert timeline.meta.ingest.repaired == {"GPU record without any time set to no length": 12}


def test_records_that_took_no_time_but_say_when_they_ran_are_believed(tmp_path: Path) -> None:
    def short(events: Events) -> None:
        for event in _kernels(events)[3:40:10]:
            event.update(dur=0)

    found = _scanned(tmp_path, "decoder_decode", short)
    assert "without any time" not in _told(found)
    assert found.recorded is not None
    assert found.recorded.doubts == ()


def test_where_no_record_has_a_time_all_are_left_out(tmp_path: Path) -> None:
    def lost(events: Events) -> None:
        for event in events:
            if str(event.get("cat")) in ("kernel", "gpu_memcpy", "gpu_memset"):
                event.update(ts=0, dur=0)

    found = _scanned(tmp_path, "decoder_decode", lost)
    assert found.recorded is not None
    assert any(one.endswith("and they are left out.") for one in found.recorded.doubts)
    _no_verdict(found)


@pytest.mark.parametrize("name", NAMES)
def test_negative_durations_are_counted_and_said(tmp_path: Path, name: str) -> None:
    def negative(events: Events) -> None:
        for event in _kernels(events)[3:23:10]:
            event["dur"] = -event["dur"]

    found = _scanned(tmp_path, name, negative)
    assert _told(found).startswith("2 records of negative duration: how long each took is lost, and counts as 0.")


@pytest.mark.parametrize("name", NAMES)
def test_launches_without_any_kernel_are_lost_records(tmp_path: Path, name: str) -> None:
    def without(events: Events) -> None:
        events[:] = [event for event in events if event.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset")]

    found = _scanned(tmp_path, name, without)
    told = _told(found)
    assert "launches were recorded and none of their kernels: the GPU's records were lost. Perhaps another" in told
    _no_verdict(found)


def _steps_of(kernels_kept: Callable[[int], bool], *, count: int = 8) -> Plant:
    """Return what makes a trace of marked steps of four launches each, with the kernels of some."""

    def made(events: Events) -> None:
        events.clear()
        for step in range(count):
            host: dict[str, Any] = {"ph": "X", "pid": 1, "tid": 1}
            events.append(
                host | {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": step * 1000, "dur": 990}
            )
            for number in range(4):
                ts, ids = step * 1000 + 50 + number * 100, {"correlation": step * 4 + number + 1}
                events.append(
                    host | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": ts, "dur": 5, "args": ids}
                )
                kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": ts + 9, "dur": 60}
                if kernels_kept(step):
                    events.append(kernel | {"args": ids | {"device": 0, "stream": 7}})

    return made


def test_steps_without_gpu_activity_are_lost_records_and_the_others_are_named(tmp_path: Path) -> None:
    found = _scanned(tmp_path, "chain", _steps_of(lambda step: step in (4, 5)))
    assert _told(found).startswith(
        "6 of 8 steps have launches and no GPU activity: the GPU's records of them were lost. "
        "Only ProfilerStep#4, ProfilerStep#5 count. Perhaps"
    )
    _no_verdict(found)


def test_one_step_whose_kernels_came_too_late_leaves_the_verdict(tmp_path: Path) -> None:
    """Near miss: recording ended before the last step's kernels did."""
    found = _scanned(tmp_path, "chain", _steps_of(lambda step: step < 7))
    assert found.recorded is not None
    assert (found.recorded.doubts, found.summary.bound is not None) == ((), True)


def test_a_pass_that_captures_lost_nothing(tmp_path: Path) -> None:
    """Near miss: what is launched while a graph is captured does not run."""

    def captured(events: Events) -> None:
        _steps_of(lambda step: step == 4)(events)
        begin = {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamBeginCapture_v10000", "ts": 1, "dur": 1}
        events.append(begin | {"pid": 1, "tid": 1, "args": {}})

    found = _scanned(tmp_path, "chain", captured)
    assert found.recorded is not None
    assert found.recorded.doubts == ()


def _waiting(late_us: int) -> Plant:
    """Return what makes a trace of which each step's end waits for its kernels, which begin so much later."""

    def made(events: Events) -> None:
        _steps_of(lambda step: True)(events)
        for event in _kernels(events):
            event["ts"] += late_us
        for step in range(8):
            wait = {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "pid": 1, "tid": 1}
            events.append(wait | {"ts": step * 1000 + 500, "dur": 400, "args": {"correlation": 900 + step}})

    return made


def test_kernels_that_begin_after_the_host_waited_for_them_leave_no_verdict(tmp_path: Path) -> None:
    found = _scanned(tmp_path, "chain", _waiting(70_000))
    assert _told(found).startswith("Kernels begin up to 69.5 ms after the host had waited for them (8 of 8 waits)")
    _no_verdict(found)


def test_kernels_that_a_clock_shows_a_little_late_leave_the_verdict(tmp_path: Path) -> None:
    found = _scanned(tmp_path, "chain", _waiting(600))
    assert found.recorded is not None
    assert (found.recorded.doubts, found.summary.bound is not None) == ((), True)


def test_kernels_of_a_stream_that_overlap_by_one_keep_their_times(tmp_path: Path) -> None:
    """Near miss: a dependent launch begins before the kernel before it has ended."""

    def dependent(events: Events) -> None:
        kernels = _kernels(events)
        for event, following in zip(kernels[::2], kernels[1::2], strict=False):
            event["dur"] = following["ts"] + following["dur"] / 2 - event["ts"]

    found = _scanned(tmp_path, "chain", dependent)
    assert found.recorded is not None
    assert found.recorded.doubts == ()


def test_an_export_of_nsys_without_gpu_activity_is_told_how_nsys_records_it(tmp_path: Path) -> None:
    path = tmp_path / "n.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        database.execute("CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT)")
    found = pipeline.scan(path)
    out = StringIO()
    text.render(found, out, Drawing(width=500))
    assert out.getvalue().startswith("There is nothing to judge: no GPU activity was recorded.\n")
    assert "nsys profile --trace=cuda,nvtx" in out.getvalue()
    assert "ProfilerActivity" not in out.getvalue()


def _no_verdict(scan: Scan) -> None:
    assert scan.recorded is not None
    assert scan.recorded.unusable
    assert (scan.findings, scan.summary.bound, scan.summary.parts) == ((), None, None)
