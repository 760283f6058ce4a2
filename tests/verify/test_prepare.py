"""What is made ready of a finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

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
    stock = prepare.find

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
        with_call += ready.replacement is not None
    assert with_call == 2
