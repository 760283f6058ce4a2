"""Proofs side by side: verdicts keep their order, and no prover waits for the slowest of the others."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tracemine.errors import UsageError
from tracemine.verify import pipeline
from tracemine.verify.pipeline import How
from tracemine.verify.repro import emitter
from tracemine.verify.workers.validators import at_once

DECODE = Path(__file__).parents[3] / "fixtures" / "captures" / "decoder_decode"


def test_a_machine_that_does_nothing_else_proves_on_all_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert (at_once(alone=True), at_once(alone=False)) == (2, 1)


def test_without_a_gpu_a_long_proof_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from tracemine.pipeline import analyse, mined

    begun: list[int] = []
    third = threading.Event()

    def prove(*_: object) -> str:
        begun.append(len(begun))
        if begun[-1] == 2:  # while the first still runs
            third.set()
        return f"{begun[-1]}" if begun[-1] else str(third.wait(30))

    monkeypatch.setattr(pipeline, "at_once", lambda **_: 2)
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", prove)
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.answer", lambda *_: "not asked for")
    analysis = analyse(DECODE)
    flow, groups, scan = analysis.dataflow, analysis.groups, mined(analysis)
    able = pipeline.fusable(scan.findings)[:3]
    found = list(pipeline.verify(able, flow, groups, How()))
    assert [v.fingerprint for v in found] == [f.fingerprint for f in able]
    assert found[0].says == "True"


def test_what_is_proved_while_another_is_made_ready_is_kept_where_that_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("triton")
    from tracemine.pipeline import analyse, mined

    stock, made, validated = vars(pipeline)["prepared"], itertools.count(), threading.Event()

    def prove(*_: object) -> str:
        validated.set()
        return "proved before"

    def prepared(*given: Any) -> Any:
        if next(made):
            validated.wait(30)
            time.sleep(0.2)  # until its prover has said so
            raise KeyboardInterrupt
        return stock(*given)

    monkeypatch.setattr(pipeline, "at_once", lambda **_: 2)
    monkeypatch.setattr(pipeline, "prepared", prepared)
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", prove)
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.answer", lambda *_: "not asked for")
    analysis = analyse(DECODE)
    flow, groups, scan = analysis.dataflow, analysis.groups, mined(analysis)
    found = pipeline.verify(pipeline.fusable(scan.findings), flow, groups, How())
    assert next(found).says == "proved before"
    with pytest.raises(KeyboardInterrupt):
        next(found)


def test_a_reproduction_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "repro_0.py").mkdir()
    with emitter.Emitter(tmp_path) as emits, pytest.raises(UsageError, match=r"repro_0\.py: is not a regular file"):
        emits.write("repro_0.py", "")
