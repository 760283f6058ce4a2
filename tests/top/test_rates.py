"""FLOP/s and GB/s against the device, utilisation, and the findings that claim a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.findings.build import BIG, kernel, timeline_of
from tests.known import known_device
from tests.top.raw import Recording
from tests.top.test_sums import tops
from tracemine.api.pictures import tops_of
from tracemine.pipeline import ScanOptions, analysed, mined, scan
from tracemine.timeline import Timeline
from tracemine.top import Top, TopRow

H200 = known_device("NVIDIA H200")


def top_of(timeline: Timeline, by: str = "operator") -> Top:
    analysis = analysed(timeline)
    return tops_of(analysis, mined(analysis), ScanOptions()).by(by)  # type: ignore[arg-type]


def row(top: Top, name: str) -> TopRow:
    return next(one for one in top.rows if one.name == name)


GEMM: dict[str, Any] = {"op": "aten::mm", "shapes": ((4096, 4096), (4096, 4096)), "name": "nvjet_hsh_128x256_64x4_TNT"}


def test_rates_are_of_shapes_over_time() -> None:
    found = top_of(timeline_of([kernel(0, 200_000, **GEMM), kernel(300_000, 40_000)]))
    product, mul = row(found, "aten::mm"), row(found, "aten::mul")
    assert product.flops == 2 * 4096**3
    assert product.flops_per_s == pytest.approx(2 * 4096**3 / 200e-6)
    assert product.bytes == 3 * 4096 * 4096 * 2
    moved = 3 * BIG[0] * BIG[1] * 2
    assert (mul.flops, mul.bytes) == (None, moved)
    assert mul.bytes_reach == pytest.approx(moved / 40e-6 / H200.achieved_bytes_per_s)


def test_all_that_is_used_is_what_the_shapes_ask_for_of_the_peak() -> None:
    used = top_of(timeline_of([kernel(0, 200_000, **GEMM), kernel(300_000, 100_000)])).utilisation
    assert used is not None
    assert used.hfu == pytest.approx(2 * 4096**3 / 400e-6 / H200.flops_per_s["bf16"])
    assert used.mfu == used.hfu
    assert used.recomputed_flops == 0


def test_nothing_is_said_of_use_where_most_products_are_of_unknown_size() -> None:
    unknown = {**GEMM, "shapes": None}
    found = top_of(timeline_of([kernel(0, 100_000, **GEMM), kernel(200_000, 100_000, **unknown)]))
    assert found.utilisation is None
    assert row(found, "aten::mm").flops is None


def test_bytes_that_no_cache_delivers_are_not_told() -> None:
    found = top_of(timeline_of([kernel(0, 1_000)]))
    assert row(found, "aten::mul").bytes is None


def test_without_recomputation_all_that_is_used_is_needed() -> None:
    path = Path("fixtures/kineto/decoder_prefill.json.gz")
    used = tops(path)["kernel"].utilisation
    assert used is not None
    assert used.unprofiled_mfu is not None
    assert used.mfu == used.hfu < used.unprofiled_mfu < 1


def test_what_is_computed_again_is_used_and_not_needed(tmp_path: Path) -> None:
    """A product of the forward pass, its two of the backward pass, and the first once more: 3 needed of 4 computed."""
    product: dict[str, Any] = {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::BFloat16"] * 2}
    forward: dict[str, Any] = {"Sequence number": 5, "Fwd thread id": 0}
    made = Recording()
    made.step(0, 2_000, 1)
    made.kernel("nvjet_a", 100, 110, 200, op="aten::mm", **product, **forward)
    back: dict[str, Any] = {"Sequence number": 5, "Fwd thread id": 1}
    made.around("autograd::engine::evaluate_function: CheckpointFunctionBackward", 400, 800, tid=2, **back)
    again: dict[str, Any] = {"Sequence number": 9, "Fwd thread id": 0}
    made.kernel("nvjet_a", 420, 430, 200, op="aten::mm", tid=2, **product, **again)
    made.around("autograd::engine::evaluate_function: MmBackward0", 900, 1_400, tid=2, **back)
    for launch in (920, 1_150):
        made.kernel("nvjet_b", launch, launch + 10, 200, op="aten::mm", tid=2, **product)
    path = made.written(tmp_path, deviceProperties=[{"id": 0, "name": "NVIDIA H200"}])
    used = tops(path)["kernel"].utilisation
    assert used is not None and used.mfu is not None and H200 is not None
    one = 2 * 4096**3
    assert (used.flops, used.recomputed_flops) == (4 * one, one)
    assert used.mfu == pytest.approx(0.75 * used.hfu)
    assert used.hfu == pytest.approx(4 * one / 2_000e-6 / H200.flops_per_s["bf16"], rel=0.01)


def test_findings_are_named_by_their_place_among_those_that_are_shown() -> None:
    path = Path("fixtures/captures/decoder_prefill")
    found, reported = tops(path), scan(path).reported
    for top in found.values():
        claimed: dict[int, int] = {}
        for one in top.rows:
            assert sum(claim.gpu_time_ns for claim in one.findings) <= one.gpu_time_ns
            for claim in one.findings:
                assert reported[claim.rank - 1].fingerprint == claim.fingerprint
                if one.parent is None:
                    claimed[claim.rank] = claimed.get(claim.rank, 0) + claim.gpu_time_ns
        assert claimed == {rank: finding.measured_ns for rank, finding in enumerate(reported, 1) if finding.on_gpu}
