"""What is made ready of a finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tracemine.verdicts.candidate import LIBRARY
from tracemine.verify.internal_errors import Bugs
from tracemine.verify.rebuild.rebuilder import Rebuilder
from tracemine.verify.repro.emitter import Emitter

DECODE = Path(__file__).parents[2] / "fixtures" / "captures" / "decoder_decode"


def test_library_calls_are_looked_for_once_in_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    from tracemine.pipeline import analyse, mined
    from tracemine.verify import pipeline, prepare
    from tracemine.verify.library import validation_job

    analysis = analyse(DECODE)
    rebuilder, searched = Rebuilder(analysis.dataflow, analysis.groups), list[bytes]()
    stock = vars(prepare)["find"]

    def counted(graph: Any, *given: Any, **named: Any) -> Any:
        searched.append(msgspec.msgpack.encode(graph))
        return stock(graph, *given, **named)

    for module in (prepare, validation_job):
        monkeypatch.setattr(module, "find", counted)
    with_call = 0
    for finding in pipeline.fusable(mined(analysis).findings):
        searched.clear()
        with Emitter(None) as emitter:
            ready = prepare.prepared(finding, rebuilder, emitter, None, Bugs(), analysis.causes)
        assert len(searched) == len(set(searched)) > 0
        with_call += any(each.by == LIBRARY for each in ready.candidates)
    assert with_call == 2


def test_each_reproduction_is_run_and_written_once_and_a_call_alone_has_the_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A call stands in the kernel's file; where no kernel is generated, in one of its own."""
    from tracemine.codegen.graph import Unsupported
    from tracemine.pipeline import analyse, mined
    from tracemine.verify import pipeline, prepare

    analysis = analyse(DECODE)
    rebuilder = Rebuilder(analysis.dataflow, analysis.groups)
    findings = pipeline.fusable(mined(analysis).findings)

    def ready(folder: Path | None) -> list[prepare.Ready]:
        with Emitter(folder) as emitter:
            return [prepare.prepared(f, rebuilder, emitter, None, Bugs(), analysis.causes) for f in findings]

    kernels = [each for each in ready(None) if len(each.candidates) > 1]
    assert [(len(each.candidates), len(each.texts)) for each in kernels] == [(2, 1)] * 2

    def refuse(graph: object) -> None:
        raise Unsupported("not asked for")

    monkeypatch.setattr(prepare, "generate", refuse)
    alone = [each for each in ready(tmp_path) if each.texts]
    assert [[candidate.refused for candidate in each.candidates] for each in alone] == [
        ["no kernel is generated: not asked for", None]
    ] * 2
    written = {path.read_text() for path in tmp_path.glob("*_library.py")}
    assert written == {text for each in alone for text in each.texts}
