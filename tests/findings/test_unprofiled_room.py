"""All findings together leave the step no shorter than the GPU time that is left."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.findings.build import H200
from tests.timelines import Trace
from tracemine.causes import load_rules
from tracemine.findings.accounting import Accounts, most_saved
from tracemine.findings.record import Range, Scan
from tracemine.findings.recorder import slowdown_of
from tracemine.formats import open_trace
from tracemine.perfmodel import JAX_EVENT_NS, SLOWDOWNS
from tracemine.perfmodel.unprofiled import captured, estimated
from tracemine.pipeline import ScanOptions, analysed, mined, scan

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
TRACES = sorted([*FIXTURES.glob("kineto/*.json.gz"), *(path for path in FIXTURES.glob("captures/*") if path.is_dir())])


def room_left(found: Scan) -> int:
    """Of a step: unprofiled − savings − GPU time that is left, nanoseconds; negative: more is claimed than there is."""
    step = found.summary.per_step
    assert step is not None and step.unprofiled_ns is not None
    each = [finding.per_step for finding in found.findings if finding.per_step is not None]
    gains = sum(one.step_saving_ns.mid for one in each)
    left = step.gpu_busy_ns - sum(one.gpu_saving_ns.mid for one in each)
    return step.unprofiled_ns.mid - gains - max(left, 0)


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.name)
def test_the_step_that_is_left_holds_the_gpu_time_that_is_left(trace: object) -> None:
    found = scan(str(trace))
    step = found.summary.per_step
    if step is None:
        pytest.skip("no steps are known")
    assert room_left(found) >= -step.gpu_busy_ns // 100  # of what steps share with what lies between them


def test_a_planted_claim_beyond_the_step_is_seen() -> None:
    found = scan(FIXTURES / "kineto" / "decoder_prefill.json.gz")
    (first, *rest) = found.findings
    assert first.per_step is not None
    more = msgspec.structs.replace(first.per_step, step_saving_ns=Range(0, 10**9, 10**9))
    planted = msgspec.structs.replace(found, findings=(msgspec.structs.replace(first, per_step=more), *rest))
    assert room_left(found) >= 0 > room_left(planted)


ns = st.integers(0, 10**9)
ranges = st.tuples(ns, ns, ns).map(lambda each: Range(*sorted(each)))


@given(busy=ns, idle=ns, shares=st.tuples(*[st.floats(0, 1)] * 3), gpu=ranges)
def test_what_can_be_saved_leaves_the_gpu_time_that_is_left(
    busy: int, idle: int, shares: tuple[float, float, float], gpu: Range
) -> None:
    none = np.zeros(0, np.int64)
    accounts = Accounts(
        dur_ns=none,
        exclusive_ns=none,
        devices=1,
        span_ns=busy + idle,
        gpu_time_ns=busy,
        gpu_busy_ns=busy,
        per_step=None,
        step_of=np.zeros(0, np.int64),
    )
    gpu = gpu.at_most(busy)
    alone = estimated(busy + idle, shares, "", of_step=False)
    room = most_saved(accounts, alone, gpu)
    assert 0 <= room.low <= room.mid <= room.high
    assert alone.mid_ns - room.mid >= min(busy, alone.mid_ns) - gpu.mid
    # Without gaps between them kernels take up to a tenth less: that much more at the high end, and no more.
    assert alone.high_ns - room.high >= min(busy, alone.high_ns) * 9 // 10 - gpu.high


def test_no_more_can_be_saved_than_the_recording_lasts_however_long_a_step_takes_alone() -> None:
    none = np.zeros(0, np.int64)
    accounts = Accounts(
        dur_ns=none,
        exclusive_ns=none,
        devices=1,
        span_ns=1_000,
        gpu_time_ns=900,
        gpu_busy_ns=900,
        per_step=None,
        step_of=none,
    )
    room = most_saved(accounts, captured(3_000, 1_000), Range(800, 800, 800))
    assert room == Range(1_000, 1_000, 1_000)


@pytest.mark.parametrize(
    ("trace", "kind"),
    [
        ("kineto/decoder_prefill.json.gz", "stacks"),
        ("captures/decoder_prefill", "both"),
        ("kineto/clean_gemms.json.gz", "stacks"),
    ],
)
def test_what_was_recorded_says_what_it_cost(trace: str, kind: str) -> None:
    assert slowdown_of(open_trace(FIXTURES / trace)) == SLOWDOWNS[kind]


def test_a_step_gains_what_a_pageable_copy_kept_its_host_waiting_for() -> None:
    trace = Trace(devices=(H200,))
    for step in range(3):
        begin = step * 5_000_000
        copy = trace.op("aten::copy_", begin, 4_100_000, shapes=[[32768, 1024]] * 2, dtypes=["c10::Half"] * 2)
        # The call returns with the last piece handed over, before the device has it.
        called = (begin + 10_000, 3_900_000)
        trace.copy("HtoD", begin + 100_000, 3_830_000, 64 << 20, pageable=True, op=copy, launch=called)
        op = trace.op("aten::mm", begin + 4_150_000, 30_000)
        trace.kernel("gemm", begin + 4_200_000, 100_000, op=op, launch=(begin + 4_160_000, 5_000))
    found = mined(
        analysed(trace.timeline()), ScanOptions(rules=[one for one in load_rules() if one.id == "pageable_copy"])
    )
    (finding,) = found.findings
    assert finding.gpu_saving_ns.mid > 0.5 * finding.measured_ns
    assert finding.step_saving_ns.mid > 0.8 * finding.gpu_saving_ns.mid


@pytest.mark.parametrize(("share", "usual"), [(0.0, 1.7), (0.3, 1.7), (0.5, 2.0), (0.9, 2.9)])
def test_many_events_of_jax_on_the_host_cost_more_than_is_usual(share: float, usual: float) -> None:
    read = open_trace(FIXTURES / "kineto/decoder_prefill.json.gz")
    times = [(table["start_ns"].to_numpy(), table["dur_ns"].to_numpy()) for table in (read.steps, read.activities)]
    took_ns = max(int((start + dur).max()) for start, dur in times) - int(times[0][0].min())
    half = round(share * took_ns / JAX_EVENT_NS / 2)
    report = msgspec.structs.replace(read.meta.ingest, events={"Python frames": half, "host events": half})
    meta = msgspec.structs.replace(read.meta, format="xla", ingest=report)
    slowdown = slowdown_of(msgspec.structs.replace(read, meta=meta))
    assert slowdown is not None
    assert slowdown.usual == pytest.approx(usual, rel=0.01)
    assert (slowdown.least, slowdown.most) == (1.3, 2.9)
