"""A bug of ours that one finding comes upon is that finding's verdict: planted at each stage, the next goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.verdicts.test_verdict import ran
from tracemine.codegen.graph import GraphError, Unsupported
from tracemine.verify import pipeline
from tracemine.verify.pipeline import How
from tracemine.verify.rebuild.rebuilder import Rebuilder
from tracemine.verify.workers.quick import Runner

ROOT = Path(__file__).parents[2]
DECODE = ROOT / "fixtures" / "captures" / "decoder_decode"
STAGES = {  # what fails, and how far the finding gets: it is not judged beyond
    "tracemine.verify.rebuild.rebuilder.Rebuilder.rebuild": "L0",
    "tracemine.verify.prepare.find": "L5",  # the kernel has its verdict without a library's call
    "tracemine.verify.prepare._around": "L5",
    "tracemine.verify.prepare.generate": "L0",
    "tracemine.verify.prepare.tried": "L0",
    "tracemine.validate.sandbox.Sandbox.validate": "L5",
    "tracemine.verify.workers.quick.Ahead.timed": "L0",
    "tracemine.verify.pipeline.verdict": "L0",
}


@pytest.fixture
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU on which all is well, and no CPU that proves."""
    pytest.importorskip("triton")
    monkeypatch.setattr(Runner, "run", lambda *_, **__: ran())
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *_: "not asked for")
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.answer", lambda *_: "not asked for")


def failing_once(name: str, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call of a function fails, the others do not."""
    place, _, attribute = name.rpartition(".")
    owner: Any = {"Rebuilder": Rebuilder}.get(place.rpartition(".")[2])
    if owner is None:
        module, _, last = place.rpartition(".")
        imported = __import__(place if last.islower() else module, fromlist=["_"])
        owner = imported if last.islower() else getattr(imported, last)
    stock: Callable[..., Any] = getattr(owner, attribute)
    calls: list[None] = []

    def once(*given: Any, **named: Any) -> Any:
        calls.append(None)
        if len(calls) == 1:
            raise error
        return stock(*given, **named)

    monkeypatch.setattr(owner, attribute, once)


@pytest.mark.usefixtures("_gpu")
@pytest.mark.parametrize(("stage", "level"), STAGES.items())
@pytest.mark.parametrize("error", [LookupError("planted"), GraphError("planted")], ids=lambda e: type(e).__name__)
def test_a_bug_at_any_stage_is_said_of_its_finding_and_the_next_goes_on(
    error: Exception, stage: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tracemine.pipeline import analyse, mined

    analysis = analyse(DECODE)
    flow, groups, scan = analysis.dataflow, analysis.groups, mined(analysis)
    failing_once(stage, error, monkeypatch)
    first, *others = pipeline.verify(pipeline.fusable(scan.findings)[:3], flow, groups, How(gpu="GPU"))
    assert first.bug is not None
    assert first.bug.startswith("a bug in tracemine: ")
    assert first.bug.endswith(f"{type(error).__name__}: planted")
    assert first.level == level
    assert first.says == first.bug or level == "L5"
    assert [(v.level, v.bug) for v in others] == [("L5", None)] * 2


@pytest.mark.usefixtures("_gpu")
def test_a_kernel_that_is_generated_but_not_as_it_would_be_proved_is_timed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tracemine.pipeline import analyse, mined

    analysis = analyse(DECODE)
    flow, groups, scan = analysis.dataflow, analysis.groups, mined(analysis)
    failing_once("tracemine.validate.sandbox.Sandbox.validate", Unsupported("it rounds"), monkeypatch)
    first, second = pipeline.verify(pipeline.fusable(scan.findings)[:2], flow, groups, How(gpu="GPU"))
    assert [(v.level, v.bug) for v in (first, second)] == [("L5", None)] * 2
    assert "L2: no kernel is generated that could be validated: it rounds" in first.not_tested
