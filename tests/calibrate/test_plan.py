"""What calibration measures, and how medians come out of a profile, without a GPU."""

from __future__ import annotations

import pytest

from tracemine.calibrate.plan import ITEM_BYTES, Job, plan


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
def medians():
    pytest.importorskip("torch")
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'tracemine[verify]'")
    from tracemine.calibrate.measure import medians

    return medians


def test_the_best_configuration_counts_cold_and_warm_apart(medians) -> None:
    job = Job("copy", "float32", 16, 1, 64, 64, configs=((1,), (2,)))
    slow, fast = [90] * 7 + [1] * 3 + [50] * 7, [80] * 7 + [1] * 3 + [60] * 7
    (point,) = medians([job], [*slow, *fast])
    assert (point.cold_ns, point.warm_ns) == (80, 50)


def test_kernels_of_one_call_are_added(medians) -> None:
    job = Job("split_sum", "float32", 16, 1, 64, 64, configs=((1,),), kernels=2)
    (point,) = medians([job], [10, 5] * 17)
    assert (point.cold_ns, point.warm_ns, point.kernels) == (15, 15, 2)


@pytest.mark.parametrize("count", [16, 18])
def test_a_profile_that_lost_or_invented_activities_is_refused(medians, count: int) -> None:
    job = Job("copy", "float32", 16, 1, 64, 64, configs=((1,),))
    with pytest.raises(ValueError, match="activities"):
        list(medians([job], [10] * count))


def test_a_kernel_that_does_not_compile_is_skipped_and_named() -> None:
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'tracemine[verify]'")
    from tracemine.calibrate.measure import compiled

    def fails() -> None:
        raise RuntimeError("PassManager::run failed\nand more")

    job = Job("row_scan", "float32", 16, 1024, 64, 64, configs=((1,), (2,)))
    skipped: list[str] = []
    kept = compiled(job, [fails, lambda: None], skipped)
    assert kept is not None
    assert kept[0].configs == ((2,),)
    assert skipped == ["row_scan float32 (1,): RuntimeError: PassManager::run failed"]
    assert compiled(job, [fails, fails], skipped) is None
