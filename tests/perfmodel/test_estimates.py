"""The estimate: intervals that are ordered, bytes that are counted once, and reasons where there is none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracemine.devices import Device, devices, find_device
from tracemine.fusion import FusedKernel, Unfused
from tracemine.perfmodel import (
    SLOWDOWNS,
    Abstained,
    Curves,
    Estimate,
    Neighbour,
    Range,
    closed_gaps,
    fitted_slowdown,
    fused_run,
    one_kernel,
)
from tracemine.perfmodel.group import IN_A_STEP
from tracemine.rows.idle_causes import CAUSES

H200 = find_device("NVIDIA H200")
CURVES = Curves.of(H200) if H200 else None
MB = 1_000_000


def relu(**more: Any) -> FusedKernel:
    usual: dict[str, Any] = {"reads": (64 * MB,), "writes": (64 * MB,), "rows": 32 * MB, "item_bytes": 2}
    return FusedKernel(**(usual | more))


def after(kernel: FusedKernel, *members: Unfused, curves: Curves | None = CURVES, **more: Any) -> Estimate:
    result = one_kernel(kernel, members, curves, **more)
    assert isinstance(result, Estimate)
    return result


def test_a_kernel_that_moves_less_takes_less() -> None:
    more, less = relu(reads=(64 * MB, 64 * MB), steps=("simple",)), relu(steps=("simple",))
    assert after(less).after_ns.mid < after(more).after_ns.mid


def test_members_that_ran_as_out_of_the_cache_say_that_the_fused_kernel_finds_its_inputs_there() -> None:
    small = relu(reads=(8 * MB,), writes=(8 * MB,), rows=4 * MB, steps=("simple",))
    cold, warm = (after(small, Unfused(reads=8 * MB, writes=8 * MB, dur_ns=dur)) for dur in (9_000, 3_000))
    assert warm.after_ns.mid < cold.after_ns.mid


def test_a_guess_at_who_reads_what_widens_the_interval_and_says_so() -> None:
    kernel = relu(reads=(64 * MB, 64 * MB), steps=("simple",))
    sure, guessed = after(kernel), after(kernel, sure=False)
    assert guessed.after_ns.low < sure.after_ns.low
    assert guessed.after_ns.high > sure.after_ns.high
    assert guessed.after_ns.mid == sure.after_ns.mid
    assert any("likeliest" in text for text in guessed.assumptions)


def test_a_device_that_nobody_calibrated_has_a_wider_interval_and_says_whose_curves_it_borrows() -> None:
    device = find_device("NVIDIA A100-SXM4-80GB")
    borrowed = after(relu(steps=("simple",)), curves=Curves.of(device) if device else None)
    own = after(relu(steps=("simple",)))
    assert borrowed.after_ns.high / borrowed.after_ns.mid > own.after_ns.high / own.after_ns.mid
    assert any("NVIDIA H100" in text for text in borrowed.assumptions)


def test_without_dataflow_durations_bound_the_estimate() -> None:
    result = fused_run([Neighbour(dur_ns=3000), Neighbour(dur_ns=5000), Neighbour(dur_ns=2000)], CURVES)
    assert isinstance(result, Estimate)
    assert result.after_ns == Range(5000, 7500, 10000)
    assert result.traffic_bytes is None


def test_a_product_in_a_run_keeps_its_time_and_parts_it() -> None:
    run = [Neighbour(dur_ns=dur) for dur in (4000, 90000, 4000, 2000)]
    run[1] = Neighbour(dur_ns=90000, compute=True)
    result = fused_run(run, CURVES)
    assert isinstance(result, Estimate)
    assert CURVES is not None
    launches = math.ceil(2 * CURVES.least_ns(0))
    assert result.after_ns == Range(90000 + launches, 90000 + 4000 + 5000, 100000)


@pytest.mark.parametrize(
    ("run", "curves", "reason"),
    [
        ([Neighbour(dur_ns=1), Neighbour(dur_ns=1)], None, "device_unknown"),
        ([Neighbour(dur_ns=1, compute=True)], CURVES, "compute_bound"),
    ],
)
def test_an_estimate_on_nothing_abstains(run: list[Neighbour], curves: Curves | None, reason: str) -> None:
    assert fused_run(run, curves) == Abstained(reason)
    assert one_kernel(relu(), [], None) == Abstained("device_unknown")


neighbours = st.builds(Neighbour, dur_ns=st.integers(0, 10**7), compute=st.booleans())


@settings(max_examples=200)
@given(run=st.lists(neighbours, min_size=1, max_size=8), device=st.sampled_from(devices()))
def test_a_run_is_an_ordered_interval_and_never_longer_than_it_was(run: list[Neighbour], device: Device) -> None:
    result = fused_run(run, Curves.of(device))
    if isinstance(result, Abstained):
        assert all(one.compute for one in run)
        return
    assert 0 <= result.after_ns.low <= result.after_ns.mid <= result.after_ns.high == sum(one.dur_ns for one in run)


steps = st.lists(st.sampled_from(["simple", "exp", "sum", "welford", "softmax", "scan", "divide"]), max_size=5)
kernels = st.builds(
    FusedKernel,
    reads=st.lists(st.integers(0, 1 << 33), max_size=4).map(tuple),
    writes=st.lists(st.integers(0, 1 << 33), max_size=3).map(tuple),
    rows=st.integers(1, 1 << 20),
    length=st.integers(1, 1 << 16),
    item_bytes=st.sampled_from([1, 2, 4, 8]),
    steps=steps.map(tuple),
    columns=st.booleans(),
    strided=st.booleans(),
)


@settings(max_examples=300)
@given(
    kernel=kernels,
    device=st.sampled_from(devices()),
    sure=st.booleans(),
    product_bytes=st.sampled_from([0, 1 << 20, 1 << 30]),
    dur_ns=st.floats(0, 1e9),
)
def test_no_end_is_below_a_launch_nor_faster_than_the_memory_moves_what_the_cache_does_not_hold(
    kernel: FusedKernel, device: Device, sure: bool, product_bytes: int, dur_ns: float
) -> None:
    member = Unfused(reads=sum(kernel.reads), writes=sum(kernel.writes), dur_ns=dur_ns)
    curves = Curves.of(device)
    assert curves is not None
    result = after(kernel, member, member, curves=curves, sure=sure, product_bytes=product_bytes)
    # Where it is not sure which tensors are one, the fewest bytes that they can be.
    nbytes = kernel.nbytes if sure else sum(dict.fromkeys(kernel.reads)) + sum(kernel.writes)
    l2_bytes = curves.calibration.l2_bytes
    assert result.after_ns.low >= curves.calibration.launch.empty_kernel_ns * 0.8
    assert result.after_ns.low >= (nbytes - l2_bytes) / device.bandwidth_bytes_per_s * 1e9


@given(
    run=st.lists(st.builds(Neighbour, dur_ns=st.integers(700, 10**7), compute=st.booleans()), min_size=1, max_size=8)
)
def test_no_run_is_faster_than_launching_what_is_left_of_it(run: list[Neighbour]) -> None:
    result = fused_run(run, CURVES)
    if isinstance(result, Estimate):
        assert CURVES is not None
        kept = sum(one.dur_ns for one in run if one.compute)
        assert result.after_ns.low - kept >= CURVES.least_ns(0)


@settings(max_examples=200)
@given(kernel=kernels, sure=st.booleans(), dur_ns=st.floats(0, 1e9))
def test_one_kernel_is_an_ordered_interval_whatever_it_is(kernel: FusedKernel, sure: bool, dur_ns: float) -> None:
    result = after(kernel, Unfused(reads=sum(kernel.reads), writes=sum(kernel.writes), dur_ns=dur_ns), sure=sure)
    assert 0 < result.after_ns.low <= result.after_ns.mid <= result.after_ns.high


@given(
    gaps=st.lists(st.integers(0, 1 << 58), max_size=20), cause=st.sampled_from(["host_bound", "synchronisation", None])
)
def test_closing_gaps_never_gives_back_more_than_they_last(gaps: list[int], cause: str | None) -> None:
    saving, _ = closed_gaps(np.array(gaps, dtype=np.int64), cause)
    assert 0 <= saving.low <= saving.mid <= saving.high <= sum(gaps)


@given(
    gaps=st.lists(
        st.tuples(st.integers(0, 1 << 40), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=9
    ),
    cause=st.sampled_from([*CAUSES, None]),
)
def test_gaps_as_they_are_alone_give_back_no_more_than_as_recorded(
    gaps: list[tuple[int, float, float, float]], cause: str | None
) -> None:
    dur = np.array([each[0] for each in gaps])
    parts = [sorted(int(part * each[0]) for part in each[1:]) for each in gaps]
    least, usual, most = np.array(parts).T
    saving, assumptions = closed_gaps(dur, cause, (least, usual, most), SLOWDOWNS["stacks"])
    recorded, _ = closed_gaps(dur, cause)
    assert 0 <= saving.low <= saving.mid <= saving.high
    assert (saving.low, saving.mid, saving.high) <= (recorded.low, recorded.mid, recorded.high)
    assert any(SLOWDOWNS["stacks"].what in text for text in assumptions)


def test_of_time_in_which_the_device_may_have_been_busy_nothing_comes_back() -> None:
    assert closed_gaps(np.array([10**6]), "graph_not_recorded")[0] == Range(0, 0, 0)


def test_the_pace_is_the_least_at_which_a_step_takes_as_long_as_alone() -> None:
    paces, others = np.array([1.0, 2.0, 4.0, 8.0]), SLOWDOWNS["both"]
    assert fitted_slowdown(paces, np.array([8e6, 4e6, 2e6, 1e6]), 3_000_000, others).usual == 3.0
    assert fitted_slowdown(paces, np.array([8e6, 4e6, 2e6, 1e6]), 9_000_000, others).usual == 1.0


@pytest.mark.parametrize("alone_ns", [3_900_000, 4_000_000, 4_100_000])
def test_where_the_device_sets_the_pace_a_host_is_as_fast_as_with_other_models_but_no_slower_than_the_step_tells(
    alone_ns: int,
) -> None:
    paces, others = np.array([1.0, 2.0, 4.0, 8.0]), SLOWDOWNS["both"]
    for step_ns in ([8e6, 4e6, 4e6, 4e6], [4e6, 4e6, 4e6, 4e6]):
        fitted = fitted_slowdown(paces, np.array(step_ns), alone_ns, others)
        assert (fitted.usual, fitted.most) == (others.usual, others.most)
    slow = fitted_slowdown(paces, np.array([40e6, 20e6, 10e6, 4e6]), alone_ns, others)
    assert slow.usual > others.usual


def test_reasons_that_have_nothing_to_do_with_each_other_are_not_all_at_their_worst_at_once() -> None:
    assert CURVES is not None
    small = FusedKernel(reads=(1 << 20,), writes=(1 << 20,), rows=1 << 19, item_bytes=2, steps=("simple",))
    alone, found = CURVES.predict(small), one_kernel(small, [], CURVES)
    assert isinstance(found, Estimate)
    apart = alone.high_ns / alone.mid_ns  # of a small kernel alone: 1.4
    assert max(apart, IN_A_STEP[1]) < found.after_ns.high / alone.mid_ns < 0.85 * apart * IN_A_STEP[1]


def test_a_group_in_a_step_is_less_certain_than_a_kernel_alone() -> None:
    assert CURVES is not None
    kernel = relu(steps=("simple",))
    alone, found = CURVES.predict(kernel), after(kernel)
    assert found.after_ns.mid == round(alone.mid_ns)
    assert 1.4 * alone.high_ns < found.after_ns.high < 1.8 * alone.high_ns
    assert alone.low_ns / 1.42 < found.after_ns.low < alone.low_ns / 1.3
    assert any("off together" in text for text in found.assumptions)
