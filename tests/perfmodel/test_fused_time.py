"""The predictor of fused time: what it may never do, and how well it does on what was recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.known import known_calibration, known_device
from tracemine.devices import devices, find_device
from tracemine.errors import InputError
from tracemine.fusion import FusedKernel, online_softmax, steps_of
from tracemine.fusion.kernel import Unfused
from tracemine.perfmodel import Curves, parse_calibration, read_calibration
from tracemine.perfmodel.calibration import Point, shipped_calibrations

H200 = Curves(known_calibration("NVIDIA H200 SXM"))
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "h200"


def pointwise(elements: int, item: int = 2, inputs: int = 1, steps: tuple[str, ...] = ("simple",)) -> FusedKernel:
    size = elements * item
    return FusedKernel(reads=(size,) * inputs, writes=(size,), rows=elements, item_bytes=item, steps=steps)


def rows(rows: int, length: int, steps: tuple[str, ...], item: int = 2) -> FusedKernel:
    size = rows * length * item
    return FusedKernel(reads=(size,), writes=(size,), rows=rows, length=length, item_bytes=item, steps=steps)


def test_a_shipped_calibration_is_small_and_belongs_to_a_row_of_the_device_table() -> None:
    for calibration in shipped_calibrations():
        assert len(calibration.to_json()) <= 150_000
        assert find_device(calibration.gpu, sm_count=calibration.sm_count) is not None
        assert parse_calibration(calibration.to_json()) == calibration


@settings(max_examples=60)
@given(
    elements=st.integers(16, 1 << 31),
    more=st.floats(1.0, 4.0),
    item=st.sampled_from([1, 2, 4]),
    warm=st.floats(0, 1),
    steps=st.lists(st.sampled_from(["simple", "exp", "tanh", "erf", "divide"]), max_size=6).map(tuple),
)
def test_more_elements_never_take_less_time(
    elements: int, more: float, item: int, warm: float, steps: tuple[str, ...]
) -> None:
    less = H200.predict(pointwise(elements, item, steps=steps), warm)
    greater = H200.predict(pointwise(int(elements * more), item, steps=steps), warm)
    # As measured, cold: from 230,000 elements of a byte to 520,000 a kernel takes up to 1.9 % less. And from 6 us on
    # timing finds the better shape, without what kernels below lose to the other on average: up to a third.
    assert greater.mid_ns >= min(less.mid_ns, 6000) * 0.98


@settings(max_examples=60)
@given(
    count=st.integers(1, 1 << 16),
    length=st.integers(2, 1 << 18),
    steps=st.lists(st.sampled_from(["simple", "exp", "sum", "welford", "softmax", "scan"]), max_size=5).map(tuple),
    warm=st.floats(0, 1),
)
def test_an_interval_holds_its_middle_and_no_kernel_is_faster_than_an_empty_one(
    count: int, length: int, steps: tuple[str, ...], warm: float
) -> None:
    got = H200.predict(rows(count, length, steps), warm)
    assert 0 < got.low_ns <= got.mid_ns <= got.high_ns
    assert got.low_ns >= H200.least_ns(rows(count, length, steps).nbytes, got.kernels)
    assert np.isfinite(got.high_ns)


def test_warm_inputs_are_never_slower_within_the_cache() -> None:
    for elements in (1 << 12, 1 << 18, 1 << 22):
        assert H200.predict(pointwise(elements), 1.0).mid_ns <= H200.predict(pointwise(elements), 0.0).mid_ns


def test_few_long_rows_take_several_kernels_and_many_short_ones_take_one() -> None:
    assert H200.predict(rows(16, 65536, ("simple", "sum", "simple"))).kernels == 3
    assert H200.predict(rows(65536, 1024, ("simple", "sum", "simple"))).kernels == 1


def test_rows_across_the_grain_are_walked_again_to_be_written_unless_a_program_holds_them() -> None:
    along = rows(12544, 512, ("simple", "welford"))
    across = H200.predict(replace(along, strided=True)).mid_ns
    assert H200.predict(along).mid_ns * 1.5 < across < H200.predict(along).mid_ns * 4
    short = rows(262144, 64, ("simple", "welford"))
    assert H200.predict(replace(short, strided=True)).mid_ns < H200.predict(short).mid_ns * 2


def test_many_columns_that_are_written_again_are_one_kernel() -> None:
    many = replace(rows(100352, 96, ("welford",)), columns=True)
    assert H200.predict(many).kernels == 1
    assert H200.predict(replace(many, rows=1024, length=9408)).kernels > 1


def test_a_channel_is_reduced_in_pieces_and_its_elements_are_written_by_a_kernel_of_their_own() -> None:
    found = H200.predict(rows(512, 25088, ("welford", "channel")))
    assert (found.kernels, found.kind) == (3, "columns_small")
    assert found.mid_ns > H200.predict(rows(512, 25088, ("welford",))).mid_ns
    plain, inference = (H200.predict(pointwise(1 << 24, steps=steps)) for steps in (("simple",), ("channel",)))
    assert plain.mid_ns < inference.mid_ns < plain.mid_ns * 1.5


def test_what_lies_beyond_the_calibration_says_so_and_widens() -> None:
    beyond = H200.predict(pointwise(1 << 34))
    assert beyond.notes
    assert beyond.low_ns == H200.least_ns(4 << 34) < 0.95 * beyond.mid_ns
    assert beyond.high_ns >= 1.6 * beyond.mid_ns


def test_without_a_row_in_the_device_table_the_highest_rate_measured_is_the_memorys_peak() -> None:
    unknown = Curves(replace(H200.calibration, gpu="Brand New"))
    nbytes = 4 << 30
    assert H200.least_ns(nbytes) < unknown.least_ns(nbytes) < 1.1 * H200.least_ns(nbytes)


def test_a_device_known_from_its_data_sheet_has_a_wider_interval_than_a_calibrated_one() -> None:
    kernel = pointwise(1 << 26)
    ours = H200.predict(kernel)
    for device in devices():
        curves = Curves.of(device)
        assert curves is not None
        got = curves.predict(kernel)
        if curves.scaled_from is not None:
            assert got.high_ns / got.low_ns > ours.high_ns / ours.low_ns
            assert "not calibrated" in got.notes[-1]
            assert got.mid_ns * device.achieved_bytes_per_s == pytest.approx(ours.mid_ns * 4.3e12, rel=0.2)


def test_a_gpu_with_its_own_file_is_surer_than_a_borrowed_one_and_less_sure_than_the_one_constants_were_set_on() -> (
    None
):
    kernel = pointwise(1 << 26)
    curves = Curves.of(known_device("NVIDIA A100-SXM4-80GB"))
    assert curves is not None
    own, borrowed = Curves(known_calibration("NVIDIA H100 SXM")).predict(kernel), curves.predict(kernel)
    spread = [found.high_ns / found.mid_ns for found in (H200.predict(kernel), own, borrowed)]
    assert spread[0] < spread[1] < spread[2]
    assert "was set on an NVIDIA H200" in own.notes[-1]


GELU = ("scale", "simple", "scale", "simple", "scale", "tanh", "simple", "scale")
MISH = ("simple", "exp", "log", "tanh", "scale", "tanh", "scale", "sigmoid", "scale", "simple")
NORM = ("sum", "simple", "simple", "sum", "scale")


@pytest.mark.parametrize(
    ("kernel", "warm", "took_ns"),
    [
        (pointwise(1 << 17, steps=GELU), 0.54, 1386),
        (pointwise(1 << 25, steps=GELU), 0.25, 42_717),
        (pointwise(1 << 19, steps=MISH), 0.22, 3064),
        (pointwise(1 << 25, steps=MISH), 0.63, 121_382),
        (rows(256, 512, NORM), 0.47, 1598),
        (rows(8192, 4096, NORM), 1.0, 47_933),
        (rows(16384, 2048, ("softmax", "divide", "scale")), 1.0, 89_902),
    ],
)
def test_kernels_of_torch_compile_on_an_h100_lie_in_the_intervals_of_its_own_calibration(
    kernel: FusedKernel, warm: float, took_ns: int
) -> None:
    """Recorded in steps on an H100 80GB HBM3 (torch 2.11), which no constant was set by; warm as the members told."""
    found = Curves(known_calibration("NVIDIA H100 SXM")).predict(kernel, warm)
    assert found.low_ns <= took_ns <= found.high_ns


def test_a_plain_kernel_tells_whether_its_inputs_were_in_the_cache() -> None:
    cold, warm = H200.memory_ns(1 << 22, 1 << 22, 0), H200.memory_ns(1 << 22, 1 << 22, 1)
    assert H200.residency(1 << 22, 1 << 22, 2 * cold) == 0
    assert H200.residency(1 << 22, 1 << 22, warm) == pytest.approx(1)
    assert 0 < H200.residency(1 << 22, 1 << 22, (cold + warm) / 2) < 1


def test_beyond_the_cache_the_slower_one_is_warm_and_where_nothing_differs_it_is_taken() -> None:
    cold, warm = H200.memory_ns(1 << 26, 1 << 26, 0), H200.memory_ns(1 << 26, 1 << 26, 1)
    assert warm > cold
    assert H200.residency(1 << 26, 1 << 26, cold) == 0
    assert H200.residency(1 << 26, 1 << 26, 2 * warm) == 1
    assert H200.residency(1 << 32, 1 << 32, 1) == 1


def test_the_first_kernel_tells_how_warm_the_inputs_are_unless_it_is_slow_for_another_reason() -> None:
    kernel, size = pointwise(1 << 21), 1 << 22
    cold, warm = H200.memory_ns(size, size, 0), H200.memory_ns(size, size, 1)

    def unfused(*durations: float) -> list[Unfused]:
        return [Unfused(reads=size, writes=size, dur_ns=ns) for ns in durations]

    assert H200.warmth(kernel, unfused(cold, warm)) == 0
    assert H200.warmth(kernel, unfused(warm, cold)) == 1
    assert H200.warmth(kernel, unfused(3 * cold, warm)) == 1
    assert H200.warmth(kernel, unfused(3 * cold, 3 * cold)) == 0
    assert H200.warmth(kernel, []) == 0
    assert H200.warmth(pointwise(1 << 28), unfused(cold)) == 1  # what ran before leaves the cache full


def test_reductions_side_by_side_are_walked_together_and_independent_ones_too() -> None:
    together = H200.predict(rows(8192, 4096, ("exp", "sum", "sum", "divide"))).mid_ns
    apart = H200.predict(rows(8192, 4096, ("exp", "sum", "simple", "sum", "divide"))).mid_ns
    independent = replace(rows(8192, 4096, ("exp", "sum", "simple", "sum", "divide")), depth=1)
    assert together < apart
    assert H200.predict(independent).mid_ns < apart
    assert independent.passes == 1


def test_a_depth_greater_than_the_walks_is_no_more_than_they_are() -> None:
    assert replace(rows(8, 8, ("sum",)), depth=5).passes == 1


def test_random_numbers_take_a_kernel_more_and_much_arithmetic() -> None:
    plain, random = (H200.predict(pointwise(1 << 25, steps=steps)) for steps in (("scale",), ("random", "scale")))
    assert (plain.kernels, random.kernels) == (1, 2)
    assert random.mid_ns > 2 * plain.mid_ns


def test_a_row_is_read_again_from_memory_only_when_the_cache_no_longer_holds_it() -> None:
    at = {length: H200.predict(rows((1 << 27) // length, length, ("sum", "simple"))).mid_ns for length in (8192, 65536)}
    nearly = H200.predict(rows((1 << 27) // 12288, 12288, ("sum", "simple"))).mid_ns
    assert nearly < at[8192] * 1.1
    assert at[65536] > at[8192] * 1.3


def test_a_scan_of_one_step_carries_nothing_over() -> None:
    short, long = (H200.predict(rows((1 << 25) // n, n, ("scan",))).mid_ns for n in (1024, 4096))
    one_step = H200.predict(rows((1 << 25) // 2048, 2048, ("scan",))).mid_ns
    assert one_step <= short * 1.1 < long


def test_more_inputs_and_other_axes_cost_columns_more() -> None:
    size = 8192 * 7168 * 2
    one = FusedKernel(reads=(size,), writes=(28672,), rows=7168, length=8192, steps=("sum",), columns=True)
    two = replace(one, reads=(size, size))
    assert H200.predict(one).kind == "columns"
    assert H200.predict(two).mid_ns > 1.3 * H200.predict(one).mid_ns


@settings(max_examples=40)
@given(product_ns=st.floats(1e3, 1e7), elements=st.integers(1 << 10, 1 << 26), more=st.integers(0, 3))
def test_a_product_is_never_faster_for_what_rides_on_it_and_two_kernels_are_the_middle(
    product_ns: float, elements: int, more: int
) -> None:
    out = elements * 2
    rest = FusedKernel(reads=(out,) * (1 + more), writes=(out,), rows=elements, item_bytes=2, steps=("simple",))
    got = H200.epilogue(product_ns, out, rest)
    assert product_ns <= got.low_ns <= got.mid_ns <= got.high_ns
    assert got.kernels == 2


def test_softmax_of_what_was_scaled_is_spelled_out_and_of_a_plain_maximum_merged() -> None:
    assert online_softmax(steps_of("amax") + steps_of("sub") + steps_of("exp") + steps_of("sum")) == ("softmax",)
    assert "softmax" not in online_softmax(steps_of("max") + steps_of("sub") + steps_of("exp") + steps_of("sum"))
    assert "softmax" not in online_softmax(steps_of("mul") + steps_of("_softmax"))
    assert online_softmax(steps_of("add") + steps_of("_softmax")) == ("simple", "softmax")


def test_a_softmax_with_a_mask_that_is_computed_on_the_way_is_slower_and_less_certain() -> None:
    """As five models' kernels under torch.compile: 1.7 to 3.8 times as long as a plain softmax's."""
    plain = H200.predict(rows(65536, 512, ("scale", "simple", "softmax", "simple")))
    masked = H200.predict(rows(65536, 512, ("compare", "scale", "simple", "softmax", "simple")))
    assert masked.kind == "masked"
    assert plain.mid_ns < masked.low_ns * 1.1
    for times in (1.74, 1.88, 2.82, 3.15, 3.83):
        assert masked.low_ns < times * plain.mid_ns < masked.high_ns
    assert H200.predict(rows(65536, 512, ("softmax", "compare"))).kind == "rows"
    assert H200.predict(rows(65536, 512, ("compare", "welford"))).kind == "rows"


def test_a_softmax_with_a_mask_that_is_read_may_be_slower() -> None:
    """As torch.compile's kernels: 2.0 to 2.2 times as long as a plain softmax's in float16, or 1.1 times."""
    steps = steps_of("mul") + steps_of("masked_fill")
    plain = H200.predict(rows(65536, 512, steps_of("mul") + steps_of("add") + steps_of("_softmax")))
    masked = H200.predict(rows(65536, 512, steps + steps_of("_softmax")))
    assert masked.kind == "masked"
    for times in (1.1, 1.8, 2.0, 2.2):
        assert masked.low_ns < times * plain.mid_ns < masked.high_ns
    assert H200.predict(rows(65536, 512, steps + steps_of("mean"))).kind == "rows"
    assert H200.predict(rows(65536, 512, steps_of("_softmax") + steps_of("where"))).kind == "rows"


def test_what_adds_at_computed_places_waits_for_others_and_a_gather_does_not() -> None:
    added = H200.predict(pointwise(1 << 26, steps=("scale", *steps_of("index_add"))))
    gathered = H200.predict(pointwise(1 << 26, steps=("scale", *steps_of("gather"))))
    assert added.kind == "atomic"
    for times in (1.9, 2.0):
        assert added.low_ns < times * gathered.mid_ns < added.high_ns
    assert gathered.kind == "pointwise"


def test_a_reduction_at_the_launch_floor_may_be_several_launches() -> None:
    tiny, small = (H200.predict(rows(count, 64, ("simple", "sum", "simple"))) for count in (8, 8192))
    assert (tiny.kind, small.kind) == ("tiny", "rows_small")
    for ratio in (0.55, 1.6, 2.1):
        assert tiny.low_ns < ratio * tiny.mid_ns < tiny.high_ns
    assert H200.predict(pointwise(512)).kind == "pointwise_small"


def test_no_interval_is_a_point() -> None:
    for elements in (1, 1 << 10, 1 << 20, 1 << 30):
        found = H200.predict(pointwise(elements), 1.0)
        assert found.low_ns < found.mid_ns < found.high_ns


def test_unknown_operators_are_one_instruction() -> None:
    assert steps_of("aten::never_heard_of") == ("simple",)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "no calibration"), (b"[]", "no calibration"), (b"{", "no calibration"), (b'{"gpu": 1}', "no calibration")],
)
def test_a_file_that_is_no_calibration_is_one_line(content: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_calibration(content)


def test_times_and_versions_that_cannot_be_are_refused(tmp_path: Path) -> None:
    good = shipped_calibrations()[0]
    for bad in (
        replace(good, points=(replace(good.points[0], cold_ns=0),)),
        replace(good, schema_version=2),
        replace(good, columns=("pattern",)),
        replace(good, points=()),
        replace(good, points=(good.points[0],) * 20_001),
        replace(good, gpu=""),
        replace(good, gpu="x" * 201),
        replace(good, sm_count=0),
        replace(good, l2_bytes=-1),
        replace(good, launch=replace(good.launch, empty_kernel_ns=0)),
        replace(good, points=(replace(good.points[0], bytes_read=1 << 62),)),
        replace(good, points=(replace(good.points[0], warm_ns=1 << 62),)),
        replace(good, points=(replace(good.points[0], bytes_written=-1),)),
    ):
        with pytest.raises(InputError):
            parse_calibration(bad.to_json())
    with pytest.raises(InputError, match="there is no such file"):
        read_calibration(tmp_path / "absent.json")


@pytest.mark.parametrize("pattern", ["copy", "exp", "row_norm", "widen"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int8"])
def test_a_pattern_with_points_of_one_type_or_size_alone_is_used_or_refused_by_name(pattern: str, dtype: str) -> None:
    good = shipped_calibrations()[0]
    rests: tuple[Callable[[Point], bool], ...] = (lambda p: p.dtype != dtype, lambda p: p.elements < 1 << 20)
    for kept in rests:
        some = tuple(p for p in good.points if p.pattern != pattern or kept(p))
        try:
            curves = Curves(replace(good, points=some))
        except InputError as error:
            assert f"lacks {pattern}" in error.message
        else:
            assert curves.predict(rows(4096, 1024, ("exp", "sum"))).mid_ns > 0
            assert curves.predict(pointwise(1 << 20, steps=("exp",))).mid_ns > 0


def test_a_pattern_that_is_not_known_changes_nothing() -> None:
    good = shipped_calibrations()[0]
    strange = replace(good.points[0], pattern="row_of_ducks")
    curves = Curves(replace(good, points=(*good.points, strange)))
    assert curves.predict(pointwise(1 << 20)) == Curves(good).predict(pointwise(1 << 20))


def test_a_calibration_without_a_pattern_is_refused_by_name() -> None:
    good = shipped_calibrations()[0]
    some = tuple(point for point in good.points if point.pattern != "row_scan")
    with pytest.raises(InputError, match="lacks row_scan"):
        Curves(replace(good, points=some))


def fields(described: dict[str, Any]) -> FusedKernel:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in described.items()}
    return FusedKernel(**values)


@pytest.mark.parametrize(("name", "mean", "covered"), [("first", 3.5, 0.9), ("fresh", 3.3, 0.9), ("third", 4.2, 0.85)])
def test_recorded_points_are_predicted_as_well_as_the_benchmark_states(name: str, mean: float, covered: float) -> None:
    """What prediction_points prints, in short: mean error of the saving, and how many fall into the interval."""
    errors, inside = [], []
    for point in json.loads((RESULTS / f"points_{name}.json").read_text())["points"]:
        kernels = [fields(described) for described in point["fused"]]
        for state, warm in (("cold", 0.0), ("warm", 1.0)):
            unfused, fused = sum(point[f"eager_{state}_ns"]), sum(point[f"compiled_{state}_ns"])
            parts = [H200.predict(kernel, warm) for kernel in kernels]
            if parts:  # else a library's kernel is part of it
                errors.append(abs(sum(p.mid_ns for p in parts) - fused) / unfused)
                inside.append(sum(p.low_ns for p in parts) <= fused <= sum(p.high_ns for p in parts))
    assert 100 * np.mean(errors) <= mean
    assert np.mean(inside) >= covered
