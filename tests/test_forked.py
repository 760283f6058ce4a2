"""Workers that begin loaded do what those do that are started."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason="Triton is not installed: pip install 'tracemine[verify]'")

import msgspec

from tests import forked
from tracemine import processes, programs
from tracemine.codegen import GraphBuilder
from tracemine.errors import UsageError
from tracemine.processes import Ended, Process
from tracemine.validate.record import Validation
from tracemine.validate.sandbox import WORKER, Sandbox, environment, make_job
from tracemine.verify.repro import standalone


def test_a_worker_that_is_forked_answers_as_one_that_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    b = GraphBuilder("halved")
    job = msgspec.json.encode(make_job(b.done(b.call("aten::mul.Tensor", b.input("x", (3, 5), "float32"), 0.5))))
    answers = []
    for start in (vars(processes)["start"], programs.start):
        monkeypatch.setattr(processes, "start", start)
        with Sandbox() as sandbox:
            answer = sandbox.answer(job)
        assert isinstance(answer, Validation), answer
        answers.append(msgspec.structs.replace(answer, seconds=0.0))
    assert answers[0] == answers[1]
    assert answers[0].trials > 10


def test_what_was_answered_in_a_run_is_answered_again() -> None:
    b = GraphBuilder("doubled")
    job = msgspec.json.encode(make_job(b.done(b.call("aten::mul.Tensor", b.input("x", (3, 5), "float32"), 2.0))))
    answers = []
    for _ in range(2):
        with Sandbox() as sandbox:
            answers.append(sandbox.answer(job))
    assert isinstance(answers[0], Validation), answers[0]
    assert answers[0] == answers[1]  # the seconds that it took, too


def test_its_end_is_told_as_that_of_any_other() -> None:
    with Process(WORKER, environment()) as process:
        process.start()
        assert isinstance(process._child, forked.Worker)
        with pytest.raises(subprocess.TimeoutExpired):
            process._child.wait(0.01)
        process._child.kill()
        with pytest.raises(Ended) as raised:
            process.ask(b"{}", 60.0)
        assert raised.value.code == -signal.SIGKILL
    with Process(WORKER, environment()) as process, pytest.raises(Ended) as raised:
        process.ask(b"no job", 60.0)
    assert raised.value.how.startswith("ended with 1: msgspec.DecodeError")


def test_what_may_find_other_modules_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    start = vars(processes)["start"]
    child = start((*WORKER[:-1], "no.such.module"), environment(), stderr=subprocess.PIPE)
    assert isinstance(child, subprocess.Popen)
    child.communicate()
    elsewhere = start(WORKER, environment(), stdin=subprocess.DEVNULL, stdout=sys.stderr)
    assert isinstance(elsewhere, subprocess.Popen)
    elsewhere.kill()
    elsewhere.communicate()


def test_a_file_that_is_forked_is_answered_limited_and_ended_as_one_that_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = {
        "answers": "import json, os, sys; print(json.dumps({os.getcwd() == os.getenv('TMPDIR'): sys.argv[1:]}))",
        "imports": "import sys; print('one', file=sys.stderr); raise ValueError('two')",
        "is beside": "import beside",
        "is killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "waits": "import time; time.sleep(60)",
        "eats": "bytearray(1 << 40)",
    }
    found = []
    for start in (vars(standalone)["start"], programs.start):
        monkeypatch.setattr(standalone, "start", start)
        told: dict[str, object] = {}
        for name, text in texts.items():
            try:
                limit_s = 1.0 if name == "waits" else 60.0
                told[name] = standalone.run(text, ["a", "--b"], limit_s, what="it", most_bytes=1 << 35)
            except UsageError as error:
                told[name] = error.message
        found.append(told)
    assert found[0] == found[1]
    assert found[0]["answers"] == {"true": ["a", "--b"]}
    assert found[0]["waits"] == "it took longer than 1 s"


def test_a_worker_is_forked_by_a_process_that_interprets_kernels_as_it_is_to(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    monkeypatch.setattr(programs, "start", lambda *_, **__: None)
    monkeypatch.setattr(forked, "Worker", lambda *_: None)
    monkeypatch.setattr(processes, "start", vars(processes)["start"])
    monkeypatch.setattr(standalone, "start", vars(standalone)["start"])
    forked.fork_workers(lambda loaded: asked.append(loaded) or loaded)  # type: ignore[func-returns-value]
    start = vars(processes)["start"]
    for module, interprets in (("verify.gpu.worker", "1"), ("verify.gpu.worker", "0"), ("fleet.worker", "1")):
        start(processes.worker(f"tracemine.{module}"), {"TRITON_INTERPRET": interprets})
    start(programs.python(str(forked.ROOT / "tracemine/verify/gpu/worker.py")), {})
    start(processes.worker("tracemine.codegen.triton.resources_worker"), {"TRITON_INTERPRET": "1"})
    start(("/somewhere/python",), {})
    assert asked == ["workers", "compiler", "tracemine", "compiler"]
