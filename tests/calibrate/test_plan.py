"""What calibration measures, and how medians come out of a profile, without a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest

from tracemine.calibrate.plan import ITEM_BYTES, LibraryJob, PatternJob, library_plan, plan
from tracemine.perfmodel.calibration import LibraryPoint, Point
from tracemine.perfmodel.library_rates import FEWEST

Medians = Callable[[Sequence[PatternJob], Sequence[int]], Iterator[Point]]
LibraryMedians = Callable[[Sequence[LibraryJob], Sequence[tuple[str, int]]], Iterator[LibraryPoint]]


def test_the_plan_reaches_from_4_kilobytes_to_8_gigabytes_and_no_further() -> None:
    copies = [job.nbytes for job in plan() if job.pattern == "copy"]
    assert min(copies) <= 4096
    assert max(copies) == 8 << 30
    assert max(job.nbytes for job in plan(1 << 30)) <= 1 << 30


def test_every_job_moves_the_bytes_of_its_tensors() -> None:
    for job in plan():
        assert job.rows > 0 and job.length > 0 and job.configs
        elements, item = job.rows * job.length, ITEM_BYTES[job.dtype]
        assert job.bytes_read % item == 0
        if job.pattern != "write":
            assert job.bytes_read >= elements * item


def test_accesses_of_large_pointwise_tensors_are_aligned() -> None:
    assert all(job.rows % 16 == 0 for job in plan() if job.length == 1)


@pytest.fixture
def medians() -> Medians:
    pytest.importorskip("torch")
    pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')
    from tracemine.calibrate.measure import medians

    return medians


def test_the_best_configuration_counts_cold_and_warm_apart(medians: Medians) -> None:
    job = PatternJob("copy", "float32", 16, 1, 64, 64, configs=((1,), (2,)))
    slow, fast = [90] * 7 + [1] * 3 + [50] * 7, [80] * 7 + [1] * 3 + [60] * 7
    (point,) = medians([job], [*slow, *fast])
    assert (point.cold_ns, point.warm_ns) == (80, 50)


def test_kernels_of_one_call_are_added(medians: Medians) -> None:
    job = PatternJob("split_sum", "float32", 16, 1, 64, 64, configs=((1,),), kernels=2)
    (point,) = medians([job], [10, 5] * 17)
    assert (point.cold_ns, point.warm_ns, point.kernels) == (15, 15, 2)


@pytest.mark.parametrize("count", [16, 18])
def test_a_profile_that_lost_or_invented_activities_is_refused(medians: Medians, count: int) -> None:
    job = PatternJob("copy", "float32", 16, 1, 64, 64, configs=((1,),))
    with pytest.raises(ValueError, match="activities"):
        list(medians([job], [10] * count))


def test_a_kernel_that_does_not_compile_is_skipped_and_named() -> None:
    pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')
    from tracemine.calibrate.measure import compiled

    def fails() -> None:
        raise RuntimeError("PassManager::run failed\nand more")

    job = PatternJob("row_scan", "float32", 16, 1024, 64, 64, configs=((1,), (2,)))
    skipped: list[str] = []
    kept = compiled(job, [fails, lambda: None], skipped)
    assert kept is not None
    assert kept[0].configs == ((2,),)
    assert skipped == ["row_scan float32 (1,): RuntimeError: PassManager::run failed"]
    assert compiled(job, [fails, fails], skipped) is None


# --- libraries -------------------------------------------------------------------------------------------------------


def test_each_kind_of_call_has_enough_points_for_a_rate() -> None:
    kinds = Counter((job.operation, job.arithmetic) for job in library_plan())
    assert min(kinds.values()) >= FEWEST
    assert {arithmetic for _, arithmetic in kinds} == {"half", "tf32", "fp32", "fp64"}


def test_calls_of_libraries_take_seconds_on_a_slow_gpu() -> None:
    """FLOPs of all repetitions at what a T4 reaches: 20 TFLOP/s in half precision, 4 in float32, 0.2 in float64."""
    rates = {"half": 20e12, "tf32": 4e12, "fp32": 4e12, "fp64": 0.2e12}
    assert sum(10 * job.flops / rates[job.arithmetic] for job in library_plan()) < 30


def test_every_call_fits_a_gpu_of_8_gigabytes() -> None:
    assert max(job.nbytes for job in library_plan()) < 2 << 30


def test_a_product_s_flops_are_twice_its_sizes() -> None:
    for job in library_plan():
        if job.operation == "product":
            rows, inner, columns = job.sizes
            assert job.flops == 2 * rows * inner * columns
            item = {"float16": 2, "float32": 4, "float64": 8}[job.dtype]
            assert job.nbytes == item * (rows * inner + inner * columns + rows * columns)


@pytest.mark.parametrize("operation", sorted({job.operation for job in library_plan()}))
def test_a_call_runs_as_it_is_counted(operation: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')
    from torch.utils.flop_counter import FlopCounterMode

    from tracemine.calibrate.measure_library import library_call_of

    job = next(job for job in library_plan() if job.operation == operation)
    before = torch.backends.cudnn.allow_tf32
    with library_call_of(job, "meta") as run, FlopCounterMode(display=False) as counter:
        run()
    assert torch.backends.cudnn.allow_tf32 is before
    # On the meta device attention is its four products; a fused backward pass computes the scores a second time.
    again = job.flops // 5 if operation == "attention_backward" else 0
    assert counter.get_total_flops() == job.flops - again


@pytest.fixture
def library_medians() -> LibraryMedians:
    pytest.importorskip("torch")
    pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')
    from tracemine.calibrate.measure_library import library_medians

    return library_medians


def test_a_call_s_time_is_that_of_all_its_kernels(library_medians: LibraryMedians) -> None:
    job, other = library_plan()[:2]
    mark, calls = ("empty_pattern", 1), [("a", 10), ("b", 5)] * 6 + [("a", 1000), ("b", 5)]
    found = list(library_medians([job, other], [("a", 9), mark, *calls, mark, ("w", 3), mark, *[("c", 7)] * 7, mark]))
    assert [(point.shape, point.ns) for point in found] == [(job.shape, 15), (other.shape, 7)]


def test_calls_of_different_kernels_count_their_mean(library_medians: LibraryMedians) -> None:
    (point,) = library_medians(library_plan()[:1], [("empty_pattern", 1), *[("a", 7)] * 8, ("empty_pattern", 1)])
    assert point.ns == 8


@pytest.mark.parametrize("activities", [[], [("empty_pattern", 1)], [("empty_pattern", 1)] * 2])
def test_a_profile_of_libraries_that_lost_something_is_refused(
    library_medians: LibraryMedians, activities: list[tuple[str, int]]
) -> None:
    with pytest.raises(ValueError, match="lost"):
        list(library_medians(library_plan()[:1], activities))
