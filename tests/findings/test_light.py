"""Idle time is the light window's, less what recording cost each call; without one it is estimated, and so said."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from tests.light_windows import with_light_window
from tracemine.findings import Scan
from tracemine.findings import steps as steps_module
from tracemine.findings.critical_path import replay_of
from tracemine.findings.light import in_light, waits_ns
from tracemine.findings.light_cost import eased, fitted, uninterrupted
from tracemine.findings.replay import Replay
from tracemine.findings.steps import Steps, steps_of
from tracemine.formats import open_trace
from tracemine.pipeline import analysed, mined
from tracemine.rows.gaps import gap_rows
from tracemine.rows.table import number
from tracemine.timeline import Timeline

CAPTURES = Path(__file__).parents[2] / "fixtures" / "captures"
ALL = ["convnet_train", "decoder_decode", "decoder_prefill"]


def light(tmp_path: Path, name: str, faster: float = 3.0) -> tuple[Timeline, int, int]:
    """A capture's timeline with a light window, its idle time, and how long a step takes in it, nanoseconds."""
    folder, idle = with_light_window(tmp_path / "run", CAPTURES / name, faster)
    marks = json.loads((folder / "capture.json").read_text())["light"]["marks_ns"]
    return open_trace(folder), idle, (marks[-1][1] - marks[-2][0]) // 2


def timed(timeline: Timeline, **meta: int | None) -> Timeline:
    return replace(timeline, meta=msgspec.structs.replace(timeline.meta, **meta))


def steps(timeline: Timeline) -> Steps:
    return steps_of(timeline, gap_rows(timeline))


def scanned(timeline: Timeline) -> Scan:
    return mined(analysed(timeline))


@pytest.mark.parametrize("name", ALL)
def test_run_again_as_recorded_the_device_idles_as_long_as_in_the_light_window(tmp_path: Path, name: str) -> None:
    timeline, idle, _ = light(tmp_path, name)
    ran = replay_of(in_light(timeline)).run(np.ones(1))
    latest = np.maximum.accumulate(ran.ends[0])[:-1]
    assert int(np.maximum(ran.starts[0][1:] - latest, 0).sum()) == pytest.approx(idle, abs=2)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("share", [0.8, 0.9, 1.0])
def test_gaps_are_as_long_as_the_step_alone_leaves_room_for(tmp_path: Path, name: str, share: float) -> None:
    timeline, idle, step_ns = light(tmp_path, name)
    alone_ns = int(step_ns * share)
    found = steps(timed(timeline, alone_step_ns=alone_ns))
    saved = 2 * (step_ns - alone_ns)
    if idle < saved:
        return  # so fast the device is not
    assert found.gaps_ns()[1].sum() == pytest.approx(idle - saved, abs=0.05 * 2 * step_ns)
    assert found.slowdown is not None and found.slowdown.host == pytest.approx(1 / share, abs=0.35)


def test_what_recording_costs_is_taken_off_launches_and_not_off_the_time_between(tmp_path: Path) -> None:
    timeline, _, step_ns = light(tmp_path, "decoder_decode")
    whole = replay_of(in_light(timeline))
    long = int(np.argmax(whole.host.work_ns))
    alone = fitted(whole, lambda ran: float(ran.done[0]) / 2, int(0.85 * step_ns))
    off = whole.host.work_ns - alone.host.work_ns
    assert off.min() >= 0 and off.max() == off[long] < 0.2 * whole.host.work_ns[long]
    assert (alone.host.work_ns >= whole.host.work_ns // 3).all()
    assert eased(whole, 0).host.work_ns.tolist() == whole.host.work_ns.tolist()
    assert fitted(whole, lambda ran: float(ran.done[0]), 1 << 60) is whole  # no slower than alone


def away(replay: Replay, at: int, ns: int) -> Replay:
    """A replay whose host was away for so long before an event."""
    work = replay.host.work_ns.copy()
    work[at] += ns
    return replace(replay, host=replace(replay.host, work_ns=work))


def test_no_host_takes_longer_between_two_calls_than_where_all_was_recorded(tmp_path: Path) -> None:
    timeline, _, _ = light(tmp_path, "decoder_decode")
    recorded, whole = replay_of(in_light(timeline)), replay_of(timeline)
    found = uninterrupted(away(recorded, 40, 5_000_000), whole).host.work_ns
    assert found[40] == whole.host.work_ns[40] < recorded.host.work_ns[40] + 5_000_000
    assert np.delete(found, 40).tolist() == np.delete(recorded.host.work_ns, 40).tolist()


def test_what_the_host_was_away_for_is_not_made_up_for_by_all_other_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline, _, step_ns = light(tmp_path, "decoder_decode")
    timeline = timed(timeline, alone_step_ns=step_ns)
    still = steps(timeline).gaps_ns()[1]

    def interrupted(given: Timeline) -> Replay:
        return replay_of(given) if given is timeline else away(replay_of(given), 40, 5_000_000)

    monkeypatch.setattr(steps_module, "replay_of", interrupted)
    assert steps(timeline).gaps_ns()[1].sum() == pytest.approx(still.sum(), rel=0.02)


def test_a_host_that_was_faster_in_the_light_window_is_slowed(tmp_path: Path) -> None:
    timeline, idle, step_ns = light(tmp_path, "decoder_decode")
    found = steps(timed(timeline, alone_step_ns=int(1.1 * step_ns)))
    assert found.paces[1] < 1 and found.gaps_ns()[1].sum() > idle


def test_a_step_that_was_not_timed_is_estimated_from_the_light_window(tmp_path: Path) -> None:
    timeline, _, step_ns = light(tmp_path, "decoder_decode", faster=4.0)
    step = scanned(timeline).summary.per_step
    assert step is not None and step.unprofiled_ns is not None
    assert step.unprofiled_ns.source == "estimated"
    assert 0.4 * step_ns < step.unprofiled_ns.low <= step.unprofiled_ns.mid <= 1.02 * step_ns


@pytest.mark.parametrize("name", ALL)
def test_findings_say_whether_idle_time_is_measured_or_estimated(tmp_path: Path, name: str) -> None:
    timeline, _, step_ns = light(tmp_path, name)
    timeline = timed(timeline, alone_step_ns=step_ns)
    with_it, without = scanned(timeline), scanned(replace(timeline, light=None))
    assert with_it.recorded is not None and without.recorded is not None
    assert (with_it.recorded.idle, without.recorded.idle) == ("measured", "estimated")
    assert any(each.startswith("Idle time is measured") for each in with_it.warnings)
    assert not any("measured: " in each for each in without.warnings)
    idle = [one for one in with_it.findings if any("two kernels" in text for text in one.assumptions)]
    assert all(any(text.startswith("gaps are measured") for text in one.assumptions) for one in idle)
    assert not any("gaps count as they last" in text for one in with_it.findings for text in one.assumptions)


def test_operators_of_a_timeline_without_a_light_window_are_its_own() -> None:
    timeline = open_trace(CAPTURES / "decoder_decode")
    assert in_light(timeline) is timeline


def test_waits_are_as_long_as_in_the_light_window(tmp_path: Path) -> None:
    timeline, _, _ = light(tmp_path, "convnet_train")
    gaps = gap_rows(timeline)
    call, recorded = number(gaps, "sync_row", null=-1), number(gaps, "blocked_ns")
    of_light = {row["api_row"]: row["dur_ns"] for row in timeline.light.to_pylist() if row["api_row"] is not None}
    assert any(each in of_light for each in call.tolist())
    found = waits_ns(timeline, call, recorded)
    assert found.tolist() == [of_light.get(*pair) for pair in zip(call.tolist(), recorded.tolist(), strict=True)]
    assert waits_ns(replace(timeline, light=None), call, recorded).tolist() == recorded.tolist()


RECORDED = CAPTURES.parent / "light" / "mixed_precision"


def test_a_recorded_light_window_leaves_as_much_idle_time_as_the_step_alone() -> None:
    timeline = open_trace(RECORDED)
    assert not any("light" in each for each in timeline.meta.ingest.warnings)
    assert len(timeline.light["activity_row"].drop_null()) == timeline.activities.num_rows == 123
    alone_ns, light_ns = timeline.meta.alone_step_ns, timeline.meta.light_step_ns
    assert alone_ns is not None and light_ns is not None and light_ns > 1.5 * alone_ns
    found, busy = steps(timeline), sum(timeline.activities["dur_ns"].to_pylist())
    assert found.slowdown is not None and found.paces[1] == pytest.approx(1.22, abs=0.02)
    assert 3 * alone_ns == pytest.approx(busy + int(found.gaps_ns()[1].sum()), rel=0.02)
