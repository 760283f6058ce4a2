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
from tracemine.processes import Ended, Process
from tracemine.validate.jobs import WORKER, environment, make_job
from tracemine.validate.record import Validation
from tracemine.validate.sandbox import Sandbox


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
