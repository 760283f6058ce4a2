"""The step with nobody recording."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from tracemine.findings.accounting import measure
from tracemine.findings.context import Book
from tracemine.perfmodel import Unprofiled
from tracemine.pipeline import analyse

FIXTURES = Path(__file__).parents[2] / "fixtures"


def unprofiled(trace: str, alone_step_ns: int | None = None) -> tuple[Unprofiled, int | None]:
    analysis = analyse(FIXTURES / trace)
    timeline = replace(
        analysis.timeline, meta=msgspec.structs.replace(analysis.timeline.meta, alone_step_ns=alone_step_ns)
    )
    book = Book(timeline, analysis.rows, analysis.device, measure(timeline), analysis.groups)
    return book.unprofiled, None if book.accounts.per_step is None else book.accounts.per_step.span_ns


def test_a_step_that_a_capture_timed_alone_is_taken_as_it_is() -> None:
    found, _ = unprofiled("captures/chain", alone_step_ns=123_456)
    assert found.source == "captured"
    assert (found.low_ns, found.mid_ns, found.high_ns) == (123_456,) * 3


def test_a_step_that_was_only_recorded_is_estimated_as_shorter_and_says_what_was_guessed() -> None:
    found, recorded = unprofiled("kineto/decoder_prefill.json.gz")
    assert found.source == "estimated"
    assert "guessed" in found.note
    assert recorded is not None
    assert 0 < found.low_ns <= found.mid_ns <= found.high_ns <= recorded
    assert found.low_ns < recorded
