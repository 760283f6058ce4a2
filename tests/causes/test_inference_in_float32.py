"""Inference in float32, and products in float32 beside half precision: what is found, and what was meant so."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.dispatched import dispatched
from tests.findings.test_library_calls import F32, FFMA, HALF, NVJET, TF32, Calls
from tracemine.findings import Finding
from tracemine.pipeline import analysed, mined
from tracemine.timeline import RecordedDevice

WINOGRAD = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_tensor16x8x8"

SCUDNN = "volta_scudnn_128x64_relu_interior_nn_v1"


def image(dur: int = 900_000) -> Calls:
    return Calls().convolution([(WINOGRAD, dur)], [32, 256, 56, 56], [256, 256, 3, 3], dtype=F32)


def found(calls: Calls) -> Finding | None:
    return calls.found().get("inference_in_float32")


def test_convolutions_and_products_with_tf32_are_one_finding() -> None:
    finding = found(image().product(TF32, 400_000, 8192, 2048, 2048, F32))
    assert finding is not None
    assert finding.occurrences == 2
    assert finding.fused_ns is not None
    assert finding.fused_ns.low < 0.65 * 1_300_000 <= finding.fused_ns.mid < finding.fused_ns.high == 1_300_000


def test_of_a_gpu_whose_matrix_units_take_no_bfloat16_it_is_float16() -> None:
    gpu = RecordedDevice(ordinal=0, name="Tesla T4", sm_count=40, compute_capability="7.5")
    calls = Calls(gpu).convolution([(SCUDNN, 9_000_000)], [32, 256, 56, 56], [256, 256, 3, 3], dtype=F32, tf32=False)
    finding = found(calls)
    assert finding is not None
    assert "model.to(torch.float16)" in finding.fix
    assert "torch.bfloat16" not in finding.fix


def test_a_product_without_tf32_is_one_finding_and_not_two() -> None:
    calls = Calls().product(FFMA, 1_372_600, 8192, 2048, 2048, F32, turned=False)
    assert set(calls.found()) == {"float32_without_tf32"}


def test_beside_half_precision_float32_was_chosen() -> None:
    assert found(image().product(NVJET, 100_000, 8192, 2048, 2048, HALF)) is None


def test_arithmetic_at_its_rate_takes_half_as_long_in_half_precision() -> None:
    """110 GFLOP take 223 us at TF32's peak."""
    finding = found(image(400_000))
    assert finding is not None
    assert finding.fused_ns is not None
    assert (finding.fused_ns.low, finding.fused_ns.mid, finding.fused_ns.high) == (111_254, 288_745, 400_000)
    assert found(image(560_000)) is None  # most of it is not arithmetic
    assert found(image(220_000)) is None  # faster than TF32's peak: not so much is computed


def test_what_is_as_fast_as_half_precision_gains_nothing() -> None:
    assert found(image(170_000)) is None


def test_training_is_left_alone() -> None:
    calls = image()
    calls.call("autograd::engine::evaluate_function: ConvolutionBackward0", [("fill", 5_000)], ([], [], [], []))
    assert found(calls) is None


# --- beside half precision --------------------------------------------------------------------------------------------


def upcast(q: Any, k: Any, v: Any, weight: Any) -> Any:
    scores = torch.bmm(q.float() * 0.125, k.float().transpose(1, 2))
    return torch.bmm(torch.sigmoid(scores).to(q.dtype), v) @ weight


def narrow(q: Any, k: Any, v: Any, weight: Any) -> Any:
    return torch.bmm(torch.sigmoid(torch.bmm(q, k.transpose(1, 2)).float()).to(q.dtype), v) @ weight


def float32_throughout(q: Any, k: Any, v: Any, weight: Any) -> Any:
    scores = torch.bmm(q.float() * 0.125, k.float().transpose(1, 2))
    return torch.bmm(torch.sigmoid(scores), v.float()) @ weight.float()


@pytest.mark.parametrize(("program", "is_found"), [(upcast, True), (narrow, False), (float32_throughout, False)])
def test_scores_of_what_was_cast_up_are_found(program: Any, is_found: bool) -> None:
    torch.manual_seed(0)
    given = [torch.randn(2, 2048, 64, dtype=torch.bfloat16) for _ in range(3)]
    timeline = dispatched(program, *given, torch.randn(64, 64, dtype=torch.bfloat16), steps=2)
    rules = [each.rule for each in mined(analysed(timeline)).findings]
    assert ("float32_beside_half" in rules) is is_found
