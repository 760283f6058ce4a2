"""What is compiled side by side before it is timed alone, and the processes that do it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.verdicts.test_verdict import ran
from tracemine.verify import pipeline
from tracemine.verify.pipeline import How
from tracemine.verify.workers import quick
from tracemine.verify.workers.quick import Ahead, Runner, at_once

ROOT = Path(__file__).parents[3]
DECODE = ROOT / "fixtures" / "captures" / "decoder_decode"

# --- a process that runs files, with a torch that has a GPU -----------------------------------------------------------

TORCH = """
class cuda:
    is_available = staticmethod(lambda: True)
    synchronize = staticmethod(lambda: None)
    empty_cache = staticmethod(lambda: None)

class _dynamo:
    reset = staticmethod(lambda: None)
"""
FILE = """
import os, sys, time
import beside
class CHECK:
    def results(**options):
        print("noise")
        return {"begun": beside.BEGUN, "pid": os.getpid(), "file": __file__, **options}
    def compile_only():
        raise ValueError("no\\nway")
"""


@pytest.fixture
def runner(tmp_path: Path) -> Any:
    (tmp_path / "torch.py").write_text(TORCH)
    found = Runner(tmp_path / "files", {**os.environ, "PYTHONPATH": str(tmp_path)})
    (tmp_path / "files" / "beside.py").write_text("import time\nBEGUN = time.perf_counter()\n")
    yield found
    found.close()


def test_files_are_run_one_after_another_in_one_process_and_what_lies_beside_them_is_loaded_once(
    runner: Runner,
) -> None:
    first, second = (runner.run(FILE, "results", 60.0, seconds=k) for k in range(2))
    assert isinstance(first, Mapping)
    assert isinstance(second, Mapping)
    assert (first["pid"], first["begun"]) == (second["pid"], second["begun"])
    assert (first["seconds"], second["seconds"]) == (0, 1)
    assert Path(first["file"]).name != Path(second["file"]).name


def test_what_a_file_raises_is_said_and_the_process_goes_on(runner: Runner) -> None:
    assert runner.run(FILE, "compile_only", 60.0) == "ValueError: no"
    assert runner.run("def", "results", 60.0) == "SyntaxError: invalid syntax (alone_1.py, line 1)"
    assert isinstance(runner.run(FILE, "results", 60.0), Mapping)


@pytest.mark.parametrize(
    ("body", "limit_s", "says"),
    [
        ("os._exit(3)", 60.0, "the reproduction ended with 3: it said nothing"),
        ("print('boom', file=sys.stderr, flush=True); os._exit(1)", 60.0, "the reproduction ended with 1: boom"),
        ("os.kill(os.getpid(), 9)", 60.0, "the reproduction was ended by SIGKILL"),
        ("time.sleep(600)", 2.0, "the GPU took longer than 2 s"),
    ],
)
def test_a_crash_or_a_hang_costs_its_own_file_alone(runner: Runner, body: str, limit_s: float, says: str) -> None:
    bad = f"import os, sys, time\nclass CHECK:\n    def results(): {body}\n"
    assert runner.run(bad, "results", limit_s) == says
    assert isinstance(runner.run(FILE, "results", 60.0), Mapping)


def test_without_a_gpu_a_file_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(TORCH.replace("True", "False"))
    runner = Runner(tmp_path / "files", {**os.environ, "PYTHONPATH": str(tmp_path)})
    assert runner.run("raise SystemExit(1)", "results", 60.0) == "this needs a GPU, and torch finds none"
    runner.close()


def test_output_that_is_closed_is_no_reason_to_wait_for_ever(runner: Runner) -> None:
    closes = "os.closerange(3, 64); time.sleep(600)"  # answers go to a copy of standard output
    bad = f"import os, time\nclass CHECK:\n    def results(): {closes}"
    said = runner.run(bad, "results", 2.0)
    assert said in (
        "the reproduction ended with 0: it said nothing",
        "the GPU took longer than 2 s",
    )  # seen by it, or us


def test_what_still_compiles_at_the_end_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Ahead(600.0) as found:
        found.start([f"import time, pathlib\npathlib.Path({str(tmp_path / 'on')!r}).touch()\ntime.sleep(600)"] * 9)
        while not (tmp_path / "on").exists():
            time.sleep(0.05)
        begun = time.monotonic()
    assert time.monotonic() - begun < 60


# --- what runs when ---------------------------------------------------------------------------------------------------


class Runs:
    """Stands in for `Runner.run`: notes what is run, and how many at a time."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str]] = []
        self.lock = threading.Lock()

    def __call__(self, runner: Runner, text: str, function: str, limit_s: float, **options: object) -> Any:
        with self.lock:
            self.notes.append((text, function))
        return "it ended" if function == "compile_only" else ran()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    found = Runs()
    monkeypatch.setattr(Runner, "run", lambda *given, **named: found(*given, **named))
    monkeypatch.setattr(quick, "at_once", lambda: 2)
    monkeypatch.setattr(pipeline, "BATCH", 2)
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *_: "not asked for")
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.answer", lambda *_: "not asked for")
    return found


def test_every_file_is_compiled_before_it_is_timed_and_two_are_never_timed_at_once(runs: Runs) -> None:
    pytest.importorskip("triton")
    from tracemine.pipeline import analyse, mined

    analysis = analyse(DECODE)
    flow, groups, scan = analysis.dataflow, analysis.groups, mined(analysis)
    some = pipeline.fusable(scan.findings)[:3]
    verdicts = list(pipeline.verify(some, flow, groups, How(gpu="GPU")))
    assert [v.level for v in verdicts] == ["L5"] * 3  # what could not be compiled ahead is timed all the same
    functions = [function for _, function in runs.notes]
    assert functions == ["compile_only"] * 2 + ["results"] * 2 + ["compile_only", "results"]
    assert [text for text, function in runs.notes if function == "results"] == [v.source for v in verdicts]


def test_what_was_chosen_while_others_worked_is_forgotten_and_what_was_compiled_is_not(runs: Runs) -> None:
    with Ahead(1.0) as found:
        cache = found.folder / "inductor" / "ab"
        cache.mkdir(parents=True)
        (cache / "kernel.py").touch()
        (cache / "kernel.best_config").touch()
        found.start(["a", "b", "c"])
        found.wait()
        assert [path.name for path in cache.iterdir()] == ["kernel.py"]
    assert sorted(text for text, _ in runs.notes) == ["a", "b", "c"]
    assert not found.folder.exists()


def test_max_autotune_is_compiled_behind_all_that_verdicts_need_and_is_timed_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, str, tuple[str, ...]]] = []

    def run(runner: Runner, text: str, function: str, limit_s: float, **options: Any) -> Any:
        asked.append((text, function, options["compiles"]))
        return "it ended" if (text, options["compiles"]) == ("b", ("tuned",)) else {}

    monkeypatch.setattr(Runner, "run", run)
    monkeypatch.setattr(quick, "at_once", lambda: 1)
    with Ahead(60.0) as found:
        found.start(["a", "b"])
        found.wait()
        for text in ("a", "b"):
            found.timed(text)
        monkeypatch.setattr(quick, "MORE_S", 0.0)
        found.start(["c"])
        found.wait()
        found.timed("c")
    compiled, tuned = ("compiled",), ("tuned",)
    assert asked[:2] == [(text, "compile_only", compiled) for text in "ab"]
    assert asked[2:4] == [(text, "compile_only", tuned) for text in "ab"]
    assert asked[4:6] == [("a", "results", compiled + tuned), ("b", "results", compiled)]
    assert asked[6:] == [("c", "compile_only", compiled), ("c", "results", compiled)]


@pytest.mark.parametrize(("cores", "abreast"), [(None, 1), (1, 1), (2, 1), (4, 2), (16, 8), (256, 8)])
def test_so_many_are_compiled_at_once(monkeypatch: pytest.MonkeyPatch, cores: int | None, abreast: int) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert at_once() == abreast
