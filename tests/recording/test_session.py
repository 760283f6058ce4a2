"""Which steps of a program are recorded, and that it is left as it was: in this process, with what it would call."""

from __future__ import annotations

import gzip
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import record_function

import tracemine
from tracemine.errors import UsageError
from tracemine.recording import ABOUT, EXECUTION_TRACE, TRACE, session
from tracemine.recording.plan import Plan
from tracemine.recording.session import Session

WHOLE = {ABOUT, EXECUTION_TRACE, TRACE}
METHODS = (
    (torch.nn.Module, "__call__"),
    (torch.nn.Sequential, "__call__"),
    (torch.autograd.profiler.record_function, "__exit__"),
    (torch.autograd.profiler.profile, "__exit__"),
    (torch.autograd.profiler.profile, "_prepare_trace"),
    (torch.optim.Optimizer, "__init__"),
)


class Watched:
    """A session, and what it said."""

    def __init__(self, folder: Path, after: int = 4, steps: int = 2, **options: Any) -> None:
        self.folder, self.said = folder, list[str]()
        self.session = Session(Plan(after=after, steps=steps, **options), folder, self.said.append)
        self.session.watch()

    def end(self, *, whole: bool = True) -> Watched:
        self.session.close(whole=whole)
        return self

    def events(self, *categories: str) -> list[dict[str, Any]]:
        trace = json.loads(gzip.decompress((self.folder / TRACE).read_bytes()))
        return [event for event in trace["traceEvents"] if event.get("cat") in categories]

    def marks(self) -> list[str]:
        return sorted(name for name in self.names() if name.startswith("ProfilerStep#"))

    def batches(self) -> list[int]:
        """Numbers of the batches that were recorded, as `batch` names them."""
        return sorted(int(name.split()[1]) for name in self.names() if name.startswith("batch "))

    def names(self) -> list[str]:
        return [event["name"] for event in self.events("user_annotation")]


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Watched]]:
    """Make sessions; afterwards torch and SIGUSR2 are as they were."""
    before, handler = [getattr(owner, name) for owner, name in METHODS], signal.getsignal(signal.SIGUSR2)
    monkeypatch.setattr(session, "_LOOK_S", 0.01)
    yield lambda *given, **options: Watched(tmp_path / "run", *given, **options)
    signal.signal(signal.SIGUSR2, handler)
    assert [getattr(owner, name) for owner, name in METHODS] == before
    assert not torch.autograd._profiler_enabled()


@pytest.fixture
def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(8, 8)))


X = torch.randn(4, 8)


def batch(number: int) -> record_function:
    return record_function(f"batch {number}")


def infer(model: torch.nn.Module, steps: int, first: int = 1) -> None:
    for number in range(first, first + steps):
        with batch(number):
            model(X)


def train(model: torch.nn.Module, steps: int, forwards: int = 3) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(1, steps + 1):
        for _ in range(forwards):
            model(X).sum().backward()
        with batch(number):
            optimizer.step()


def test_calls_of_the_outermost_module_are_steps(watch: Callable[..., Watched], model: torch.nn.Module) -> None:
    watched = watch(after=4, steps=2)
    infer(model, 9)
    watched.end()
    assert {path.name for path in watched.folder.iterdir()} == WHOLE
    assert watched.marks() == ["ProfilerStep#0", "ProfilerStep#1"] and watched.batches() == [5, 6]
    assert watched.said[0].startswith(f"{watched.folder}: 2 steps by calls of Sequential, no GPU here")
    assert len(watched.said) == 1 and not watched.session.failed


def test_steps_of_the_first_optimizer_are_steps_and_forwards_are_not(
    watch: Callable[..., Watched], model: torch.nn.Module
) -> None:
    watched = watch(after=4, steps=2)
    other = torch.optim.Adam(model.parameters())
    train(model, 9)
    other.step()
    watched.end()
    assert len(watched.marks()) == 2 and watched.batches() == [5, 6]
    assert "2 steps by calls of SGD.step" in watched.said[0]


def test_marks_of_the_program_are_steps_and_none_is_added(
    watch: Callable[..., Watched], model: torch.nn.Module
) -> None:
    watched = watch(after=4, steps=2)
    for number in range(1, 9):
        with record_function(f"ProfilerStep#{number}"):
            train(model, 1)
    watched.end()
    assert watched.marks() == ["ProfilerStep#5", "ProfilerStep#6"]
    assert "2 steps by the program's marks" in watched.said[0]


def test_steps_of_a_profiler_that_waits_are_marks(watch: Callable[..., Watched], model: torch.nn.Module) -> None:
    watched = watch(after=4, steps=2)
    with torch.profiler.profile(schedule=torch.profiler.schedule(wait=50, warmup=1, active=1)) as profiler:
        for _ in range(9):
            model(X)
            profiler.step()
    watched.end()
    assert watched.marks() == ["ProfilerStep#4", "ProfilerStep#5"]


def test_a_capture_of_the_programs_own_is_whole_and_its_steps_are_marks(
    watch: Callable[..., Watched], model: torch.nn.Module, tmp_path: Path
) -> None:
    watched = watch(after=2, steps=2)
    with tracemine.capture(tmp_path / "own", steps=2, warmup=0, timed=0, quiet=True) as recording:
        for _ in range(9):
            model(X)
            recording.step()
    watched.end()
    assert {path.name for path in (tmp_path / "own").iterdir()} == WHOLE
    assert len(watched.marks()) == 0 and "2 steps by the program's marks" in watched.said[-1]


@pytest.mark.parametrize("by", ["marks", "optimizer", "module"])
def test_what_ends_a_step_can_be_chosen(watch: Callable[..., Watched], model: torch.nn.Module, by: str) -> None:
    watched = watch(after=3, steps=1, by=by)
    with record_function("ProfilerStep#1"):
        train(model, 6)
    for number in range(2, 9):
        with record_function(f"ProfilerStep#{number}"):
            pass
    said = {"marks": "the program's marks", "optimizer": "calls of SGD.step", "module": "calls of Sequential"}
    assert f"1 step by {said[by]}" in watched.end().said[0] or by == "module"


@pytest.mark.parametrize(("after", "timed", "warmup"), [(1, 0, 0), (2, 0, 0), (5, 0, 2), (16, 0, 3), (17, 10, 3)])
def test_as_many_steps_are_left_alone_as_are_asked_for_and_the_last_are_timed(
    watch: Callable[..., Watched], model: torch.nn.Module, after: int, timed: int, warmup: int
) -> None:
    watched = watch(after=after, steps=2, by="optimizer", stacks=False, execution_trace=False)
    train(model, after + 2, forwards=1)
    assert watched.end().batches() == [after + 1, after + 2]
    about = json.loads((watched.folder / ABOUT).read_text())
    assert (about["timed"], about["warmup"], about["steps"]) == (timed, warmup, 2)
    assert (about["alone_step_ns"] is not None) is bool(timed)
    assert ("not measured (--after 20 does)" in watched.said[0]) is not bool(timed)


def test_torch_is_as_it_was_once_the_window_is_written(watch: Callable[..., Watched], model: torch.nn.Module) -> None:
    before = [getattr(owner, name) for owner, name in METHODS]
    watched = watch(after=1, steps=1)
    assert [getattr(owner, name) for owner, name in METHODS] != before
    infer(model, 3)
    assert [getattr(owner, name) for owner, name in METHODS] == before
    assert watched.said and watched.end().folder.is_dir()


def test_a_module_that_was_called_once_is_not_the_program(watch: Callable[..., Watched]) -> None:
    watched = watch(after=2, steps=1)
    torch.nn.Tanh()(X)
    model = torch.nn.Linear(8, 8)
    infer(model, 5)
    assert "by calls of Linear" in watched.end().said[0]


def test_calls_within_torch_compile_are_compiled_once_and_without_us(
    watch: Callable[..., Watched], model: torch.nn.Module
) -> None:
    compiled = list[Any]()

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(str(graph.code))
        return graph.forward

    torch._dynamo.reset()
    watched = watch(after=2, steps=1)
    infer(torch.compile(model, backend=backend, fullgraph=True), 5)
    watched.end()
    infer(torch.compile(model, backend=backend, fullgraph=True), 2)
    assert "by calls of OptimizedModule" in watched.said[0] and len(compiled) == 1


def test_a_compiled_function_that_ends_no_step_is_compiled_once(
    watch: Callable[..., Watched], model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = list[int]()

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(1)
        return graph.forward

    function = torch.compile(lambda x: model(x) + 1, backend=backend)
    torch._dynamo.reset()
    monkeypatch.setattr(session, "_PATIENCE_S", 0.1)
    watched = watch(after=1, steps=1, on_signal=True)
    os.kill(os.getpid(), signal.SIGUSR2)
    time.sleep(0.1)
    until = time.monotonic() + 8
    while len(watched.said) < 2 and time.monotonic() < until:
        function(X)
        time.sleep(0.05)
    function(X)
    assert "by time" in watched.said[1] and compiled == [1]
    watched.end()


@pytest.mark.parametrize("ran", [0, 3, 4])
def test_a_program_that_ends_before_its_window_leaves_nothing(
    watch: Callable[..., Watched], model: torch.nn.Module, ran: int
) -> None:
    watched = watch(after=4, steps=2)
    infer(model, ran)
    watched.end()
    assert watched.session.failed and list(watched.folder.parent.iterdir()) == []
    why = f"the program ended after {ran} steps by calls of Sequential, and a window needs 5 (--after 4)"
    assert watched.said == [f"nothing was recorded: {why if ran else watched.session._why()}"]


def test_a_window_that_the_programs_end_cuts_short_is_kept(
    watch: Callable[..., Watched], model: torch.nn.Module
) -> None:
    watched = watch(after=4, steps=3)
    infer(model, 6)
    watched.end()
    assert len(watched.marks()) == 2 and not watched.session.failed
    assert watched.said[1] == f"{watched.folder}: recording ended after 2 of 3 recorded steps"


def test_a_window_that_an_error_cuts_short_is_not(watch: Callable[..., Watched], model: torch.nn.Module) -> None:
    watched = watch(after=4, steps=3)
    infer(model, 6)
    watched.end(whole=False)
    assert watched.said == ["nothing was recorded: the program ended with an error before its window did"]
    assert watched.session.failed and list(watched.folder.parent.iterdir()) == []


def test_a_profiler_of_the_programs_own_is_not_disturbed_and_the_window_waits(
    watch: Callable[..., Watched], model: torch.nn.Module
) -> None:
    watched = watch(after=4, steps=2, by="module")
    with torch.profiler.profile() as profiler:
        infer(model, 9)
    assert len([event for event in profiler.events() if event.name.startswith("batch")]) == 9
    infer(model, 6, first=10)
    watched.end()
    assert watched.batches() == [13, 14]  # of the four that are left alone two had passed
    assert watched.said[0] == session._WAITS and watched.said[1].startswith(f"{watched.folder}: 2 steps")


def test_a_window_makes_way_for_a_profiler_of_the_programs_own(
    watch: Callable[..., Watched], model: torch.nn.Module
) -> None:
    watched = watch(after=4, steps=9)
    infer(model, 6)
    assert watched.session._recording is not None and watched.session._recording._recording
    with torch.profiler.profile() as profiler:
        infer(model, 3)
    assert len([event for event in profiler.events() if event.name.startswith("batch")]) == 3
    watched.end()
    assert watched.said[0] == session._WAITS and watched.session.failed
    assert list(watched.folder.parent.iterdir()) == []


def test_a_profiler_that_never_ends_is_why_nothing_was_recorded(
    watch: Callable[..., Watched], model: torch.nn.Module
) -> None:
    watched = watch(after=1, steps=1)
    with torch.profiler.profile():
        infer(model, 3)
        watched.end()
    assert watched.said == [session._WAITS, "nothing was recorded: the program's own profiler was recording"]


def test_a_profile_function_of_the_program_stays_and_costs_the_lines(
    watch: Callable[..., Watched], model: torch.nn.Module
) -> None:
    seen = list[Any]()
    watched = watch(after=2, steps=1)
    sys.setprofile(function := lambda *given: seen.append(given))
    try:
        infer(model, 4)
        assert sys.getprofile() is function
    finally:
        sys.setprofile(None)
    watched.end()
    assert "sys.setprofile" in watched.said[0] and not watched.events("python_function")


def test_seconds_are_steps_where_they_are_asked_for(watch: Callable[..., Watched], model: torch.nn.Module) -> None:
    watched = watch(after=1, steps=1, by="time")
    until = time.monotonic() + 8
    while not watched.said and time.monotonic() < until:
        model(X)
        time.sleep(0.05)
    watched.end()
    assert watched.said[0].startswith(f"{watched.folder}: no steps marked (by time)")
    assert {event["name"] for event in watched.events("cpu_op")} >= {"aten::linear"} and not watched.marks()


def test_a_server_records_a_window_for_each_signal_from_any_of_its_threads(
    watch: Callable[..., Watched], model: torch.nn.Module
) -> None:
    watched = watch(after=2, steps=3, on_signal=True)
    round_over = threading.Barrier(2)

    def serve() -> None:
        with suppress(threading.BrokenBarrierError):
            while True:
                model(X)
                round_over.wait()  # both are in any three steps, and at work at the same time

    threads = [threading.Thread(target=serve) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for count in (1, 2):
            os.kill(os.getpid(), signal.SIGUSR2)
            until = time.monotonic() + 20
            while len(watched.said) < 1 + count and time.monotonic() < until:
                time.sleep(0.01)
    finally:
        round_over.abort()
        for thread in threads:
            thread.join()
    watched.end()
    assert [line.partition(",")[0] for line in watched.said] == [
        f"kill -USR2 {os.getpid()} records a window into {watched.folder}",
        f"{watched.folder}: 3 steps by calls of Sequential",
        f"{watched.folder}: 3 steps by calls of Sequential",
    ]
    assert len({event["tid"] for event in watched.events("cpu_op")}) == 2
    assert len(watched.marks()) == 3 and not watched.session.failed


def test_a_module_that_runs_when_the_signal_comes_is_not_mistaken_for_a_part_of_it(
    watch: Callable[..., Watched],
) -> None:
    class Slow(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not watched.session._asked:
                os.kill(os.getpid(), signal.SIGUSR2)
                time.sleep(0.2)
            return self.inner(self.inner(x))

    watched = watch(after=1, steps=1, on_signal=True)
    infer(Slow(), 3)
    assert "1 step by calls of Slow" in watched.end().said[1]


def test_seconds_are_steps_of_a_server_that_ends_none(
    watch: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_PATIENCE_S", 0.1)
    watched = watch(after=1, steps=1, on_signal=True)
    os.kill(os.getpid(), signal.SIGUSR2)
    until = time.monotonic() + 8
    while len(watched.said) < 2 and time.monotonic() < until:
        torch.add(X, X)
        time.sleep(0.05)
    assert "no steps marked (by time)" in watched.end().said[1]


def test_a_second_signal_is_ignored_with_a_line(
    watch: Callable[..., Watched], capfd: pytest.CaptureFixture[str]
) -> None:
    watched = watch(after=2, steps=1, on_signal=True)
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGUSR2)
        time.sleep(0.1)
    watched.end()
    assert (
        capfd.readouterr().err
        == "tracemine capture: " + "a window is open or asked for already: this SIGUSR2 is ignored\n"
    )
    assert watched.session.failed


def test_no_signal_is_no_failure(watch: Callable[..., Watched], model: torch.nn.Module) -> None:
    watched = watch(on_signal=True)
    infer(model, 30)
    watched.end()
    assert watched.said[1:] == ["nothing was recorded: no SIGUSR2 came"] and not watched.session.failed


def test_the_programs_own_handler_of_the_signal_is_left_to_it(watch: Callable[..., Watched]) -> None:
    watched, came = watch(on_signal=True), list[int]()
    signal.signal(signal.SIGUSR2, lambda number, _: came.append(number))
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGUSR2)
    watched.end()
    assert came == [signal.SIGUSR2] and watched.session.failed
    assert watched.said[1].startswith("nothing was recorded: the program handles SIGUSR2 itself")


def test_a_forked_child_records_nothing_and_harms_nothing(
    watch: Callable[..., Watched], model: torch.nn.Module
) -> None:
    watched = watch(after=2, steps=4, on_signal=False)
    infer(model, 4)
    child = os.fork()
    if child == 0:  # in the midst of the window
        infer(model, 9)
        watched.end()
        os._exit(0 if not watched.said and watched.session._recording is not None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    infer(model, 4, first=5)
    watched.end()
    assert watched.batches() == [3, 4, 5, 6] and len(watched.marks()) == 4


def test_a_folder_that_is_none_of_ours_is_refused_before_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"run: holds what no capture wrote: notes\.txt"):
        Watched(tmp_path / "run")


def test_an_earlier_recording_is_replaced_behind_a_link_too(
    watch: Callable[..., Watched], model: torch.nn.Module, tmp_path: Path
) -> None:
    for steps in (1, 2):
        (tmp_path / "place").mkdir(exist_ok=True)
        if steps == 1:
            (tmp_path / "run").symlink_to(tmp_path / "place")
        watched = watch(after=1, steps=steps)
        infer(model, 5)
        assert len(watched.end().marks()) == steps and not watched.session.failed
    assert (tmp_path / "run").is_symlink() and {path.name for path in (tmp_path / "place").iterdir()} == WHOLE


def test_a_folder_that_cannot_be_written_is_told_and_the_program_goes_on(
    watch: Callable[..., Watched], model: torch.nn.Module, tmp_path: Path
) -> None:
    watched = watch(after=1, steps=1)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    infer(model, 5)
    watched.end()
    assert watched.session.failed and watched.said == [
        "nothing was recorded: holds what no capture wrote: notes.txt "
        "(pass another folder; only an earlier capture is replaced)"
    ]


def test_each_process_of_a_job_has_a_folder(
    watch: Callable[..., Watched], model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    watched = watch(after=1, steps=1)
    infer(model, 3)
    watched.end()
    assert {path.name for path in (watched.folder / "rank1").iterdir()} == WHOLE
    assert watched.said[0].startswith(f"{watched.folder / 'rank1'}: 1 step")


def test_the_folder_is_where_it_was_named_when_the_program_goes_elsewhere(
    model: torch.nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    watched = Watched(Path("run"), after=1, steps=1)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    infer(model, 3)
    watched.end()
    assert (tmp_path / "run" / TRACE).is_file()


def test_a_mistake_of_ours_is_told_and_the_program_goes_on(
    watch: Callable[..., Watched], model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of events")

    monkeypatch.setattr(torch.profiler.profile, "start_trace", fail)
    watched = watch(after=1, steps=1)
    infer(model, 3)
    watched.end()
    assert watched.session.failed and len(watched.said) == 1
    assert watched.said[0].startswith("nothing was recorded: tracemine has a bug in ")
