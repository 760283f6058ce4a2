"""Several programs in one file: what one finds alone, two beside each other find twice."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tracemine
from tests.formats.kineto_file import BACKWARD, Event, call, kernel, op, timeline
from tracemine.flow.order import parts

KINETO = Path(__file__).parents[2] / "fixtures" / "kineto"
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
NUMBERS = ("correlation", "External id", "Ev Idx", "Record function id", "Sequence number")
FAR = 10_000_000


def copies(events: list[Event], later_us: float, *, device: bool, process: bool) -> Iterator[Event]:
    """The events of another program that does the same, later: on another device or stream, in a process or thread."""
    for each in events:
        args = {name: value + FAR * (name in NUMBERS and value > 0) if isinstance(value, int) else value
                for name, value in each.get("args", {}).items()}  # fmt: skip
        copy: Event = each | {"args": args} | ({"ts": each["ts"] + later_us} if "ts" in each else {})
        if each.get("cat") in ON_DEVICE:
            place = ("device", "pid") if device else ("stream", "tid")
            copy |= {place[1]: args[place[0]] + 9}
            args[place[0]] += 9
        elif isinstance(each.get("pid"), int) and isinstance(each.get("tid"), int):
            copy |= {"pid": each["pid"] + FAR * process, "tid": each["tid"] + FAR}
        if process or "ProfilerStep" not in each.get("name", ""):
            yield copy


def mined(folder: Path, document: dict[str, Any], events: list[Event]) -> tuple[int, Counter[str], Counter[str]]:
    """GPU time; by rule how often it was found, and what that saves on the GPU."""
    path = folder / "trace.json"
    path.write_text(json.dumps(document | {"traceEvents": events}))
    found = tracemine.scan(path, min_saving="0ns").scan
    times: Counter[str] = Counter()
    saved: Counter[str] = Counter()
    for finding in found.findings:
        if finding.gpu_saving_ns.mid:  # what the host does is of the file, not of each
            times[finding.rule] += finding.occurrences
            saved[finding.rule] += finding.gpu_saving_ns.mid
    return found.summary.gpu_time_ns, times, saved


@pytest.mark.parametrize(
    ("name", "later_us", "device", "process"),
    [
        *(("chain", later_us, True, True) for later_us in (0, 1, 3, 50, 1e6)),
        ("chain", 0, False, True),
        ("chain", 0, True, False),
        ("compiled_islands", 2, True, True),
        ("decoder_decode", 0, True, True),
        ("decoder_decode", 50, True, False),
    ],
)
def test_a_trace_beside_itself_has_each_finding_twice(
    name: str, later_us: float, device: bool, process: bool, tmp_path: Path
) -> None:
    document = json.loads(gzip.decompress((KINETO / f"{name}.json.gz").read_bytes()))
    events = document["traceEvents"]
    gpu_ns, times, saved = mined(tmp_path, document, events)
    both = [*events, *copies(events, later_us, device=device, process=process)]
    assert saved
    found = mined(tmp_path, document, both)
    assert found[0] == 2 * gpu_ns
    assert found[1] == {rule: 2 * count for rule, count in times.items()}
    # Predicted times differ a little where more is recorded at once.
    assert found[2] == {rule: pytest.approx(2 * saving, rel=0.01) for rule, saving in saved.items()}


def of(*events: Event, folder: Path) -> list[int]:
    found: list[int] = parts(timeline(folder, *events)).tolist()
    return found


def work(at: int, *, tid: int, device: int) -> list[Event]:
    """An operator with its launch and its kernel."""
    ran = kernel("k", at + 500, at + 900, at + 1)
    ran["args"] |= {"device": device}
    return [op("aten::mul", at, at + 90, tid=tid), call("cudaLaunchKernel", at + 10, at + 20, at + 1, tid=tid), ran]


def test_threads_of_one_device_are_of_one_part_and_so_are_those_that_a_third_connects(tmp_path: Path) -> None:
    forward, backward = work(0, tid=1, device=0), work(100, tid=BACKWARD, device=0)
    other = work(200, tid=3, device=1)
    assert of(*forward, *backward, folder=tmp_path) == [0, 0]
    assert len(set(of(*forward, *backward, *other, folder=tmp_path))) == 2
    assert of(*forward, *backward, *other, *work(300, tid=1, device=1), folder=tmp_path) == [0] * 4


def test_processes_are_apart_though_they_share_a_device_and_a_thread_that_launches_nothing_is_of_none(
    tmp_path: Path,
) -> None:
    here = work(0, tid=1, device=0)
    there = [each | {"pid": 8} for each in work(100, tid=1, device=0)]
    assert len(set(of(*here, *there, folder=tmp_path))) == 2
    assert of(*here, op("aten::view", 200, 210, tid=5), folder=tmp_path) == [0, -1]
