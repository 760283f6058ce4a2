"""What a step is made of: every moment once, and all of it together the step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.findings.build import H200
from tests.report.scans import LOST
from tests.timelines import Trace
from tracemine.causes import CAUSES, Cause
from tracemine.findings import parts as module
from tracemine.findings.parts import PARTS, shared_among
from tracemine.findings.record import Part, Parts, Scan
from tracemine.findings.verdicts import with_verdicts
from tracemine.formats import open_trace
from tracemine.ops import CLASSES
from tracemine.pipeline import ScanOptions, analysed, mined, scan
from tracemine.units import shares

GEMM, ADD, NCCL = ("sm90_xmma_gemm_bf16", "vectorized_elementwise_kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
TRACES = sorted([*FIXTURES.glob("kineto/*.json.gz"), *FIXTURES.glob("nsys/*.sqlite"), *FIXTURES.glob("memory/*")])
SOME = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 60), st.integers(0, 25), st.integers(-1, len(PARTS) - 1)), max_size=14
)


def scanned(trace: Trace) -> Scan:
    trace.meta = type(trace.meta)(tracemine_version="test", source="t.json", format="kineto", devices=(H200,))
    return mined(analysed(trace.timeline()), ScanOptions(rules=()))


def parts(found: Scan) -> Parts:
    assert found.summary.parts is not None
    return found.summary.parts


def ns(found: Scan) -> dict[str, int]:
    return {part.name: part.ns for part in parts(found).parts}


def painted(activities: list[tuple[int, int, int, int]]) -> tuple[list[int], int]:
    """The same nanosecond by nanosecond: of each moment the parts that run, of which the first takes it."""
    found, covered = [0] * len(PARTS), 0
    for device in (0, 1):
        for moment in range(100):
            running = {
                part for on, at, dur, part in activities if on == device and at <= moment < at + dur and part >= 0
            }
            if running:
                found[min(running)] += 1
                covered += len(PARTS) - 1 in running and len(running) > 1
    return found, covered


def shared(activities: list[tuple[int, int, int, int]]) -> tuple[list[int], int]:
    ordered = sorted(activities, key=lambda each: each[1])
    device, start, dur, part = np.array(ordered, np.int64).reshape(-1, 4).T
    return shared_among(device, start, start + dur, part)


@given(SOME)
def test_each_moment_is_the_first_part_s_that_runs_then(activities: list[tuple[int, int, int, int]]) -> None:
    assert shared(activities) == painted(activities)


def test_the_check_against_painting_sees_time_that_counts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def sum_of_durations(device: Any, start: Any, end: Any, among: Any) -> int:
        return int((end - start)[among].sum())

    overlapping = [(0, 0, 10, 0), (0, 5, 10, 2)]
    assert shared(overlapping) == painted(overlapping)
    monkeypatch.setattr(module, "covered_ns", sum_of_durations)
    assert shared(overlapping) != painted(overlapping)


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.name)
def test_the_parts_of_a_recording_add_up_to_its_step_with_nobody_recording(trace: Path) -> None:
    summary = scan(trace).summary
    alone = summary.unprofiled_ns if summary.per_step is None else summary.per_step.unprofiled_ns
    if summary.parts is None or alone is None:
        assert not summary.gpu_busy_ns
        return
    assert sum(part.ns for part in summary.parts.parts) == summary.parts.ns
    assert all(part.ns >= 0 for part in summary.parts.parts)
    assert alone.mid <= summary.parts.ns <= max(alone.mid, 1.05 * summary.gpu_busy_ns)
    assert 0 <= summary.parts.after_ns.low <= summary.parts.after_ns.mid <= summary.parts.after_ns.high <= alone.mid


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=9), st.integers(0, 10**15))
def test_shares_have_the_whole_as_their_sum_and_are_off_by_less_than_one(weights: list[int], whole: int) -> None:
    found, total = shares(weights, whole), sum(weights)
    assert sum(found) == (whole if total else 0)
    assert all(abs(each * total - weight * whole) < total for each, weight in zip(found, weights, strict=True) if total)


def test_communication_counts_as_far_as_nothing_hides_it() -> None:
    trace = Trace()
    trace.kernel(GEMM, 0, 100)
    trace.kernel(NCCL, 50, 150, stream=8)
    found = scanned(trace)
    assert ns(found) == {"products": 100, "communication": 100, "idle": 0}
    assert parts(found).covered_communication_ns == 50
    assert parts(found).parts[1] == Part(name="communication", ns=100, gpu_time_ns=150)


def test_a_copy_behind_a_product_takes_nothing_of_the_step() -> None:
    trace = Trace()
    trace.kernel(GEMM, 0, 100)
    trace.copy("HtoD", 20, 60, 4096, stream=8)
    assert ns(scanned(trace)) == {"products": 100, "copies": 0, "idle": 0}


def test_what_is_launched_in_an_optimizer_s_step_is_the_optimizer_s_whatever_it_computes() -> None:
    for name, part in (("Optimizer.step#AdamW.step", "optimizer"), ("my range", "memory_bound")):
        trace = Trace()
        around = trace.add("ops", kind="annotation", name=name, start_ns=0, dur_ns=1_000, pid=1, tid=1)
        inner = trace.op("aten::add_", 5, 10, [[4]], ["float"], parent_row=around)
        trace.kernel(ADD, 20, 100, launch=(6, 2), op=inner)
        assert ns(scanned(trace)) == {part: 100, "idle": 0}


def test_what_nobody_can_name_is_other_work() -> None:
    trace = Trace()
    trace.kernel("mystery", 0, 100)
    trace.kernel(GEMM, 150, 50)
    assert ns(scanned(trace)) == {"products": 50, "other": 100, "idle": 50}


def test_of_two_steps_on_two_devices_the_parts_are_means() -> None:
    trace = Trace()
    for step in (0, 1):
        row = trace.step(step * 1_000, 1_000)
        for device in (0, 1):
            launch = trace.call("cudaLaunchKernel", step * 1_000 + 1, 1)
            trace.kernel(GEMM, step * 1_000 + 10, 400 + 100 * device, device=device, launch=launch, step_row=row)
    found = scanned(trace)
    assert ns(found)["products"] == 450
    assert parts(found).ns == sum(ns(found).values()) == 1_000


def test_a_trace_in_which_nothing_ran_has_no_parts() -> None:
    assert scanned(Trace()).summary.parts is None


def test_every_class_of_operators_is_of_one_part_at_most_and_every_rule_is_one_that_there_is() -> None:
    named = [kind for kinds in PARTS.values() for kind in kinds]
    assert len(named) == len(set(named))
    assert set(named) <= set(CLASSES)
    assert {cause.part for cause in CAUSES if cause.part} <= set(PARTS)


def test_a_rule_s_findings_are_of_its_part_whatever_their_classes_are() -> None:
    timeline = open_trace(FIXTURES / "kineto/chain.json.gz")
    analysis = analysed(timeline)
    before = mined(analysis)
    assert "attention" not in ns(before)
    own = Cause(rule="memory_bound_chain", part="attention")
    after = ns(mined(replace(analysis, causes=(*CAUSES, own))))
    claimed = next(finding for finding in before.findings if finding.rule == "memory_bound_chain")
    assert claimed.per_step is not None
    assert after["attention"] == claimed.per_step.measured_ns
    assert sum(after.values()) == sum(ns(before).values())


def test_of_a_stored_scan_what_verdicts_take_away_is_not_left_off_the_step() -> None:
    found = scan(FIXTURES / "kineto/chain.json.gz")
    first = next(one for one in found.findings if one.on_gpu)
    lost = msgspec.structs.replace(LOST, predicted_ns=first.gpu_saving_ns)
    after = with_verdicts(found, lambda one: lost if one.fingerprint in first.names else None)
    assert after.findings != found.findings
    for each in (found, after):
        alone = each.summary.per_step
        assert alone is not None and alone.unprofiled_ns is not None
        gains = sum(one.per_step.step_saving_ns.mid for one in each.findings if one.per_step)
        assert parts(each).after_ns.mid == alone.unprofiled_ns.mid - gains
    assert parts(after).after_ns.mid > parts(found).after_ns.mid
    assert parts(after).least_gpu_time_ns is None
