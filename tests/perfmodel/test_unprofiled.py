"""The step with nobody recording."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from tests.report.scans import SCAN
from tracemine.documents.words import unprofiled_text
from tracemine.findings.accounting import measure
from tracemine.findings.context import ScanContext
from tracemine.findings.record import UnprofiledTime
from tracemine.perfmodel import Unprofiled
from tracemine.perfmodel.unprofiled import as_recorded, estimated
from tracemine.pipeline import analyse

FIXTURES = Path(__file__).parents[2] / "fixtures"


def unprofiled(trace: str, alone_step_ns: int | None = None) -> tuple[Unprofiled, int | None]:
    analysis = analyse(FIXTURES / trace)
    timeline = replace(
        analysis.timeline, meta=msgspec.structs.replace(analysis.timeline.meta, alone_step_ns=alone_step_ns)
    )
    context = ScanContext(timeline, analysis.rows, analysis.device, measure(timeline), analysis.groups)
    return context.unprofiled, None if context.accounts.per_step is None else context.accounts.per_step.span_ns


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


def test_an_estimate_is_never_without_an_interval() -> None:
    for share in (0.1, 0.5, 0.99, 1.0):
        found = estimated(1_000_000, (share,) * 3, "guessed", of_step=True)
        assert found.low_ns < found.mid_ns
        assert found.mid_ns <= found.high_ns <= found.recorded_ns


def test_where_the_cost_of_recording_is_not_known_the_step_is_the_recorded_one_and_no_estimate() -> None:
    found = as_recorded(1_000_000, of_step=True)
    assert (found.source, found.mid_ns) == ("recorded", 1_000_000)
    alone = UnprofiledTime(low=found.low_ns, mid=found.mid_ns, high=found.high_ns, source=found.source)
    summary = msgspec.structs.replace(SCAN.summary, per_step=None, unprofiled_ns=alone)
    text = unprofiled_text(summary)
    assert text.startswith("as recorded 1.00 ms, what recording cost is not known")
    assert "estimated" not in text
