"""What the step gains: gaps no more than is idle, the GPU's work what it saves, and all together what both are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from msgspec.structs import replace as replace_rows

from tests.findings.build import kernel, matches, rows_of_timeline, rule, timeline_of
from tracemine.causes import CAUSES, load_rules
from tracemine.findings import Finding, Scan, device_of, find
from tracemine.findings.accounting import Room, room_of_step
from tracemine.findings.record import NOTHING, Range
from tracemine.findings.step_savings import Claim, share_out, within_step
from tracemine.perfmodel import TRAINED_CALL_NS
from tracemine.pipeline import ScanOptions, analysed, mined
from tracemine.rows import Categories
from tracemine.units import Threshold

US = 1_000
EVERY, LASTS, COUNT = 300 * US, 100 * US, 40


def host_bound() -> Scan:
    """Pairs of large kernels, each launched 300 µs after the one before: half of that without the profiler."""
    members = [kernel(at * EVERY, LASTS, queued_ns=8 * US, step_row=at // 20) for at in range(COUNT)]
    steps = [(-10 * US, 20 * EVERY), (20 * EVERY - 10 * US, 20 * EVERY)]
    timeline = timeline_of(members, steps=steps)
    rows = rows_of_timeline(timeline)
    pairs = matches(rule(), *((at, at + 1) for at in range(0, COUNT, 2)))
    gaps = matches(rule("gap", "close_gap", group_by=()), *((row,) for row in range(rows["gaps"].count)))
    return find(timeline, rows, [pairs, gaps], device_of(timeline), min_saving_ns=0, causes=CAUSES)


def adds_up(scan: Scan) -> bool:
    """Whether all findings together save what the summary says: at the high end no more than there is."""
    of_all, said = sum((f.step_saving_ns for f in scan.findings), NOTHING), scan.summary.step_saving_ns
    return (said.low, said.mid) == (of_all.low, of_all.mid) and said.mid <= said.high <= of_all.high


def parted(scan: Scan) -> tuple[Finding, Finding]:
    gap, pair = sorted(scan.findings, key=lambda one: one.on_gpu)
    assert (gap.on_gpu, pair.on_gpu) == (False, True)
    return gap, pair


def test_where_the_host_sets_the_pace_gaps_have_what_is_idle_and_the_gpus_work_the_rest() -> None:
    scan = host_bound()
    gap, pair = parted(scan)
    room = room_of_step(scan.summary)
    assert room is not None and gap.per_step is not None and pair.per_step is not None
    assert room.idle.mid > 0
    assert 0 < gap.per_step.step_saving_ns.mid <= room.idle.mid
    assert pair.per_step.step_saving_ns.mid > 0
    joint = scan.summary.per_step.step_saving_ns if scan.summary.per_step is not None else None
    assert joint is not None
    assert joint.mid == gap.per_step.step_saving_ns.mid + pair.per_step.step_saving_ns.mid
    assert joint.mid <= room.most_saved(pair.per_step.gpu_saving_ns).mid


def launching(*, training: bool, modules: bool = True) -> Finding:
    """Kernels launched one by one: in a module, and in training every other one in an optimizer's step."""
    members = [
        kernel(at * EVERY, LASTS, queued_ns=8 * US, module="Net_0" if modules and not at % 2 else None)
        for at in range(COUNT)
    ]
    timeline = timeline_of(members)
    rows = rows_of_timeline(timeline)
    values = np.where(np.arange(COUNT) % 2 & training, 0, -1).astype(np.int32)
    activities = rows["activities"]
    own = {"optimizer": Categories(values, ("SGD",))}
    rows["activities"] = replace_rows(activities, columns=activities.columns | own)
    every = ((row,) for row in range(rows["gaps"].count))
    gaps = matches(rule("gap", "launch_less", group_by=(), rows="gaps"), *every)
    (found,) = find(timeline, rows, [gaps], device_of(timeline), min_saving_ns=0, causes=CAUSES).findings
    return found


def test_in_training_a_compiled_model_wins_its_own_gaps_less_what_its_calls_cost() -> None:
    all_of_it, trained = launching(training=False).step_saving_ns, launching(training=True).step_saving_ns
    # 0.9 of one half less a call, a quarter of the other.
    left = max(0.45 * all_of_it.mid - TRAINED_CALL_NS["in_training"].mid, 0) + 0.125 * all_of_it.mid
    assert abs(trained.mid - left) < 0.03 * all_of_it.mid
    assert trained.low < all_of_it.low and trained.high == all_of_it.high
    unknown = launching(training=True, modules=False).step_saving_ns  # where the model ends: all may be its
    left = max(0.9 * all_of_it.mid - TRAINED_CALL_NS["in_training"].mid, 0)
    assert abs(unknown.mid - left) < 0.03 * all_of_it.mid


def test_a_chain_in_a_loop_gains_no_gpu_time_that_its_compiled_calls_cost() -> None:
    some, nothing = Range(0, 9, 9), Range(0, 0, 0)
    gaps = Claim(some, some, None)
    for calls_ns, of_chain in ((0, 4), (1, 3), (4, 0), (9, 0)):
        chain = Claim(nothing, some, Range(2, 4, 5), calls_ns)
        assert [one.mid for one in share_out([chain, gaps], Range(0, 8, 9), Range(4, 4, 6))] == [of_chain, 4]


def made_first(*, before_us: int) -> Scan:
    """Steps of 10 ms; each, or the time before it, begins with 6 ms in which only the host is at work."""
    long, count = 10_000 * US, 5
    steps = [(at * long + before_us * US, long - (before_us + 1) * US) for at in range(count)]
    members = [
        kernel(at * long + (6_000 + 500 * of) * US, 400 * US, queued_ns=8 * US, step_row=at)
        for at in range(count)
        for of in range(8)
    ]
    return mined(
        analysed(timeline_of(members, steps=steps)), ScanOptions(rules=load_rules(), threshold=Threshold(ns=0))
    )


def test_what_a_step_does_before_its_first_launch_is_a_stall_of_its_own() -> None:
    (stall,) = [one for one in made_first(before_us=0).findings if one.rule == "first_launch_late"]
    assert stall.per_step is not None
    # Before the first step's first launch there is no gap; of the others a tenth of a millisecond is the last step's.
    assert 4 * 6_000 * US // 5 <= stall.per_step.measured_ns <= 4 * 6_100 * US // 5
    assert stall.per_step.step_saving_ns.mid > 0
    # The same before a step begins may be the profiler's.
    assert not {"host_stall", "first_launch_late"} & {one.rule for one in made_first(before_us=5_900).findings}


ns = st.integers(0, 10**9)
ranges = st.tuples(ns, ns, ns).map(lambda each: Range(*sorted(each)))
claims = st.builds(Claim, ranges, ranges, st.none() | ranges)


@given(st.lists(claims, max_size=6), ranges, ranges)
def test_no_more_is_taken_than_is_left_and_gaps_take_no_more_than_is_idle(
    wanted: list[Claim], left: Range, idle: Range
) -> None:
    given_ = share_out(wanted, left, idle)
    joint = min(left.mid, sum(one.saving.mid for one in wanted))
    of_gaps = [each.mid for one, each in zip(wanted, given_, strict=True) if one.gpu_saving is None]
    assert sum(of_gaps) <= idle.mid
    assert sum(each.mid for each in given_) <= joint
    assert sum(each.low for each in given_) <= left.low
    for one, each in zip(wanted, given_, strict=True):
        assert 0 <= each.low <= each.mid <= each.high
        if one.gpu_saving is None:
            assert each.mid <= min(one.saving.mid, one.most.mid) and each.high <= max(each.mid, idle.high)
        else:
            assert each.mid <= max(one.saving.mid, one.gpu_saving.mid)


@given(st.lists(st.builds(Claim, ranges, st.just(Range(0, 10**10, 10**10)), ranges), min_size=1, max_size=6), ranges)
def test_without_gaps_a_wide_interval_takes_nothing_of_what_others_usually_save(
    wanted: list[Claim], left: Range
) -> None:
    given_ = share_out(wanted, left, NOTHING)
    assert sum(each.mid for each in given_) == min(left.mid, sum(one.saving.mid for one in wanted))


@given(st.lists(claims, min_size=1, max_size=6), ranges, ranges)
def test_an_interval_ends_at_its_middle_only_where_there_is_no_more(
    wanted: list[Claim], left: Range, idle: Range
) -> None:
    for one, each in zip(wanted, share_out(wanted, left, idle), strict=True):
        if each.high == each.mid:
            assert each.mid >= min(one.high_of(idle), left.high)


def test_of_gpu_time_that_the_step_does_not_feel_the_high_end_is_what_it_saves() -> None:
    plenty = Range(10**6, 10**6, 10**6)
    (unfelt,) = share_out([Claim(NOTHING, plenty, Range(3, 4, 5))], plenty, NOTHING)
    assert unfelt == Range(0, 0, 5)


def test_what_a_step_is_said_to_save_is_cut_to_what_the_step_has() -> None:
    scan = host_bound()
    gap, pair = parted(scan)
    room = room_of_step(scan.summary)
    assert room is not None and gap.per_step is not None
    planted = replace(gap, per_step=replace(gap.per_step, step_saving_ns=Range(0, 10**9, 10**9)))
    cut, same = parted(replace(scan, findings=tuple(within_step([planted, pair], room))))
    assert cut.per_step is not None
    assert cut.per_step.step_saving_ns.mid <= min(room.idle.mid, gap.per_step.measured_ns)
    assert cut.per_step.share_of_unprofiled <= 1
    assert same == pair


def test_what_lies_within_the_step_stays() -> None:
    scan = host_bound()
    room = room_of_step(scan.summary)
    assert room is not None
    assert sorted(within_step(scan.findings, room), key=repr) == sorted(scan.findings, key=repr)


@pytest.mark.parametrize("busy", [0, 9, 10, 30])
def test_a_step_idles_for_what_its_work_leaves_at_each_end(busy: int) -> None:
    idle = Room(Range(8, 10, 15), busy).idle
    assert [idle.low, idle.mid, idle.high] == [max(each - busy, 0) for each in (8, 10, 15)]
