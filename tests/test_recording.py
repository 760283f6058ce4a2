"""`tracemine.capture` records what scan needs into one folder, says what that cost, and leaves nothing half-done."""

from __future__ import annotations

import dataclasses
import gzip
import json
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tracemine
from tracemine.errors import TracemineError, UsageError
from tracemine.recording import ABOUT, EXECUTION_TRACE, TRACE

WHOLE = {ABOUT, EXECUTION_TRACE, TRACE}
ROOT = Path(__file__).parents[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def train() -> Callable[[], None]:
    """A training step with a forward, a backward and an optimizer."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(4, 8)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    return step


def document(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return read


def events(folder: Path, *categories: str) -> list[dict[str, Any]]:
    return [event for event in document(folder / TRACE)["traceEvents"] if event.get("cat") in categories]


def marks(folder: Path) -> list[str]:
    names = (event["name"] for event in events(folder, "user_annotation"))
    return [name for name in names if name.startswith("ProfilerStep")]


def about(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / ABOUT).read_text())
    return read


def held(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def execution_ids(folder: Path) -> Counter[int]:
    attributes = (a for node in document(folder / EXECUTION_TRACE)["nodes"] for a in node["attrs"])
    return Counter(a["value"] for a in attributes if a["name"] == "rf_id" and a["value"])


def profiler_ids(folder: Path) -> Counter[int]:
    return Counter(event["args"]["Record function id"] for event in events(folder, "cpu_op", "user_annotation"))


def test_as_many_steps_are_marked_as_were_asked_for(folder: Path, train: Callable[[], None]) -> None:
    ran = 0
    with tracemine.capture(folder, steps=2, warmup=1, timed=3, quiet=True) as recording:
        for _ in recording.steps():
            train()
            ran += 1
    assert held(folder) == WHOLE
    assert marks(folder) == ["ProfilerStep#0", "ProfilerStep#1"]
    assert ran == 1 + 3 + 1 + 2
    assert recording.done


def test_names_of_folders_may_be_as_long_as_the_system_lets_them(tmp_path: Path, train: Callable[[], None]) -> None:
    folder = tmp_path / ("r" * 255)
    with tracemine.capture(folder, quiet=True):
        train()
    assert held(folder) == WHOLE
    assert held(tmp_path) == {folder.name}


def test_the_trace_opens_with_shapes_stacks_modules_and_steps(folder: Path, train: Callable[[], None]) -> None:
    pytest.importorskip("msgspec")  # a machine that records need not be one that scans
    from tracemine.formats import open_trace

    with tracemine.capture(folder, steps=2, quiet=True) as recording:
        for _ in recording.steps():
            train()
    timeline = open_trace(folder / TRACE)
    assert timeline.meta.record_shapes and timeline.meta.with_stack and timeline.meta.profile_memory is False
    assert "aten::addmm" in timeline.ops.column("name").to_pylist()
    names = {event["name"] for event in events(folder, "python_function")}
    assert {"nn.Module: Sequential_0", "nn.Module: Linear_0"} <= names
    assert any(Path(__file__).name in name and name.endswith(": step") for name in names)


def test_every_recorded_operator_is_in_the_execution_trace_once(folder: Path, train: Callable[[], None]) -> None:
    with tracemine.capture(folder, steps=2, quiet=True) as recording:
        for _ in recording.steps():
            train()
    ids = profiler_ids(folder)
    assert ids and 0 not in ids and max(ids.values()) == 1
    assert ids == execution_ids(folder)


def test_the_cost_of_recording_is_measured_on_steps_that_ran_alone(folder: Path, train: Callable[[], None]) -> None:
    with tracemine.capture(folder, steps=2, quiet=True) as recording:
        for _ in recording.steps():
            train()
    written = about(folder)
    assert recording.written is not None and written == dataclasses.asdict(recording.written)
    assert written["alone_step_ns"] > 0 and written["recorded_step_ns"] > 0
    assert written["slowdown"] == round(written["recorded_step_ns"] / written["alone_step_ns"], 3)


def test_what_was_not_measured_is_null(folder: Path, train: Callable[[], None]) -> None:
    with tracemine.capture(folder, steps=1, timed=0, quiet=True) as recording:
        for _ in recording.steps():
            train()
    written = about(folder)
    assert written["alone_step_ns"] is None and written["slowdown"] is None and written["recorded_step_ns"] > 0


def test_a_block_that_asks_for_no_steps_is_recorded_from_its_first_line(
    folder: Path, train: Callable[[], None]
) -> None:
    with tracemine.capture(folder, quiet=True):
        train()
        train()
    names = Counter(event["name"] for event in events(folder, "cpu_op"))
    assert names["aten::addmm"] == 2
    assert marks(folder) == [] and about(folder)["steps"] == 0 and about(folder)["slowdown"] is None
    assert profiler_ids(folder) == execution_ids(folder)


def test_what_follows_the_last_step_is_in_no_step(folder: Path, train: Callable[[], None]) -> None:
    with tracemine.capture(folder, quiet=True) as recording:
        for _ in range(3):
            train()
            recording.step()
        train()
    assert marks(folder) == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    assert about(folder)["steps"] == 3
    assert "in no step" in {node["name"] for node in document(folder / EXECUTION_TRACE)["nodes"]}


def test_a_loop_may_go_on_after_the_last_recorded_step(folder: Path, train: Callable[[], None]) -> None:
    with tracemine.capture(folder, steps=1, warmup=0, timed=0, quiet=True) as recording:
        for index in range(4):
            assert recording.done == (index > 0)
            train()
            recording.step()
    assert marks(folder) == ["ProfilerStep#0"]
    assert Counter(event["name"] for event in events(folder, "cpu_op"))["aten::addmm"] == 1


def test_batches_that_run_out_begin_again(folder: Path) -> None:
    seen: list[int] = []
    with tracemine.capture(folder, steps=2, warmup=0, timed=3, quiet=True) as recording:
        for batch in recording.steps([1, 2]):
            torch.ones(batch)
            seen.append(batch)
    assert seen == [1, 2, 1, 2, 1]


def test_without_a_number_of_steps_every_batch_is_one(folder: Path) -> None:
    with tracemine.capture(folder, quiet=True) as recording:
        for batch in recording.steps([1, 2, 3]):
            torch.ones(batch)
    assert len(marks(folder)) == 3
    with pytest.raises(UsageError, match="would never end"), tracemine.capture(folder, quiet=True) as recording:
        recording.steps()


def test_fewer_steps_than_asked_for_are_kept_with_a_warning(folder: Path, train: Callable[[], None]) -> None:
    with (
        pytest.warns(UserWarning, match="after 1 of 5 recorded steps"),
        tracemine.capture(folder, steps=5, warmup=0, timed=0, quiet=True) as recording,
    ):
        for _ in recording.steps(iter([1])):
            train()
    assert marks(folder) == ["ProfilerStep#0"]
    assert about(folder)["steps"] == 1 and about(folder)["steps_asked"] == 5
    assert about(folder)["recorded_step_ns"] is None


@pytest.mark.parametrize("ran", [0, 1, 4])
def test_a_block_that_ends_before_a_step_was_recorded_writes_nothing(
    folder: Path, train: Callable[[], None], ran: int
) -> None:
    with (
        pytest.raises(UsageError, match=rf"the block ended after {ran} steps?, before any was recorded"),
        tracemine.capture(folder, steps=2) as recording,
    ):
        for _ in range(ran):
            train()
            recording.step()
    assert not list(folder.parent.iterdir())
    assert not torch.autograd._profiler_enabled()


@pytest.mark.parametrize("ran", [0, 4, 5, 6, 7])
def test_an_error_in_the_block_leaves_no_folder_and_no_profiler(
    folder: Path, train: Callable[[], None], ran: int
) -> None:
    with pytest.raises(KeyboardInterrupt), tracemine.capture(folder, steps=2) as recording:
        for _ in range(ran):
            train()
            recording.step()
        raise KeyboardInterrupt
    assert not list(folder.parent.iterdir())
    assert not torch.autograd._profiler_enabled()
    with tracemine.capture(folder, quiet=True):  # torch is as it was: the next capture is whole
        train()
    assert held(folder) == WHOLE and profiler_ids(folder) == execution_ids(folder)


def test_an_error_leaves_the_earlier_capture_alone(folder: Path, train: Callable[[], None]) -> None:
    with tracemine.capture(folder, quiet=True):
        train()
    before = {name: (folder / name).read_bytes() for name in WHOLE}
    with pytest.raises(ZeroDivisionError), tracemine.capture(folder):
        raise ZeroDivisionError
    assert before == {name: (folder / name).read_bytes() for name in WHOLE}


def test_an_earlier_capture_and_an_empty_folder_are_replaced(folder: Path, train: Callable[[], None]) -> None:
    folder.mkdir()
    for memory in (False, True):
        with tracemine.capture(folder, memory=memory, quiet=True):
            train()
        assert about(folder)["memory"] is memory
    assert held(folder) == WHOLE and held(folder.parent) == {"run"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["notes.txt"], "run: holds what no capture wrote: notes.txt"),
        ([TRACE], "run: holds what no capture wrote: trace.json.gz"),  # somebody else's trace
        ([ABOUT, TRACE, "findings.json"], "run: holds what no capture wrote: findings.json"),
        (list("abcd"), "run: holds what no capture wrote: a, b, c, …"),
    ],
)
def test_a_folder_that_is_no_capture_is_refused_before_anything_runs(
    folder: Path, files: list[str], message: str
) -> None:
    folder.mkdir()
    for name in files:
        (folder / name).write_text("mine")
    with pytest.raises(UsageError) as raised, tracemine.capture(folder):
        pytest.fail("the block ran")
    assert message in str(raised.value) and "\n" in str(raised.value)
    assert held(folder) == set(files) and held(folder.parent) == {"run"}


def test_a_file_is_refused(folder: Path) -> None:
    folder.write_text("mine")
    with pytest.raises(UsageError, match="run: is a file"), tracemine.capture(folder):
        pytest.fail("the block ran")
    assert folder.read_text() == "mine"


def test_a_folder_that_came_to_be_meanwhile_is_not_replaced(folder: Path, train: Callable[[], None]) -> None:
    with (
        pytest.raises(UsageError, match=r"run: cannot be written: .*\n.*each process of a job needs a folder"),
        tracemine.capture(folder),
    ):
        train()
        folder.mkdir()
        (folder / ABOUT).write_text("{}")
    assert held(folder) == {ABOUT} and held(folder.parent) == {"run"}


def test_folders_above_it_are_made(tmp_path: Path, train: Callable[[], None]) -> None:
    with tracemine.capture(tmp_path / "a" / "b" / "run", quiet=True):
        train()
    assert held(tmp_path / "a" / "b") == {"run"}


def test_allocations_are_recorded_on_request(folder: Path, train: Callable[[], None]) -> None:
    from tracemine.formats import open_trace

    for memory in (True, False):
        with tracemine.capture(folder, memory=memory, quiet=True):
            train()
        found = [event for event in events(folder, "cpu_instant_event") if event["name"] == "[memory]"]
        assert bool(found) is memory
        assert open_trace(folder).memory.num_rows == len(found)


def test_stacks_can_be_left_out(folder: Path, train: Callable[[], None]) -> None:
    with tracemine.capture(folder, stacks=False, quiet=True):
        train()
    assert events(folder, "cpu_op") and not events(folder, "python_function")


def test_the_execution_trace_can_be_left_out(folder: Path, train: Callable[[], None]) -> None:
    with tracemine.capture(folder, execution_trace=False, quiet=True):
        train()
    assert held(folder) == {TRACE, ABOUT} and about(folder)["execution_trace"] is None
    assert set(profiler_ids(folder)) == {0}


def test_the_files_name_no_folder_that_is_gone(folder: Path, train: Callable[[], None]) -> None:
    with tracemine.capture(folder, stacks=False, quiet=True):
        train()
    for name in WHOLE - {ABOUT}:
        assert b".tmp" not in gzip.decompress((folder / name).read_bytes())


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")  # torch before 2.13, of the outer one
def test_a_capture_inside_another_profiler_is_refused(folder: Path) -> None:
    with (
        torch.profiler.profile(),
        pytest.raises(UsageError, match="a profiler is recording already"),
        tracemine.capture(folder),
    ):
        pytest.fail("the block ran")
    assert not list(folder.parent.iterdir())


@pytest.mark.parametrize("options", [{"steps": 0}, {"steps": 1.5}, {"steps": 1, "warmup": -1}, {"timed": "3"}])
def test_a_number_that_cannot_be_is_refused(folder: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="an integer from"), tracemine.capture(folder, **options):
        pytest.fail("the block ran")


def test_an_execution_trace_that_is_not_written_is_null_and_warned_about(
    folder: Path, train: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.profiler.ExecutionTraceObserver, "register_callback", lambda self, path: self)
    with pytest.warns(UserWarning, match="no execution trace"), tracemine.capture(folder, quiet=True):
        train()
    assert held(folder) == {TRACE, ABOUT} and about(folder)["execution_trace"] is None


@pytest.mark.parametrize("method", ["prepare_trace", "start_trace", "stop_trace", "export_chrome_trace"])
def test_a_profiler_that_fails_leaves_no_folder_and_torch_as_it_was(
    folder: Path, train: Callable[[], None], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def fail(*_: object) -> object:
        raise RuntimeError("out of events")

    with monkeypatch.context() as patched:
        whole = getattr(torch.profiler.profile, method)
        patched.setattr(torch.profiler.profile, method, lambda self, *given: (whole(self, *given), fail()))
        with pytest.raises(RuntimeError, match="out of events"), tracemine.capture(folder):
            train()
    assert not list(folder.parent.iterdir()) and not torch.autograd._profiler_enabled()
    with tracemine.capture(folder, quiet=True):
        train()
    assert held(folder) == WHOLE and profiler_ids(folder) == execution_ids(folder)


def test_an_older_torch_that_warns_of_its_only_cycle_is_not_heard(
    folder: Path, train: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = torch.profiler.profile.prepare_trace

    def warns(profiler: torch.profiler.profile) -> None:
        warnings.warn("Warning: Profiler clears events at the end of each cycle.", stacklevel=1)
        whole(profiler)

    monkeypatch.setattr(torch.profiler.profile, "prepare_trace", warns)
    with tracemine.capture(folder, quiet=True):
        train()
    assert held(folder) == WHOLE


def test_an_older_torch_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.3.1+cu121")
    with pytest.raises(UsageError, match=r"needs torch 2\.4 or newer, and this is 2\.3\.1"), tracemine.capture(folder):
        pytest.fail("the block ran")


def test_a_missing_torch_is_named_with_the_way_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TracemineError, match=r"needs torch.*\n.*pip install"), tracemine.capture(folder):
        pytest.fail("the block ran")


def test_one_line_says_what_was_written_what_it_cost_and_what_next(
    folder: Path, train: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with tracemine.capture(folder, steps=1) as recording:
        for _ in recording.steps():
            train()
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1
    assert err.startswith(f"{folder}: 1 step, ") and err.endswith(f"Next: tracemine scan {folder}\n")
    assert " alone and " in err and " recorded (" in err
    with tracemine.capture(folder, quiet=True):
        train()
    assert capsys.readouterr() == ("", "")


SCAN = "from tracemine.cli import main; assert main(['scan', '--quiet', 'fixtures/kineto/chain.json.gz']) == 0"


@pytest.mark.parametrize(
    ("program", "unneeded"),
    [
        ("import tracemine; tracemine.__version__", "tracemine.recording"),
        ("import tracemine; tracemine.capture", "torch"),
        (SCAN, "tracemine.recording"),
        (SCAN, "torch"),
    ],
)
def test_nothing_but_a_capture_loads_torch(program: str, unneeded: str) -> None:
    pytest.importorskip("msgspec")
    asked = f"{program}\nimport sys; assert {unneeded!r} not in sys.modules"
    subprocess.run([sys.executable, "-W", "error", "-c", asked], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_on_a_gpu_its_activities_are_recorded_and_its_driver_named(folder: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.GELU()).cuda()
    batch = torch.randn(256, 1024, device="cuda")
    with tracemine.capture(folder, steps=3, memory=True) as recording:
        for _ in recording.steps():
            model(batch).sum().backward()
    written = about(folder)
    assert written["gpus"] and written["cuda"] and written["driver"]
    assert written["gpu_activities"] == len(events(folder, "kernel", "gpu_memcpy", "gpu_memset")) > 0
    assert written["slowdown"] > 0
    assert marks(folder) == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    assert profiler_ids(folder) == execution_ids(folder)
    kernels = Counter(event["name"] for event in events(folder, "kernel"))
    assert all(count % 3 == 0 for count in kernels.values())  # every step is whole


def test_what_was_recorded_is_scanned_where_the_block_has_ended(folder: Path, train: Callable[[], None]) -> None:
    with tracemine.capture(folder, steps=1, warmup=0, timed=0, quiet=True) as recording:
        with pytest.raises(UsageError, match="nothing is recorded yet"):
            recording.scan()
        for _ in recording.steps():
            train()
    report = recording.scan(min_saving="0ns")
    assert isinstance(report, tracemine.Report)
    assert report == tracemine.scan(folder, min_saving="0ns")
    assert report.trace.steps == 1


def test_a_recording_that_failed_is_not_scanned(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError), tracemine.capture(folder, quiet=True) as recording:
        _ = 1 / 0
    with pytest.raises(UsageError, match="nothing is recorded yet"):
        recording.scan()
