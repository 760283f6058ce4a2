"""What waiting for a loader is worth: with no workers yet what they can hide, with some half of it."""

from __future__ import annotations

import pytest

from tests.findings.build import H200
from tests.timelines import Trace
from tracemine.findings.record import Finding
from tracemine.pipeline import analysed, mined

MS = 1_000_000


@pytest.fixture(autouse=True)
def as_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recording cost nothing: what the host does beside loading is no shorter without."""
    monkeypatch.setattr("tracemine.findings.steps.slowdown_of", lambda timeline: None)


def waiting(loader: str, loading_ms: int, rest_ms: int) -> Finding:
    """The finding of a loop that loads a batch, then keeps the device busy for `rest_ms`, four times."""
    trace = Trace(devices=(H200,))
    for number in range(4):
        begin = number * (loading_ms + rest_ms) * MS
        trace.op(f"enumerate(DataLoader)#{loader}.__next__", begin, loading_ms * MS)
        begin += loading_ms * MS
        op = trace.op("aten::mm", begin + 1000, 20_000)
        call = trace.call("cudaLaunchKernel", begin + 2000, 5000, op_row=op)
        trace.kernel("gemm", begin + 10_000, rest_ms * MS - 10_000, op=op, launch_row=call)
    scan = mined(analysed(trace.timeline()))
    (found,) = (finding for finding in scan.findings if finding.rule == "data_loading")
    assert found.measured_ns == pytest.approx(3 * loading_ms * MS, rel=0.01)
    return found


def test_without_workers_a_long_step_hides_nearly_all_of_the_loading_and_a_short_one_some() -> None:
    long, short = (waiting("_SingleProcessDataLoaderIter", 50, rest) for rest in (100, 2))
    assert long.step_saving_ns.mid > 0.8 * long.measured_ns
    assert 0.5 * short.measured_ns < short.step_saving_ns.mid < 0.75 * short.measured_ns
    assert any("4 workers" in text for text in long.assumptions)


def test_near_miss_with_workers_already_nobody_knows_what_more_of_them_give() -> None:
    found = waiting("_MultiProcessingDataLoaderIter", 50, 2)
    assert found.step_saving_ns.low == 0
    assert not any("4 workers" in text for text in found.assumptions)
