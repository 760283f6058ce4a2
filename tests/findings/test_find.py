"""Findings: grouped by what they are, estimated per instance, ranked, and dropped with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from tests.findings.build import BIG, H200, kernel, matches, rows_of_timeline, rule, table, timeline_of
from tests.timelines import Trace
from tracemine.causes import CAUSES
from tracemine.devices import Device
from tracemine.documents.headline import bound_headline
from tracemine.findings import Scan, device_of, find
from tracemine.findings.ranking import SEVERITIES
from tracemine.findings.steps import Fix, steps_of
from tracemine.flow import flow
from tracemine.fusion import groups
from tracemine.matching.rule import Matches
from tracemine.perfmodel import NOTHING, REPLAY_FLOOR_NS, SLOWDOWNS, Range
from tracemine.rows import row_sets
from tracemine.timeline import RecordedDevice, Timeline

US = 1_000


def chains(count: int, dur_ns: int = 60 * US, apart_ns: int = 0, **more: Any) -> list[dict[str, Any]]:
    """So many chains of three products, each member `dur_ns`."""
    return [kernel(i * (3 * dur_ns + apart_ns) + j * dur_ns, dur_ns, **more) for i in range(count) for j in range(3)]


def in_threes(timeline: Timeline, **more: Any) -> Matches:
    count = timeline.activities.num_rows
    return matches(rule(**more), *(range(i, i + 3) for i in range(0, count, 3)))


UNSET: Any = object()


def scanned(timeline: Timeline, *found: Matches, device: Device | None = UNSET, **more: Any) -> Scan:
    rows = rows_of_timeline(timeline, more.pop("causes", ("host_bound",)))
    return find(timeline, rows, found, device_of(timeline) if device is UNSET else device, **more, causes=CAUSES)


def test_equal_chains_are_one_finding_with_one_list_of_activities_an_occurrence() -> None:
    timeline = timeline_of(chains(4))
    (finding,) = scanned(timeline, in_threes(timeline)).findings
    assert finding.occurrences == 4
    assert finding.activities == ((0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11))
    assert finding.ops == ("aten::mul", "aten::mul", "aten::mul")
    assert finding.shapes == "[4096, 8192]"
    assert finding.dtype == "bfloat16"
    assert finding.evidence == "adjacent"


def test_measured_time_is_the_sum_of_every_instance_and_not_the_first_times_their_number() -> None:
    timeline = timeline_of(
        [*chains(1, 60 * US), *(k | {"start_ns": k["start_ns"] + 10**6} for k in chains(1, 90 * US))]
    )
    (finding,) = scanned(timeline, in_threes(timeline)).findings
    assert finding.occurrences == 2
    assert finding.measured_ns == 3 * 60 * US + 3 * 90 * US


def test_other_dtypes_and_modules_are_other_findings_and_other_shapes_other_variants() -> None:
    half = (2048, 8192)
    different = [
        chains(1),
        chains(1, shapes=(half, half)),
        chains(1, dtypes=("c10::Half", "c10::Half")),
        chains(1, module="Model_0.Mlp_0"),
    ]
    members = [k | {"start_ns": k["start_ns"] + i * 10**6} for i, chain in enumerate(different) for k in chain]
    timeline = timeline_of(members)
    findings = scanned(timeline, in_threes(timeline)).findings
    assert sorted(len(f.variants) for f in findings) == [1, 1, 2]
    assert len({v.identity.finding for f in findings for v in f.variants}) == 4


def test_modules_that_differ_in_their_counters_alone_are_one_module() -> None:
    members = [*chains(1, module="Model_0.Layer_3.Norm_6"), *chains(1, module="Model_0.Layer_4.Norm_8")]
    members[3:] = [k | {"start_ns": k["start_ns"] + 10**6} for k in members[3:]]
    timeline = timeline_of(members)
    (finding,) = scanned(timeline, in_threes(timeline)).findings
    assert finding.module == "Model_*.Layer_*.Norm_*"


def test_of_modules_that_the_rule_does_not_tell_apart_the_common_one_is_named() -> None:
    members = [*chains(1, module="Model_0.A_3"), *chains(1, module="Model_0.B_4")]
    members[3:] = [k | {"start_ns": k["start_ns"] + 10**6} for k in members[3:]]
    timeline = timeline_of(members)
    (finding,) = scanned(timeline, in_threes(timeline, group_by=("ops", "shapes"))).findings
    assert (finding.occurrences, finding.module) == (2, "Model_*")


def test_a_shape_that_the_rule_does_not_group_by_is_null_where_it_differs() -> None:
    half = (2048, 8192)
    members = [*chains(1), *(k | {"start_ns": k["start_ns"] + 10**6} for k in chains(1, shapes=(half, half)))]
    timeline = timeline_of(members)
    (finding,) = scanned(timeline, in_threes(timeline, group_by=("ops",))).findings
    assert (finding.occurrences, finding.shapes, finding.dtype) == (2, None, "bfloat16")


def test_kernels_that_one_operator_launched_are_one_operator() -> None:
    members = [kernel(i * 60 * US, 60 * US, call=min(i, 1)) for i in range(3)]
    timeline = timeline_of(members)
    (finding,) = scanned(timeline, in_threes(timeline)).findings
    assert finding.ops == ("aten::mul", "aten::mul")
    assert len(finding.kernels) == 3


def test_without_operators_kernel_families_say_what_a_chain_is() -> None:
    timeline = timeline_of(chains(2, op=None))
    (finding,) = scanned(timeline, in_threes(timeline)).findings
    assert finding.ops
    assert not any(op.startswith("aten::") for op in finding.ops)
    assert finding.traffic_bytes is None
    assert finding.gpu_saving_ns == Range(0, 2 * 60 * US, 2 * 120 * US)


def test_savings_are_what_was_measured_less_what_is_left() -> None:
    timeline = timeline_of(chains(5))
    scan = scanned(timeline, in_threes(timeline))
    (finding,) = scan.findings
    assert finding.fused_ns is not None
    assert finding.gpu_saving_ns.mid == finding.measured_ns - finding.fused_ns.mid
    assert finding.gpu_saving_ns.low == finding.measured_ns - finding.fused_ns.high
    assert scan.summary.gpu_saving_ns == finding.gpu_saving_ns
    assert finding.traffic_bytes is None  # nobody says who reads what


def test_bytes_and_time_of_a_fusion_group_are_those_of_one_kernel() -> None:
    timeline = timeline_of(chains(5))
    found = groups(flow(timeline))
    (finding,) = scanned(timeline, matches(rule(), [0, 1], [2, 3]), groups=found).findings
    assert finding.activities == (tuple(range(15)),)  # what is said of part of it is said of all of it
    assert finding.traffic_bytes is not None
    assert finding.traffic_bytes.before == 15 * 3 * 2 * BIG[0] * BIG[1]
    assert finding.traffic_bytes.after < finding.traffic_bytes.before


def test_a_group_of_which_another_rule_has_a_part_is_not_claimed_again() -> None:
    timeline = timeline_of(chains(1))
    found = groups(flow(timeline))
    first = matches(rule("first", "pin_memory", priority=1), [1])
    second = matches(rule("second", priority=2), [0, 1, 2], [2])
    scan = scanned(timeline, first, second, groups=found, min_saving_ns=0)
    claimed = [row for f in scan.findings for once in f.activities for row in once]
    assert len(claimed) == len(set(claimed))


def test_an_unknown_gpu_is_said_once_and_leaves_gaps_without_loss() -> None:
    unknown = RecordedDevice(ordinal=0, name="Brand New")
    timeline = timeline_of(chains(4, apart_ns=200 * US), devices=(unknown,))
    gaps = matches(rule("gap", "close_gap"), *([i] for i in range(3)))
    scan = scanned(timeline, in_threes(timeline), gaps)
    assert [f.rule for f in scan.findings] == ["gap"]
    assert scan.dropped == {"device_unknown": 4}
    assert sum("'Brand New' is not in the device table" in text for text in scan.warnings) == 1


def test_an_occurrence_spread_over_a_hundred_times_its_own_time_is_no_finding() -> None:
    """Of three, one waited while a module was loaded; and one that is alone was never together."""
    three = chains(3)
    for one in three[1:]:
        one["start_ns"] += 200 * 3 * 60 * US
    timeline = timeline_of(three)
    scan = scanned(timeline, in_threes(timeline))
    assert [finding.occurrences for finding in scan.findings] == [2]
    assert scan.dropped == {"spread_out": 1}
    alone = timeline_of(three[:3])
    assert scanned(alone, in_threes(alone)).dropped == {"spread_out": 1}


def test_occurrences_that_are_all_spread_alike_are_a_slow_host_and_stay() -> None:
    slow = [kernel(at * 400 * US, US, shapes=((512, 512), (512, 512))) for at in range(6)]
    timeline = timeline_of(slow)
    assert "spread_out" not in scanned(timeline, in_threes(timeline), min_saving_ns=0).dropped


def test_a_group_that_takes_no_longer_than_one_kernel_would_is_not_reported() -> None:
    timeline = timeline_of(chains(3, dur_ns=1 * US))
    scan = scanned(timeline, in_threes(timeline), groups=groups(flow(timeline)))
    assert scan.findings == ()
    assert scan.dropped == {"nothing_to_win": 1}


def test_how_severe_a_gap_is_and_whether_it_is_said_follows_from_what_fusions_leave_of_it() -> None:
    timeline = timeline_of(chains(4, apart_ns=100 * US, queued_ns=-US))
    gaps = matches(rule("gap", "close_gap"), *([i] for i in range(3)))
    scan = scanned(timeline, in_threes(timeline), gaps, min_saving_ns=0)
    for finding in scan.findings:
        assert scan.summary.unprofiled_ns is not None
        share = max(finding.gpu_saving_ns.mid, finding.step_saving_ns.mid) / scan.summary.unprofiled_ns.mid
        assert share > 0
        assert finding.severity == next(name for least, name in SEVERITIES if share >= least)


def test_a_finding_below_the_threshold_is_counted_and_not_reported() -> None:
    timeline = timeline_of(chains(3))
    scan = scanned(timeline, in_threes(timeline), min_saving_ns=10**9)
    assert [f.reported for f in scan.findings] == [False]
    assert scan.reported == ()
    assert scan.dropped == {"below_threshold": 3}


def test_the_default_threshold_is_a_thousandth_of_the_span() -> None:
    far_away = kernel(10**9, 10 * US)
    timeline = timeline_of([*chains(1), far_away])
    assert scanned(timeline, matches(rule(), [0, 1, 2])).dropped == {"below_threshold": 1}
    assert len(scanned(timeline, matches(rule(), [0, 1, 2]), min_saving_ns=0).reported) == 1


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recording cost nothing: times are what they are."""
    monkeypatch.setattr("tracemine.findings.steps.slowdown_of", lambda timeline: None)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("queued_ns", "gains"), [(10**6, True), (None, False)])
def test_only_work_that_was_queued_shortens_the_step(queued_ns: int | None, gains: bool) -> None:
    first = kernel(0, 60 * US)
    members = [k | {"start_ns": k["start_ns"] + 60 * US} for k in chains(2, queued_ns=queued_ns)]
    timeline = timeline_of([first, *members])
    (finding,) = scanned(timeline, matches(rule(), range(1, 4), range(4, 7))).findings
    assert finding.gpu_saving_ns.mid > 0
    assert finding.step_saving_ns.mid == (finding.gpu_saving_ns.mid if gains else 0)
    assert ("something else sets the pace" in finding.assumptions[-1]) != gains


@pytest.mark.usefixtures("alone")
def test_where_the_host_sets_the_pace_the_step_gains_the_launches_that_are_not_made() -> None:
    timeline = timeline_of(chains(4, dur_ns=60 * US, queued_ns=-50))
    (finding,) = scanned(timeline, in_threes(timeline)).findings
    # Of each chain two launches, 60 µs apart; at the low end none.
    assert finding.step_saving_ns.low == 0
    assert finding.step_saving_ns.mid <= 4 * 2 * 60 * US


@pytest.mark.usefixtures("alone")
def test_idle_time_that_went_with_a_launch_is_not_closed_again() -> None:
    members = [kernel(i * 100 * US, 60 * US, queued_ns=5 * US) for i in range(12)]
    timeline = timeline_of(members)
    gaps = matches(rule("gap", "close_gap"), *([i] for i in range(11)))
    (alone,) = scanned(timeline, gaps).findings
    both = scanned(timeline, in_threes(timeline), gaps)
    chain, left = (next(f for f in both.findings if f.rule == name) for name in ("chain", "gap"))
    assert chain.step_saving_ns.mid > 0
    assert left.step_saving_ns.mid < alone.step_saving_ns.mid
    assert left.measured_ns == alone.measured_ns
    busy = both.summary.gpu_busy_ns - both.summary.gpu_saving_ns.mid
    assert both.summary.step_saving_ns.mid <= both.summary.span_ns - busy


def test_closing_gaps_saves_step_time_and_no_gpu_time() -> None:
    timeline = timeline_of(chains(4, apart_ns=200 * US))
    gaps = matches(rule("gap", "close_gap", group_by=("ops",)), *([i] for i in range(3)))
    (finding,) = scanned(timeline, gaps).findings
    assert finding.gpu_saving_ns == NOTHING
    assert finding.fused_ns is None
    assert finding.measured_ns == 600 * US
    # 180 µs busy, 200 µs idle: a host that takes so many times as long here leaves less idle with nobody recording.
    recorded = SLOWDOWNS["operators"]
    mid, high = (3 * (380 * US / pace - 180 * US) for pace in (recorded.usual, recorded.least))
    assert finding.step_saving_ns.low == 0
    assert abs(finding.step_saving_ns.mid - (mid - 3 * REPLAY_FLOOR_NS)) <= 3
    assert abs(finding.step_saving_ns.high - high) <= 3
    assert finding.activities == ((3,), (6,), (9,))
    assert finding.evidence == "proven"


def test_a_gap_of_unknown_cause_is_said_to_be_uncertain() -> None:
    timeline = timeline_of(chains(4, apart_ns=200 * US))
    gaps = matches(rule("gap", "close_gap"), *([i] for i in range(3)))
    (finding,) = scanned(timeline, gaps, causes=("unknown",)).findings
    assert finding.evidence == "adjacent"
    assert finding.step_saving_ns.low == 0


def test_a_wait_gives_back_no_more_than_the_host_was_blocked_for() -> None:
    trace = Trace(devices=(H200,))
    trace.kernel("a", 0, 50 * US, launch=(-100, 50))
    trace.call("cudaStreamSynchronize", 10 * US, 40 * US + 1)
    trace.kernel("b", 130 * US, 50 * US, launch=(120 * US, 50))
    timeline = trace.timeline()
    (finding,) = find(
        timeline, row_sets(timeline), [matches(rule("sync", "close_gap"), [0])], None, causes=CAUSES
    ).findings
    assert finding.measured_ns == 80 * US
    assert finding.step_saving_ns.high == 40 * US + 1


def test_gaps_of_many_lines_are_where_the_most_was_idle() -> None:
    trace = Trace(devices=(H200,))
    step = trace.frame("train.py(3): step")
    lines = [trace.frame(f"model.py({line}): forward", step) for line in (10, 20, 30)]
    now = 0
    for line, idle_us in ((0, 0), (0, 40), (1, 30), (2, 10), (1, 30)):
        now += idle_us * US
        trace.kernel("k", now, US, launch=(now - 2, 1), stack=lines[line])
        now += US
    timeline = trace.timeline()
    gaps = matches(rule("gap", "close_gap", group_by=()), [0, 1, 2, 3])
    (finding,) = find(timeline, row_sets(timeline), [gaps], None, causes=CAUSES).findings
    assert [source.line for source in finding.source] == [20, 3]


def test_idle_time_that_nothing_explains_is_said() -> None:
    trace = Trace(devices=(H200,))
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.kernel("b", 463_000_000, 500, launch=(38_000, 5_000))
    timeline = trace.timeline()
    scan = find(timeline, row_sets(timeline), [], device_of(timeline), causes=CAUSES)
    assert sum("was idle for 463 ms without a recorded cause" in text for text in scan.warnings) == 1


def test_idle_time_outside_of_steps_is_no_steps() -> None:
    """An engine that was recorded for long before its one batch."""
    trace = Trace(devices=(H200,))
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.step(463_000_000, 20_000)
    for at in range(4):
        begin = 463_000_000 + 4_000 * at
        trace.kernel("b", begin + 2_000, 3_900, launch=(begin, 500))
    timeline = trace.timeline()
    scan = find(timeline, row_sets(timeline), [], device_of(timeline), causes=CAUSES)
    assert scan.summary.gpu_idle_ns > 400_000_000
    assert not any("without a recorded cause" in text for text in scan.warnings)


@pytest.mark.parametrize(
    ("start", "dur", "named"),
    [(50_000, 462_000_000, True), (50_000, 200_000_000, False), (463_100_000, 462_000_000, False)],
    ids=["all of it", "less than half", "after it"],
)
def test_idle_time_that_nothing_explains_names_the_one_call_that_lasts_through_it(
    start: int, dur: int, *, named: bool
) -> None:
    trace = Trace(devices=(H200,))
    step = trace.frame("runner.py(276): fill")
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.kernel("b", 463_000_000, 10_000_000, launch=(38_000, 5_000))
    copy = trace.op("aten::copy_", start - 10, dur + 20)
    trace.call("hipMemcpyWithStream", start, dur, op_row=copy, stack_row=step)
    trace.call("hipMemcpyWithStream_inner", start + 10, dur - 20, kind="driver")
    trace.call("cudaGetDevice", 600_000_000, 100)
    timeline = trace.timeline()
    scan = find(timeline, row_sets(timeline), [], device_of(timeline), causes=CAUSES)
    held = [text for text in scan.warnings if "the host waited in one call" in text]
    assert len(held) == named
    if named:
        assert "For 463 ms of that" in held[0]
        assert "`hipMemcpyWithStream` in `aten::copy_`, called by runner.py: fill" in held[0]
        assert "line 276" in held[0]
    said = bound_headline(scan)
    assert ("while the host is in `hipMemcpyWithStream` in `aten::copy_`" in said) == named
    assert ("cause not recorded" in said) != named


def test_on_an_idle_trace_gaps_come_first_and_on_a_busy_one_fusions() -> None:
    idle = timeline_of(chains(6, apart_ns=3_000 * US, queued_ns=-US))
    busy = timeline_of(chains(6, apart_ns=8 * US, queued_ns=400 * US))
    for timeline, first in ((idle, "gap"), (busy, "chain")):  # of 3 ms each a host without a profiler leaves 2
        gaps = matches(rule("gap", "close_gap"), *([i] for i in range(5)))
        assert scanned(timeline, in_threes(timeline), gaps).findings[0].rule == first


def test_a_pageable_copy_saves_the_time_beyond_a_pinned_one() -> None:
    copy = kernel(10**6, 10_000 * US, "aten::copy_") | {"kind": "memcpy", "copy_kind": "HtoD", "bytes": 50_400_000}
    timeline = timeline_of([kernel(0, US), copy])
    (finding,) = scanned(timeline, matches(rule("pageable", "pin_memory"), [1])).findings
    assert finding.gpu_saving_ns.mid == 10_000 * US - 1_001_000
    assert finding.evidence == "proven"


def test_work_that_is_removed_leaves_the_share_that_its_rule_states_and_no_launch() -> None:
    timeline = timeline_of([kernel(0, US), kernel(10**6, 2_000 * US), kernel(4 * 10**6, 4_000 * US)])
    gone = replace(rule("gone", "remove"), left=(0.0, 0.1, 0.5), call="nothing")
    (finding,) = scanned(timeline, matches(gone, [1], [2])).findings
    assert finding.measured_ns == 6_000 * US
    assert finding.gpu_saving_ns == Range(3_000 * US, 5_400 * US, 6_000 * US)
    steps = steps_of(timeline, row_sets(timeline)["gaps"])
    fix = Fix([np.array([[1], [2]])], [finding.gpu_saving_ns], "nothing")
    assert steps.change(fix).unlaunched.tolist() == [1, 2]
    assert not len(steps.change(replace(fix, call="operator")).unlaunched)


def test_the_trace_is_described_by_what_was_recorded() -> None:
    timeline = timeline_of([*chains(2), kernel(10**6, US, op=None)], steps=[(0, 10**6), (10**6, 10**6)])
    scan = scanned(timeline, path="folder/t.json")
    assert (scan.trace.path, scan.trace.gpu) == ("folder/t.json", "NVIDIA H200")
    assert (scan.trace.activities, scan.trace.unattributed, scan.trace.steps) == (7, 1, 2)
    assert scan.summary.span_ns == 10**6 + US
    assert scan.summary.gpu_busy_ns + scan.summary.gpu_idle_ns == scan.summary.span_ns
    assert scan.summary.per_step is not None
    assert scan.summary.per_step.span_ns == 10**6


def test_a_trace_without_activities_has_no_findings() -> None:
    scan = scanned(timeline_of([]), matches(rule()))
    assert (scan.findings, scan.summary.span_ns, scan.summary.gpu_idle_ns) == ((), 0, 0)


def test_two_gpus_of_different_models_are_no_known_device() -> None:
    other = RecordedDevice(ordinal=1, name="Tesla T4")
    timeline = timeline_of([kernel(0, US), kernel(0, US, device=1)], devices=(H200, other))
    assert device_of(timeline) is None
    unknown = RecordedDevice(ordinal=1, name="Brand New")
    assert device_of(timeline_of([kernel(0, US), kernel(0, US, device=1)], devices=(H200, unknown))) is None
    alone = timeline_of([kernel(0, US)], devices=(H200, other))
    assert device_of(alone) is not None


def test_made_up_shapes_make_no_estimate_from_bytes_and_no_crash() -> None:
    huge = [[2**39, 2**39], [2**39, 2**39]]
    timeline = timeline_of(chains(2, shapes=huge))
    (finding,) = scanned(timeline, in_threes(timeline)).findings
    assert finding.traffic_bytes is None


def test_source_lines_are_the_users_own_and_innermost_first() -> None:
    timeline = timeline_of(chains(1))
    frames = [
        ("train.py", 10, "main", None),
        ("/x/site-packages/torch/nn/modules/module.py", 1, "_call_impl", 0),
        ("/x/site-packages/tracemine/recording/hooks.py", 138, "__call__", 1),
        ("/x/models/llama.py", 71, "forward", 2),
        ("/x/site-packages/torch/functional.py", 5, "mul", 3),
    ]
    stacks = [
        {"frame": f"{file}({line}): {function}", "file": file, "line": line, "function": function, "parent_row": parent}
        for file, line, function, parent in frames
    ]
    ops = timeline.ops.set_column(
        timeline.ops.schema.get_field_index("stack_row"), "stack_row", pa.array([4] * 3, pa.int64())
    )
    timeline = replace(timeline, ops=ops, stacks=table("stacks", stacks))
    (finding,) = scanned(timeline, in_threes(timeline)).findings
    assert [(s.file, s.line, s.function) for s in finding.source] == [
        ("/x/models/llama.py", 71, "forward"),
        ("train.py", 10, "main"),
    ]


# --- little GPU time, and a step that waits for launches --------------------------------------------------------------


def launched_slowly(period_ns: int = 40_000) -> Timeline:
    """Four chains of three small kernels, each launched long after the one before has ended."""
    return timeline_of([kernel(i * period_ns, 4_000, shapes=((64,), (64,)), queued_ns=6_000) for i in range(12)])


THREES = [range(i, i + 3) for i in range(0, 12, 3)]


def test_a_finding_of_little_gpu_time_is_reported_where_the_step_gains_enough() -> None:
    timeline = launched_slowly()
    rows, found = rows_of_timeline(timeline), [matches(rule(), *THREES)]
    (plain,) = find(timeline, rows, found, device_of(timeline), min_saving_ns=0, causes=CAUSES).findings
    between = (plain.gpu_saving_ns.mid + plain.step_saving_ns.mid) // 2
    assert plain.gpu_saving_ns.mid < between < plain.step_saving_ns.mid
    scan = find(timeline, rows, found, device_of(timeline), min_saving_ns=between, causes=CAUSES)
    assert scan.findings == (plain,)
    assert "below_threshold" not in scan.dropped
    none = find(timeline, rows, found, device_of(timeline), min_saving_ns=plain.step_saving_ns.mid + 1, causes=CAUSES)
    assert none.reported == ()
    assert none.dropped["below_threshold"] == 4


def test_what_others_claim_is_not_claimed_again_for_what_the_step_gains() -> None:
    timeline = launched_slowly()
    rows = rows_of_timeline(timeline)
    first, second = rule("first", priority=1), rule("second", priority=2)
    found = [matches(first, *THREES), matches(second, *THREES)]
    least = (
        find(timeline, rows, found, device_of(timeline), min_saving_ns=0, causes=CAUSES).findings[0].gpu_saving_ns.mid
        + 1
    )
    scan = find(timeline, rows, found, device_of(timeline), min_saving_ns=least, causes=CAUSES)
    assert [f.rule for f in scan.findings] == ["first"]
    claimed = [row for f in scan.findings for once in f.activities for row in once]
    assert len(claimed) == len(set(claimed)) == 12
    assert scan.dropped["below_threshold"] == 4
