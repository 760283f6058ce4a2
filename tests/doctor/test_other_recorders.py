"""tracemine doctor of what other profilers than PyTorch's wrote: each is told of its own switches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats.onnxruntime_files import chain, profiled
from tests.formats.rocpd.make import two_steps
from tests.formats.tensorrt_files import exported, gap_engine
from tracemine.doctor import Checkup, check_up
from tracemine.pipeline import analyse, mined

ROOT = Path(__file__).parents[2]


def _of(path: Path) -> Checkup:
    analysis = analyse(path)
    return check_up(analysis.timeline, mined(analysis))


@pytest.mark.parametrize(
    ("name", "code", "switches"),
    [
        (
            "run.chrome_trace",
            "proton.start(",
            {"shapes": "launch_metadata: bytes, flops16", "stacks": 'context="python"'},
        ),
        ("run.hatchet", "proton.start(", {"steps": 'proton.scope(f"step_{n}")', "stacks": 'context="python"'}),
    ],
)
def test_a_profile_of_proton_is_told_of_its_own_switches(name: str, code: str, switches: dict[str, str]) -> None:
    found = _of(ROOT / "fixtures/proton" / name)
    assert {one.name: one.switch for one in found.parts if one.switch} == switches
    assert code in found.recipe.code
    assert not found.recipe.command


def test_a_database_of_rocprofv3_is_told_of_its_own_switches(tmp_path: Path) -> None:
    found = _of(two_steps(tmp_path).written())
    assert "rocprofv3 --sys-trace" in found.recipe.code
    told = " ".join(one.switch or "" for one in found.parts) + found.recipe.code
    assert "ProfilerActivity" not in told
    assert "prof.step()" not in told


def test_an_engines_one_run_is_a_mean_and_no_single_step(tmp_path: Path) -> None:
    found = _of(exported(tmp_path, gap_engine(), run_ms=0.25))
    assert not found.doubts
    assert {one.name: one.says for one in found.parts}["steps"].startswith("a run, the mean")


def test_host_times_can_be_believed_for_what_they_are(tmp_path: Path) -> None:
    found = _of(profiled(tmp_path, chain("MatMul", "Relu", device_us=None)))
    (doubt,) = (one for one in found.doubts if one.name == "no_gpu")
    assert not doubt.serious
    assert [one.name for one in found.parts if not one.recorded] == ["GPU activity"]
