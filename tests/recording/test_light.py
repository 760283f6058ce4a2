"""A light window follows the whole one, is written beside it, and where anything keeps it away the rest is written."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tracemine
from tracemine.recording import ABOUT, EXECUTION_TRACE, LIGHT, TRACE, files
from tracemine.recording.plan import Plan
from tracemine.recording.session import Session

WHOLE = {ABOUT, EXECUTION_TRACE, TRACE}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def step() -> Callable[[], None]:
    model, batch = torch.nn.Linear(8, 8), torch.randn(4, 8)
    return lambda: model(batch).sum().backward()


@pytest.fixture(autouse=True)
def operators_for_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no GPU is, operators take the place of what runs there: windows and files are the same."""
    monkeypatch.setattr("tracemine.recording.possible", lambda torch: True)
    monkeypatch.setattr("tracemine.recording._WARM_NS", 0)
    monkeypatch.setattr(files, "_GPU_ACTIVITY", re.compile(rb'"cat": "(?:cpu_op|kernel)"'))


def about(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / ABOUT).read_text())
    return read


def held(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def recorded(folder: Path, step: Callable[[], None], **options: Any) -> int:
    ran = 0
    with tracemine.capture(folder, quiet=True, **{"steps": 2, "warmup": 1, "timed": 3, **options}) as recording:
        for _ in recording.steps():
            step()
            ran += 1
    return ran


def test_the_next_steps_are_recorded_once_more_each_between_its_marks(folder: Path, step: Callable[[], None]) -> None:
    timed = 3 if torch.cuda.is_available() else 0
    assert recorded(folder, step) == (1 + 3 + timed + 1 + 2) + (1 + 2 + 2)
    assert held(folder) == {*WHOLE, LIGHT}
    light = about(folder)["light"]
    assert light["trace"] == LIGHT and len(light["marks_ns"]) == 4 and light["step_ns"] > 0
    trace = json.loads(gzip.decompress((folder / LIGHT).read_bytes()))
    assert b".tmp" not in gzip.decompress((folder / LIGHT).read_bytes())
    base = trace["baseTimeNanoseconds"]
    began = [round(each["ts"] * 1000) + base for each in trace["traceEvents"] if each.get("name") == "aten::linear"]
    assert len(began) == 4 or torch.cuda.is_available()
    for moment, (begin, end) in zip(began, light["marks_ns"], strict=False):
        assert begin - 50_000 <= moment <= end + 50_000


def test_a_host_that_was_waiting_warms_up_until_it_has_its_pace(
    folder: Path, step: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracemine.recording.Recording._from_idle", 2)  # as where a GPU is
    monkeypatch.setattr("tracemine.recording._WARM_NS", 300_000_000)
    counted = (1 + 3 + 2 + 1 + 2) + (1 + 2 + 2)

    def slow() -> None:
        step()
        time.sleep(0.02)

    assert counted + 5 <= recorded(folder, slow) <= counted + 15
    with tracemine.capture(folder, quiet=True, steps=2, warmup=1, timed=3) as recording:
        ran = sum(1 for _ in recording.steps(iter(range(counted))))  # which cannot begin again
    assert ran == counted and recording.done


def test_without_it_the_folder_is_as_it_was(folder: Path, step: Callable[[], None]) -> None:
    recorded(folder, step)
    recorded(folder, step, light=False)  # which replaces the other one
    assert held(folder) == WHOLE and about(folder)["light"] is None


@pytest.mark.parametrize("more", [0, 1, 2])
def test_a_program_that_ends_before_it_has_none_and_is_told(
    folder: Path, step: Callable[[], None], more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with (
        pytest.warns(UserWarning, match=r"no light window was recorded \(the program ended before\)"),
        tracemine.capture(folder, steps=2, warmup=1, timed=3, quiet=True) as recording,
    ):
        for _ in range(1 + 3 + 1 + 2 + more):
            step()
            recording.step()
        assert recording.whole and not recording.done
    assert held(folder) == WHOLE and about(folder)["steps"] == 2
    assert not torch.autograd._profiler_enabled()


def test_a_light_window_with_as_many_steps_is_kept(
    folder: Path, step: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with tracemine.capture(folder, steps=2, warmup=1, timed=3, quiet=True) as recording:
        for _ in range(1 + 3 + 1 + 2 + 1 + 2):
            step()
            recording.step()
    assert LIGHT in held(folder) and len(about(folder)["light"]["marks_ns"]) == 2


@pytest.mark.parametrize("method", ["prepare_trace", "start_trace", "stop_trace", "export_chrome_trace"])
def test_a_light_window_that_fails_takes_nothing_with_it(
    folder: Path, step: Callable[[], None], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    whole = getattr(torch.profiler.profile, method)

    def fails(profiler: torch.profiler.profile, *given: Any) -> None:
        whole(profiler, *given)
        if not profiler.record_shapes:
            raise RuntimeError("no more buffers\n#0 frame")

    with monkeypatch.context() as patched:
        patched.setattr(torch.profiler.profile, method, fails)
        with pytest.warns(UserWarning, match=r"no light window was recorded \(no more buffers\)"):
            recorded(folder, step)
    assert held(folder) == WHOLE and about(folder)["light"] is None
    assert not torch.autograd._profiler_enabled()
    recorded(folder, step)  # torch is as it was
    assert held(folder) == {*WHOLE, LIGHT}


def test_an_error_in_it_leaves_no_folder_and_no_profiler(folder: Path, step: Callable[[], None]) -> None:
    ran = 0
    with pytest.raises(KeyboardInterrupt), tracemine.capture(folder, steps=1, warmup=1, timed=0) as recording:
        for _ in recording.steps():
            step()
            ran += 1
            if ran == 5:
                raise KeyboardInterrupt
    assert not list(folder.parent.iterdir()) and not torch.autograd._profiler_enabled()


def test_a_block_without_steps_has_none(folder: Path, step: Callable[[], None]) -> None:
    with tracemine.capture(folder, quiet=True):
        step()
    assert held(folder) == WHOLE


def session(folder: Path, **options: Any) -> tuple[Session, list[str]]:
    said: list[str] = []
    watching = Session(Plan(after=3, steps=2, by="module", execution_trace=False, **options), folder, said.append)
    watching.watch()
    return watching, said


def run(steps: int) -> None:
    model, batch = torch.nn.Linear(8, 8), torch.randn(4, 8)
    for _ in range(steps):
        model(batch)


def test_a_program_gets_one_after_its_window(folder: Path) -> None:
    watching, said = session(folder)
    run(20)
    watching.close(whole=True)
    assert held(folder) == {ABOUT, TRACE, LIGHT} and len(about(folder)["light"]["marks_ns"]) == 4
    assert len(said) == 1 and "in the light window" not in said[0]  # what it cost is not known: nothing was timed


def test_a_program_may_do_without(folder: Path) -> None:
    watching, said = session(folder, light=False)
    run(20)
    watching.close(whole=True)
    assert held(folder) == {ABOUT, TRACE} and len(said) == 1


@pytest.mark.parametrize("whole", [True, False])
def test_a_program_that_ends_in_it_keeps_its_window(folder: Path, whole: bool) -> None:
    watching, said = session(folder)
    run(6)
    watching.close(whole=whole)
    assert held(folder) == {ABOUT, TRACE} and about(folder)["steps"] == 2 and not watching.failed
    assert said[1:] == [
        f"{folder}: no light window was recorded (the program ended before): how long gaps are unprofiled is estimated"
    ]
    assert not torch.autograd._profiler_enabled()


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
def test_the_programs_own_profiler_ends_it(folder: Path) -> None:
    watching, said = session(folder)
    model, batch = torch.nn.Linear(8, 8), torch.randn(4, 8)
    for _ in range(6):
        model(batch)
    with torch.profiler.profile() as profiler:
        model(batch)
    assert any(event.name == "aten::linear" for event in profiler.events())
    watching.close(whole=True)
    assert held(folder) == {ABOUT, TRACE} and about(folder)["steps"] == 2
    assert "no light window was recorded" in said[1]
