"""Exposed host-device copies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.timelines import Trace
from tracemine import pipeline
from tracemine.findings.record import Finding, Scan
from tracemine.findings.transfers import transfers_of
from tracemine.timeline import RecordedDevice

H200 = RecordedDevice(ordinal=0, name="NVIDIA H200", sm_count=132)
GEMM = "sm90_xmma_gemm_bf16"


def _offloading(
    *, rounds: int = 10, copy_us: int = 900, work_us: int = 100, mb: int = 25, beside: bool = False, kind: str = "HtoD"
) -> Trace:
    """Rounds of a copy and a product, one after the other or side by side."""
    trace, at = Trace(devices=(H200,)), 100_000
    for _ in range(rounds):
        trace.copy(kind, at, copy_us * 1000, mb * 1_000_000, launch=(at - 9_000, 1_000), stream=9)
        work = at if beside else at + copy_us * 1000
        trace.kernel(GEMM, work, work_us * 1000, launch=(at - 5_000, 1_000))
        at += (max(copy_us, work_us) if beside else copy_us + work_us) * 1000
    return trace


def _scanned(trace: Trace) -> Scan:
    return pipeline.mined(pipeline.analysed(trace.timeline()))


def _found(scan: Scan) -> list[Finding]:
    return [one for one in scan.findings if one.rule == "transfer_exposed"]


def _note(scan: Scan) -> list[str]:
    return [text for text in scan.warnings if text.startswith("Copies between host and device")]


@pytest.mark.parametrize(
    ("trace", "mid_us", "note"),
    [
        (
            _offloading(),
            1_000,  # copies hide behind 100 µs a round
            "Copies between host and device: 25.0 MB a step at 27.8 GB/s, pinned memory; 0.0% overlapped.",
        ),
        (
            _offloading(rounds=6, copy_us=500, work_us=700, mb=20, kind="DtoH"),
            3_000,
            "Copies between host and device: 20.0 MB a step at 40.0 GB/s, pinned memory; 0.0% overlapped.",
        ),
    ],
)
def test_a_loop_that_waits_for_its_copies_is_a_finding(trace: Trace, mid_us: int, note: str) -> None:
    scan = _scanned(trace)
    (found,) = _found(scan)
    assert scan.findings[0] is found
    saving = found.gpu_saving_ns
    assert (saving.low, round(saving.mid / 1000), saving.high) == (0, mid_us, found.measured_ns)
    assert scan.summary.span_ns - found.step_saving_ns.high >= scan.summary.gpu_busy_ns - saving.high
    assert "record_stream" in found.fix
    assert _note(scan) == [note]


def _late(*, waits: bool) -> Trace:
    """Rounds of a copy behind which the host launches a product, because it is late or because it waited."""
    trace, at = Trace(devices=(H200,)), 100_000
    for _ in range(10):
        trace.copy("HtoD", at, 900_000, 25_000_000, launch=(at - 9_000, 1_000), stream=9)
        if waits:
            trace.call("cudaStreamSynchronize", at - 7_000, 910_000)
        trace.kernel(GEMM, at + 920_000, 100_000, launch=(at + 910_000, 1_000))
        at += 1_100_000
    return trace


def test_copies_that_nothing_waits_for_are_none() -> None:
    assert _found(_scanned(_late(waits=False))) == []
    (found,) = _found(_scanned(_late(waits=True)))
    assert found.occurrences == 10


def test_copies_that_other_work_hides_are_none() -> None:
    scan = _scanned(_offloading(work_us=900, beside=True))
    assert _found(scan) == []
    assert _note(scan) == []


@pytest.mark.parametrize(("slowed", "share"), [(False, 0.3), (True, 0.1)])
def test_a_copy_beside_which_a_kernel_runs_unprofiled_is_alone_for_less(slowed: bool, share: float) -> None:
    trace = Trace(devices=(H200,))
    trace.copy("HtoD", 0, 300, 1_000, launch=(-20, 5), stream=9)
    trace.kernel(GEMM, 500, 200, launch=(490, 5))
    timeline = trace.timeline()
    begins, took = np.array([0, 100]), np.array([300, 200])
    context: Any = SimpleNamespace(
        timeline=timeline,
        accounts=SimpleNamespace(dur_ns=took, steps=1, devices=1, in_step=np.ones(2, np.bool_)),
        steps=SimpleNamespace(slowdown=object() if slowed else None, usual_times=(begins, begins + took)),
        unprofiled=SimpleNamespace(mid_ns=1_000),
    )
    found = transfers_of(context)
    assert found is not None and found.alone_share == share


def test_copies_that_take_little_of_the_time_are_none() -> None:
    scan = _scanned(_offloading(copy_us=100, work_us=900, mb=3))
    assert _found(scan) == []
    assert _note(scan) == []


def test_copies_within_the_device_are_none() -> None:
    scan = _scanned(_offloading(kind="DtoD"))
    assert _found(scan) == []
    assert _note(scan) == []
