"""A capture's own measurement of what recording cost reaches the timeline, and the findings."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

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


@pytest.mark.parametrize("host_ns", [1_500_000, 700_000])
def test_the_hosts_part_of_a_step_tells_its_pace_where_the_device_sets_the_steps(tmp_path: Path, host_ns: int) -> None:
    about = f'{{"alone_step_ns": 5600000, "recorded_step_ns": 5660000, "host_step_ns": {host_ns}}}'
    timeline = opened(tmp_path / "run", about)
    assert timeline.meta.host_step_ns == host_ns
    without = replace(timeline, meta=msgspec.structs.replace(timeline.meta, host_step_ns=None))
    told, guessed = (steps_of(each, gap_rows(each)).paces for each in (timeline, without))
    recorded_ns = timeline.steps["dur_ns"][0].as_py()  # it launches, and waits for nothing
    assert told[1] == pytest.approx(recorded_ns / host_ns, rel=0.02) and guessed[1] != told[1]


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
