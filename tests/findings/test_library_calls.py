"""Calls of a library below their rate: which are found, with which cause, and near misses that are not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.rows.test_gaps import column
from tests.timelines import Trace
from tracemine.causes import load_rules
from tracemine.findings import Finding, Scan
from tracemine.pipeline import ScanOptions, analysed, mined, scan
from tracemine.rows import row_sets
from tracemine.timeline import RecordedDevice

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kineto"
RULES = [rule for rule in load_rules() if rule.saving == "reach_rate"]
H200 = RecordedDevice(ordinal=0, name="NVIDIA H200", sm_count=132)
A100 = RecordedDevice(ordinal=0, name="NVIDIA A100-SXM4-80GB", sm_count=108)
V100 = RecordedDevice(ordinal=0, name="Tesla V100-SXM2-16GB", sm_count=80)
HALF, F32, F64 = "c10::Half", "float", "double"

ALIGN2 = "cutlass_80_tensorop_f16_s16816gemm_f16_128x256_64x3_tn_align2"
NVJET = "nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_bias_TNT"
FFMA = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_warpsize4x2x1_ffma_aligna4_alignc4"
TF32 = "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_stage3_tensor16x8x8_aligna4_alignc4"
DGEMM = "sm80_xmma_gemm_f64f64_f64f64_f64_tn_n_tilesize128x64x16_dmma"
SGEMM = "void implicit_convolve_sgemm<__half, __half, 128, 5, 5, 3, 3, 3, 1, false, false, true>(int, int, int)"
WGRAD = "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x32x64"


class Calls:
    """A trace of calls one after another, each with its kernels' names and times, and pointwise work to fill up."""

    def __init__(self, device: RecordedDevice = H200) -> None:
        self._trace = Trace(devices=(device,))
        self._at = 0

    def call(self, op: str, kernels: Sequence[tuple[str, int]], inputs: Sequence[Any]) -> Calls:
        shapes, dtypes, strides, concrete = inputs
        own = self._trace.op(op, self._at, 5, shapes, dtypes, strides, concrete)
        for name, dur in kernels:
            self._trace.kernel(name, self._at + 50_000, dur, op=own)
            self._at += dur + 100
        return self

    def product(self, kernel: str, dur: int, m: int, k: int, n: int, dtype: str = HALF, turned: bool = True) -> Calls:
        second = [1, k] if turned else [n, 1]
        return self.call("aten::mm", [(kernel, dur)], ([[m, k], [k, n]], [dtype] * 2, [[k, 1], second], ["", ""]))

    def convolution(
        self,
        kernels: Sequence[tuple[str, int]],
        image: list[int],
        weight: list[int],
        *,
        groups: int = 1,
        stride: int = 1,
        tf32: bool = True,
        dtype: str = HALF,
    ) -> Calls:
        c, h, w = image[1:]
        steps = [[c * h * w, h * w, w, 1], [weight[1] * weight[2] * weight[3], weight[2] * weight[3], weight[3], 1]]
        given = ["", "", "[0, 0]", f"[{stride}, {stride}]", "[1, 1]", str(groups), "False", "False", str(tf32)]
        types = [dtype, dtype, "ScalarList", "ScalarList", "ScalarList", *["Scalar"] * 4]
        inputs = ([image, weight, *[[]] * 7], types, [*steps, *[[]] * 7], given)
        return self.call("aten::cudnn_convolution", kernels, inputs)

    def scan(self) -> Scan:
        return mined(analysed(self._trace.timeline()), ScanOptions(rules=RULES))

    def found(self) -> dict[str, Finding]:
        return {finding.rule: finding for finding in self.scan().findings}

    def column(self, name: str) -> list[Any]:
        return column(row_sets(self._trace.timeline())["activities"], name)


def vocabulary(size: int, kernel: str, dur: int) -> Calls:
    return Calls().product(kernel, dur, 2048, 768, size)


def test_a_vocabulary_that_is_no_multiple_of_8_is_found_and_priced_as_it_was_measured_padded() -> None:
    finding = vocabulary(30522, ALIGN2, 422_200).found()["misaligned_product"]
    assert finding.fused_ns is not None
    assert finding.fused_ns.low <= 149_700 <= finding.fused_ns.high  # torch.compile's, with a copy of the weight
    assert finding.gpu_saving_ns.low > 0
    assert finding.flops == 2 * 2048 * 768 * 30522
    assert "227 TFLOP/s" in finding.assumptions[0]


@pytest.mark.parametrize(
    ("size", "kernel", "dur"),
    [
        (30528, NVJET, 150_000),  # padded
        (30528, ALIGN2, 422_200),  # a kernel for narrow loads, and nothing in the layout that asks for one
        (30522, NVJET, 150_000),  # misaligned, and as fast as it can be
        (30522, ALIGN2, 180_000),  # misaligned, and little to gain
    ],
)
def test_a_product_that_is_aligned_or_fast_is_not_called_misaligned(size: int, kernel: str, dur: int) -> None:
    assert "misaligned_product" not in vocabulary(size, kernel, dur).found()


def test_a_small_misaligned_product_is_as_long_as_its_launch() -> None:
    """A router over four experts: aligned it takes its launch's time too."""
    calls = Calls().product("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x1_tn_align1", 5_500, 256, 512, 4)
    assert calls.found() == {}
    assert calls.column("call_cause") == ["misaligned"]


def test_rows_alone_are_harmless() -> None:
    assert Calls().product(NVJET, 60_000, 5185, 1024, 2816).found() == {}


def test_a_product_in_float32_without_tf32_is_found() -> None:
    finding = Calls().product(FFMA, 1_372_600, 8192, 2048, 2048, F32, turned=False).found()["float32_without_tf32"]
    assert finding.fused_ns is not None
    assert finding.fused_ns.high < 1_372_600 / 2
    assert "not measured" in finding.assumptions[0]


def test_all_products_in_float32_are_one_finding_and_three_percent_are_counted_over_them() -> None:
    calls = Calls()
    for k in range(512, 512 + 64 * 40, 64):  # few of them take 3 %
        calls.product(FFMA, 40 * k, 2048, k, 1024, F32)
    found = calls.found()
    assert list(found) == ["float32_without_tf32"]
    assert found["float32_without_tf32"].occurrences == 40


@pytest.mark.parametrize("device", [V100, A100])
def test_a_gpu_without_tf32_has_none_to_allow(device: RecordedDevice) -> None:
    calls = Calls(device).product(FFMA, 2_000_000, 8192, 2048, 2048, F32, turned=False)
    assert ("float32_without_tf32" in calls.found()) is (device is A100)


def test_where_a_product_ran_in_tf32_it_is_allowed() -> None:
    calls = Calls().product(FFMA, 1_372_600, 8192, 2048, 2048, F32, turned=False)
    calls.product(TF32, 100_000, 8192, 2048, 1024, F32)
    assert "float32_without_tf32" not in calls.found()


def test_a_skinny_or_small_product_in_float32_gains_nothing() -> None:
    skinny = Calls().product("gemvNSP_kernel<float, float, float, float, 1, 32>", 60_000, 1, 8192, 8192, F32)
    small = Calls().product("cutlass_80_simt_sgemm_64x64_8x5_nn_align1", 12_000, 256, 256, 256, F32)
    short_sums = Calls().product(FFMA, 286_000, 96 * 65_536, 3, 2, F32)  # grids that pictures are turned by
    assert skinny.found() == small.found() == short_sums.found() == {}
    assert small.scan().dropped["at_its_rate"] == 1


def test_decoding_is_held_against_bandwidth_not_arithmetic() -> None:
    """One row against 8192 × 8192 weights: 134 MB in 40 µs are 3.4 TB/s, and 3 TFLOP/s."""
    assert Calls().product(NVJET, 40_000, 1, 8192, 8192).found() == {}


def test_float64_is_found_where_float32_would_be_faster() -> None:
    cast = ([[8192, 2048], [8192, 2048], []], [F64, F32, "Scalar"], [[2048, 1], [2048, 1], []], ["", "", "False"])
    calls = Calls().call("aten::copy_", [("copy", 60_000)], cast).product(DGEMM, 1_500_000, 8192, 2048, 2048, F64)
    assert "float64_product" in calls.found()
    assert calls.column("call_cause") == [None, "float64"]


def test_float64_from_the_first_tensor_to_the_last_is_meant_so() -> None:
    calls = Calls().product(DGEMM, 1_500_000, 8192, 2048, 2048, F64)
    assert calls.found() == {}
    assert calls.column("call_cause") == ["float64_throughout"]


def test_a_convolution_that_runs_group_by_group_is_found() -> None:
    kernels = [("genericTranspose_kernel", 9_000), *[(SGEMM, 20_000)] * 16]
    calls = Calls().convolution(kernels, [2, 256, 1, 176], [256, 16, 1, 128], groups=16, dtype=F32)
    finding = calls.found()["grouped_convolution"]
    assert finding.occurrences == 1
    assert len(finding.activities[0]) == 17  # all that the call launched
    assert finding.measured_ns == 329_000


def test_one_kernel_for_all_groups_is_not_group_by_group() -> None:
    calls = Calls().convolution([(WGRAD, 30_000)], [2, 256, 8, 176], [256, 16, 1, 3], groups=16)
    assert "grouped_convolution" not in calls.found()


def test_a_depthwise_convolution_is_left_alone() -> None:
    calls = Calls().convolution([("conv2d_c1_k1_nchw", 400_000)], [32, 256, 64, 64], [256, 1, 3, 3], groups=256)
    assert calls.found() == {}
    assert calls.column("call_cause") == ["depthwise"]


def test_patches_side_by_side_are_a_product() -> None:
    calls = Calls().convolution([("nchwToNhwc", 3_000), (SGEMM, 48_000)], [2, 3, 224, 224], [384, 3, 16, 16], stride=16)
    finding = calls.found()["patch_convolution"]
    assert finding.measured_ns == 51_000
    assert finding.gpu_saving_ns.low > 30_000


def test_overlapping_windows_are_no_patches_and_lack_matrix_units() -> None:
    calls = Calls().convolution([(SGEMM, 480_000)], [2, 3, 224, 224], [384, 3, 16, 16], stride=8)
    assert list(calls.found()) == ["no_tensor_cores"]


def test_a_convolution_far_below_what_is_usual_is_found_without_a_cause() -> None:
    inputs = ([16, 256, 56, 56], [256, 256, 3, 3])
    slow, usual = (Calls().convolution([(WGRAD, dur)], *inputs).found() for dur in (3_000_000, 300_000))
    assert list(slow) == ["library_below_rate"]
    assert slow["library_below_rate"].gpu_saving_ns.low == 0  # nobody knows whether anything helps
    assert usual == {}


def test_without_a_cause_nothing_is_said_of_a_gpu_that_was_not_measured() -> None:
    inputs = ([16, 256, 56, 56], [256, 256, 3, 3])
    found = Calls(A100).convolution([(WGRAD, 6_000_000)], *inputs).scan()
    assert (found.findings, found.dropped["rate_unknown"]) == ((), 1)


def test_what_takes_less_than_three_percent_is_no_matter() -> None:
    little, much = vocabulary(30522, ALIGN2, 422_200), vocabulary(30522, ALIGN2, 422_200)
    little.product(NVJET, 14_000_000, 8192, 30000, 20000)
    much.product(NVJET, 13_000_000, 8192, 30000, 20000)
    assert little.column("heavy_call") == [False, True]
    assert much.column("heavy_call") == [True, True]


def test_a_call_without_shapes_is_not_looked_into() -> None:
    calls = Calls().call("aten::mm", [(ALIGN2, 400_000)], (None, None, None, None))
    assert calls.found() == {}
    assert calls.column("call_cause") == calls.column("call_flops") == [None]


def test_kernels_of_one_call_are_counted_together() -> None:
    calls = Calls().call(
        "aten::mm",
        [(NVJET, 70_000), ("splitKreduce_kernel", 10_000)],
        ([[64, 4096], [4096, 64]], [HALF] * 2, [[4096, 1], [1, 4096]], ["", ""]),
    )
    assert calls.column("call_dur_ns") == [80_000, 80_000]
    assert calls.column("call_percent") == [100.0, 100.0]
    assert calls.column("call_flops") == [2 * 64 * 64 * 4096] * 2
    assert len(set(calls.column("call"))) == 1


def test_the_roofline_s_share_is_that_of_the_data_sheet() -> None:
    calls = Calls().product(NVJET, 1_000_000, 8192, 8192, 7372)
    assert calls.column("call_roofline_percent") == [pytest.approx(100.0, rel=1e-3)]


@pytest.mark.parametrize("recording", sorted(FIXTURES.glob("*.json.gz")), ids=lambda path: path.name.split(".")[0])
def test_in_the_project_s_own_recordings_libraries_are_at_their_rate(recording: Path) -> None:
    found = scan(recording).findings
    assert not [finding.rule for finding in found if finding.rule in {rule.id for rule in RULES}]
