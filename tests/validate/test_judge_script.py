"""benchmarks/proofs/judge.py ends in its time, whatever the processes do that it asks."""

from __future__ import annotations

import argparse
import threading
import time
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks.proofs import judge


class Held:
    """A process that neither answers nor goes, as one that a driver holds."""

    def __init__(self, *_: Any) -> None:
        self.never = threading.Event()

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.never.wait()

    def ask(self, line: bytes, limit_s: float) -> bytes:
        self.never.wait()
        return line


def test_a_run_ends_in_its_time_though_a_process_neither_answers_nor_goes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(judge, "Process", Held)
    monkeypatch.setattr(judge, "FURTHER_S", 0.2)
    monkeypatch.setattr(judge, "LEFT_S", 0.1, raising=False)
    run = judge.Run(argparse.Namespace(seconds=0.2, output=None, dry=True, processes=2))
    asked = judge.questions(["nucleus", "gumbel"], judge.SMALL)
    asking = threading.Thread(target=run.ask, args=(asked,), daemon=True)
    begun = time.monotonic()
    asking.start()
    asking.join(10)
    assert not asking.is_alive()
    assert time.monotonic() - begun < 5
    assert "2 processes do not go" in capsys.readouterr().out
    assert judge.summary(run.results, len(asked)) == 0
    assert f"{len(asked)} not reached in time" in capsys.readouterr().out
