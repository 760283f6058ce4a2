"""A capture's own measurement of what recording cost reaches the timeline, and the findings."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.findings.build import H200
from tests.timelines import Trace
from tracemine.findings import Scan
from tracemine.findings.steps import steps_of
from tracemine.formats import open_trace
from tracemine.formats.discover import traces
from tracemine.pipeline import analysed, mined
from tracemine.rows.gaps import gap_rows
from tracemine.timeline import Timeline

DECODE = Path(__file__).parents[2] / "fixtures" / "captures" / "decoder_decode"


def opened(folder: Path, about: str) -> Timeline:
    shutil.copytree(DECODE, folder)
    (folder / "capture.json").write_text(about)
    return open_trace(folder)


def scanned(timeline: Timeline) -> Scan:
    return mined(analysed(timeline))


def test_the_times_of_a_step_alone_and_recorded_are_read_and_survive_on_disk(tmp_path: Path) -> None:
    timeline = opened(tmp_path / "run", '{"steps": 2, "alone_step_ns": 1100000, "recorded_step_ns": 5660000}')
    timeline.write(tmp_path / "out")
    meta = open_trace(tmp_path / "out").meta
    assert (meta.alone_step_ns, meta.recorded_step_ns) == (1_100_000, 5_660_000)


@pytest.mark.parametrize(
    "about", ["", "{", "[]", '{"alone_step_ns": "x"}', '{"alone_step_ns": -1}', '{"alone_step_ns": null}', "\x00"]
)
def test_a_capture_that_does_not_say_leaves_them_unknown(tmp_path: Path, about: str) -> None:
    meta = opened(tmp_path / "run", about).meta
    assert (meta.alone_step_ns, meta.recorded_step_ns) == (None, None)


def test_a_capture_without_an_execution_trace_is_a_recording_all_the_same(tmp_path: Path) -> None:
    timeline = opened(tmp_path / "run", '{"alone_step_ns": 1100000, "recorded_step_ns": 5660000}')
    assert timeline.tensors.num_rows
    for path in (tmp_path / "run").glob("et.json*"):
        path.unlink()
    assert list(traces(str(tmp_path / "run"))) == list(traces(str(tmp_path))) == [tmp_path / "run"]
    alone = open_trace(tmp_path / "run")
    assert not alone.tensors.num_rows and alone.meta.alone_step_ns == 1_100_000


def queued(alone_ns: int, host_ns: int, kernel_ns: int) -> Timeline:
    """Steps in which the host launches 20 kernels in a millisecond, waits for nothing, and the device runs them."""
    trace = Trace(resolution=1, devices=(H200,))
    free_ns = 0
    for begin in range(0, 3_000_000, 1_000_000):
        step = trace.step(begin, 1_000_000)
        for number in range(20):
            launch = begin + 50_000 * number
            free_ns = max(free_ns, launch + 10_000)
            rows: dict[str, Any] = {
                "op": "aten::add",
                "shapes": [[4096], [4096]],
                "dtypes": ["float", "float"],
                "step_row": step,
            }
            trace.kernel("add", free_ns, kernel_ns, launch=(launch, 5_000), **rows)
            free_ns += kernel_ns + 500
    timeline = trace.timeline()
    meta = msgspec.structs.replace(timeline.meta, alone_step_ns=alone_ns, host_step_ns=host_ns)
    return replace(timeline, meta=meta)


@pytest.mark.parametrize("host_ns", [400_000, 250_000])
def test_the_hosts_part_of_a_step_tells_its_pace_where_the_device_sets_the_steps(host_ns: int) -> None:
    timeline = queued(5_000_000, host_ns, kernel_ns=250_000)
    without = replace(timeline, meta=msgspec.structs.replace(timeline.meta, host_step_ns=None))
    told, guessed = (steps_of(each, gap_rows(each)).paces for each in (timeline, without))
    assert told[1] == pytest.approx(1_000_000 / host_ns, rel=0.05) and guessed[1] != told[1]


def test_where_the_device_has_no_work_for_the_difference_the_step_tells_the_pace() -> None:
    timeline = queued(600_000, 250_000, kernel_ns=2_000)
    without = replace(timeline, meta=msgspec.structs.replace(timeline.meta, host_step_ns=None))
    told, alone = (steps_of(each, gap_rows(each)).paces for each in (timeline, without))
    assert told == alone and told[1] == pytest.approx(1_000_000 / 600_000, rel=0.1)


def test_a_measured_capture_saves_about_what_the_step_alone_had_idle_and_no_more(tmp_path: Path) -> None:
    timeline = opened(tmp_path / "run", '{"alone_step_ns": 1100000, "recorded_step_ns": 5660000}')
    scan = scanned(timeline)
    assert scan.summary.per_step is not None
    idle_alone_ns = 2 * (1_100_000 - scan.summary.per_step.gpu_busy_ns)
    (gaps,) = [finding for finding in scan.findings if finding.rule == "launch_gap"]
    assert any("measured on these steps" in text for text in gaps.assumptions)
    # Fusions shorten the GPU's work and leave launches out; closing gaps wins what is then left of the idle time.
    summary = scan.summary
    assert gaps.step_saving_ns.mid < summary.step_saving_ns.mid
    assert 0.8 * idle_alone_ns < summary.step_saving_ns.mid < idle_alone_ns + summary.gpu_saving_ns.mid
    assert gaps.step_saving_ns.high < gaps.measured_ns / 3
