"""The estimate: intervals that are ordered, bytes that are counted once, and reasons where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracemine.cost import SLOWDOWNS, Abstained, Call, Estimate, Range, Tensor, closed_gaps, fused, pinned
from tracemine.devices import Device, devices, find_device

H200 = find_device("NVIDIA H200")
MB = 1_000_000


def tensor(kind: str, nbytes: int = 100 * MB) -> Tensor:
    return Tensor(nbytes // 2, kind, nbytes)


def estimate(*chain: Call, device: Device | None = H200) -> Estimate:
    result = fused(chain, device)
    assert isinstance(result, Estimate)
    return result


X, Y = tensor("bfloat16"), tensor("float32", 200 * MB)
ROW = Tensor(4096, "bfloat16", 8192)


def test_an_intermediate_is_neither_read_nor_written_by_the_fused_kernel() -> None:
    cast = Call(dur_ns=70_000, reads=(X,), writes=(Y,))
    back = Call(dur_ns=70_000, reads=(Y,), writes=(X,))
    result = estimate(cast, back)
    assert result.traffic_bytes is not None
    assert (result.traffic_bytes.before, result.traffic_bytes.after) == (600 * MB, 200 * MB)
    assert result.intermediate_bytes == 200 * MB


def test_a_second_input_of_the_same_kind_comes_from_outside() -> None:
    silu = Call(dur_ns=50_000, reads=(X,), writes=(X,))
    mul = Call(dur_ns=70_000, reads=(X, X), writes=(X,))
    result = estimate(silu, mul)
    assert result.traffic_bytes is not None
    assert result.traffic_bytes.after == 300 * MB  # gate, up, and the product


def test_an_output_that_no_later_member_reads_is_still_written() -> None:
    two = Call(dur_ns=70_000, reads=(X,), writes=(X, Y))
    last = Call(dur_ns=50_000, reads=(X,), writes=(X,))
    result = estimate(two, last)
    assert result.traffic_bytes is not None
    assert result.traffic_bytes.after == 400 * MB


def test_weights_are_read_from_outside() -> None:
    norm = Call(dur_ns=70_000, reads=(X, ROW), writes=(X,), row_wise=True)
    scale = Call(dur_ns=70_000, reads=(X, ROW), writes=(X,))
    result = estimate(norm, scale)
    assert result.traffic_bytes is not None
    assert result.traffic_bytes.after == 200 * MB + 2 * ROW.nbytes


def test_a_row_reduction_is_expected_to_be_slower_than_pointwise() -> None:
    pointwise = Call(dur_ns=50_000, reads=(X,), writes=(X,))
    row_wise = Call(dur_ns=50_000, reads=(X,), writes=(X,), row_wise=True)
    assert estimate(pointwise, row_wise).after_ns.mid > estimate(pointwise, pointwise).after_ns.mid


def test_a_product_keeps_its_time_and_is_no_part_of_the_fused_kernel() -> None:
    product = Call(dur_ns=900_000, compute=True, reads=(X, X), writes=(X,))
    pointwise = Call(dur_ns=50_000, reads=(X,), writes=(X,))
    with_product, without = estimate(product, pointwise, pointwise), estimate(pointwise, pointwise)
    assert with_product.after_ns.mid == without.after_ns.mid + 900_000
    assert with_product.after_ns.low == 900_000
    assert with_product.traffic_bytes is None


def test_without_shapes_durations_bound_the_estimate() -> None:
    result = estimate(Call(dur_ns=30), Call(dur_ns=50), Call(dur_ns=20))
    assert result.after_ns == Range(50, 75, 100)
    assert result.traffic_bytes is None


@pytest.mark.parametrize(
    ("chain", "device", "reason"),
    [
        ([Call(dur_ns=1), Call(dur_ns=1)], None, "device_unknown"),
        ([Call(dur_ns=1, compute=True)], H200, "compute_bound"),
    ],
)
def test_an_estimate_with_nothing_to_stand_on_abstains(chain: list[Call], device: Device | None, reason: str) -> None:
    assert fused(chain, device) == Abstained(reason)


def test_a_copy_of_unknown_size_or_on_an_unknown_gpu_abstains() -> None:
    assert pinned(None, H200) == Abstained("bytes_unknown")
    assert pinned(1, None) == Abstained("device_unknown")


def test_a_measured_device_has_a_narrower_floor_than_an_assumed_one() -> None:
    small = Call(dur_ns=2_000, reads=(ROW,), writes=(ROW,))
    known, assumed = (
        estimate(small, small, device=find_device(n)).after_ns for n in ("NVIDIA H200", "NVIDIA A100-SXM4-80GB")
    )
    assert known.high - known.low < assumed.high - assumed.low


tensors = st.builds(lambda n, kind: tensor(kind, n * 1024), st.integers(1, 10**6), st.sampled_from(["a", "b"]))
some = st.none() | st.lists(tensors, max_size=3).map(tuple)
calls = st.builds(
    Call, dur_ns=st.integers(0, 10**7), compute=st.booleans(), row_wise=st.booleans(), reads=some, writes=some
)


@settings(max_examples=200, deadline=None)
@given(chain=st.lists(calls, min_size=1, max_size=8), device=st.sampled_from(devices()))
def test_every_estimate_is_an_ordered_interval_and_never_more_traffic_than_before(
    chain: list[Call], device: Device
) -> None:
    result = fused(chain, device)
    if isinstance(result, Abstained):
        assert all(call.compute for call in chain)
        return
    assert 0 <= result.after_ns.low <= result.after_ns.mid <= result.after_ns.high
    if result.traffic_bytes is not None:
        assert 0 <= result.traffic_bytes.after <= result.traffic_bytes.before


@given(
    gaps=st.lists(st.integers(0, 1 << 58), max_size=20), cause=st.sampled_from(["host_bound", "synchronisation", None])
)
def test_closing_gaps_never_gives_back_more_than_they_last(gaps: list[int], cause: str | None) -> None:
    saving, _ = closed_gaps(np.array(gaps, dtype=np.int64), cause)
    assert 0 <= saving.low <= saving.mid <= saving.high <= sum(gaps)


@pytest.mark.parametrize("recorded", sorted(SLOWDOWNS))
def test_what_recording_did_to_the_host_is_taken_off_its_gaps(recorded: str) -> None:
    gaps, busy = np.array([40_000, 90_000]), np.array([20_000, 5_000])
    alone, _ = closed_gaps(gaps, "host_bound")
    saving, assumptions = closed_gaps(gaps, "host_bound", busy, SLOWDOWNS[recorded])
    assert saving.low <= saving.mid <= saving.high
    assert (saving.low, saving.mid, saving.high) < (alone.low, alone.mid, alone.high)
    assert any(SLOWDOWNS[recorded].what in text for text in assumptions)


def test_a_gap_that_recording_alone_made_saves_nothing() -> None:
    # Busy 90 µs, then idle 10 µs: a host that takes two thirds of the time keeps the device busy.
    assert closed_gaps(np.array([10_000]), "host_bound", np.array([90_000]), SLOWDOWNS["operators"])[0].mid == 0


def test_recording_does_not_make_the_host_wait_for_the_device() -> None:
    gaps, busy = np.array([40_000]), np.array([20_000])
    assert closed_gaps(gaps, "synchronisation", busy, SLOWDOWNS["stacks"]) == closed_gaps(gaps, "synchronisation")


def test_the_saving_of_a_host_bound_step_agrees_with_a_measured_graph_replay() -> None:
    """The decoder's decoding step on an H200: 1.10 ms alone, 1.96 ms with stacks recorded, 0.27 ms as a CUDA graph."""
    kernels, busy_ns, recorded_ns = 92, 224_000, 1_960_000
    gaps = np.full(kernels, (recorded_ns - busy_ns) // kernels)
    saving, _ = closed_gaps(gaps, "host_bound", np.full(kernels, busy_ns // kernels), SLOWDOWNS["stacks"])
    measured_ns = 1_100_000 - 270_000
    assert saving.low <= measured_ns <= saving.high
    assert abs(saving.mid - measured_ns) < 0.15 * measured_ns
