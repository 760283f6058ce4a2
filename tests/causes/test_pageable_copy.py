"""Copies from pageable memory."""

from __future__ import annotations

from typing import Any

import pytest

from tests.timelines import Trace
from tracemine.causes.pageable_copy import pinned
from tracemine.devices import find_device
from tracemine.findings.record import Finding, Scan
from tracemine.perfmodel import Abstained
from tracemine.pipeline import analysed, mined
from tracemine.timeline import RecordedDevice

US, MB = 1_000, 1_000_000
H200 = RecordedDevice(ordinal=0, name="NVIDIA H200", sm_count=132)


def copied(*, copy_us: int = 4_900, work_us: int = 700, kind: str = "HtoD", **meta: Any) -> Scan:
    """Three steps of a blocking copy of 50 MB and a row of kernels."""
    trace, long = Trace(devices=(H200,), **meta), (copy_us + work_us + 200) * US
    for number in range(3):
        begin = number * long
        step = trace.step(begin, long, number)
        copy = trace.op("aten::copy_", begin + 20 * US, copy_us * US, shapes=[[256, 3, 128, 128]] * 2)
        launch = (begin + 30 * US, (copy_us - 20) * US)
        trace.copy(kind, begin + 50 * US, copy_us * US, 50 * MB, pageable=True, op=copy, launch=launch, step_row=step)
        for of in range(7):
            at = begin + (copy_us + 90 + of * work_us // 7) * US
            op = trace.op("aten::mm", at - 30 * US, 8 * US)
            trace.kernel("gemm", at, (work_us // 7 - 1) * US, op=op, launch=(at - 25 * US, 3 * US), step_row=step)
    return mined(analysed(trace.timeline()))


def finding(scan: Scan) -> Finding:
    (found,) = [one for one in scan.findings if one.rule == "pageable_copy"]
    return found


def test_a_copy_of_unknown_size_or_on_an_unknown_gpu_abstains() -> None:
    assert pinned(None, find_device("NVIDIA H200")) == Abstained("bytes_unknown")
    assert pinned(1, None) == Abstained("device_unknown")


@pytest.mark.parametrize("alone_us", [None, 4_600, 3_000])
def test_a_step_keeps_the_time_of_the_copy_and_of_all_else(alone_us: int | None) -> None:
    meta: dict[str, Any] = {} if alone_us is None else {"alone_step_ns": alone_us * US}
    scan = copied(**meta)
    own, step = finding(scan).per_step, scan.summary.per_step
    assert own is not None and step is not None and step.unprofiled_ns is not None
    left_us = (step.unprofiled_ns.mid - own.step_saving_ns.mid) / US
    assert left_us > 980 + 690  # 50 MB on the link, and the kernels


def test_only_what_other_work_lasts_for_can_hide_a_copy() -> None:
    short, long = finding(copied(work_us=70)).fused_ns, finding(copied(work_us=7_000)).fused_ns
    assert short is not None and long is not None
    assert short.low > 3 * 700 * US and long.low == 0
    assert short.mid == long.mid > 3 * 900 * US


def test_results_are_told_of_a_buffer_and_inputs_of_a_stream() -> None:
    inputs, results = finding(copied()), finding(copied(kind="DtoH"))
    assert "torch.cuda.stream(copies)" in inputs.fix and "copied.synchronize()" not in inputs.fix
    assert "copied.synchronize()" in results.fix and "DataLoader" not in results.fix
    assert results.fused_ns is not None and results.fused_ns.low > 3 * 700 * US
