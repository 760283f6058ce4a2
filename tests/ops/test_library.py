"""What a call of a library asks for, and what the names of its kernels tell."""

from __future__ import annotations

from typing import Any

import pytest

from tracemine.ops import classify
from tracemine.ops.infer.library import LibraryCall, library_call
from tracemine.ops.kernel_names import is_narrow, unit_of, unit_rows
from tracemine.ops.patterns import PatternRow

HALF = "c10::Half"


def product(name: str, m: int, k: int, n: int, *, dtype: str = HALF, turned: str = "") -> LibraryCall:
    """A product of two matrices, those in `turned` column after column."""
    strides = [[1, m] if "a" in turned else [k, 1], [1, k] if "b" in turned else [n, 1]]
    found = library_call(f"aten::{name}", [[m, k], [k, n]], [dtype] * 2, strides)
    assert found is not None
    return found


@pytest.mark.parametrize("row", unit_rows(), ids=lambda row: row.pattern.pattern[:30])
def test_a_kernel_s_unit_is_that_of_the_first_row_that_fits(row: PatternRow) -> None:
    assert {unit_of(name) for name in row.examples} == {row.says}
    assert all(row.pattern.search(name) for name in row.examples)
    assert not [name for name in row.examples if classify([name])[0].op_class == "pointwise"]


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, …>(int, …)",
        "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, false, true>(Params)",
        "triton_poi_fused_add_0",
        "",
    ],
)
def test_a_kernel_that_multiplies_nothing_has_no_unit(name: str) -> None:
    assert unit_of(name) is None


@pytest.mark.parametrize(
    ("name", "narrow"),
    [
        ("cutlass_75_tensorop_f16_s1688gemm_f16_64x64_nn_align1", True),
        ("cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8", False),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4", False),
        ("nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_bias_TNT", False),
        ("cutlass_80_tensorop_f16_s16816gemm_f16_128x64_64x3_nn", True),  # says nothing of alignment
    ],
)
def test_a_narrow_kernel_says_so_or_is_one_for_an_older_gpu(name: str, narrow: bool) -> None:
    assert is_narrow(name) is narrow


@pytest.mark.parametrize(
    ("m", "k", "n", "turned", "misaligned"),
    [
        (2048, 768, 30522, "b", True),  # a vocabulary: the result's rows
        (2048, 768, 30528, "b", False),
        (5185, 1024, 1024, "b", False),  # rows alone are harmless
        (1024, 5185, 1024, "a", False),  # they are summed over in a weight's gradient: harmless there too
        (1024, 5185, 1024, "", True),  # but not where they lie contiguous
        (1023, 5184, 1024, "a", True),  # the first factor's rows, contiguous
        (64, 49, 32, "", True),
        (64, 32, 49, "b", True),
    ],
)
def test_leading_dimensions_alone_decide_on_alignment(m: int, k: int, n: int, turned: str, misaligned: bool) -> None:
    found = product("mm", m, k, n, turned=turned)
    assert found.misaligned is misaligned
    assert (found.padded_flops > found.flops) is misaligned


def test_alignment_is_counted_in_bytes() -> None:
    assert product("mm", 64, 32, 4).misaligned
    assert product("mm", 64, 32, 4, dtype="float").misaligned is False
    assert product("mm", 64, 32, 16, dtype="c10::Float8_e4m3fn").misaligned is False


def test_padding_pads_the_dimensions_at_fault_alone() -> None:
    found = product("mm", 2048, 768, 30522, turned="b")
    assert found.padded_flops == 2 * 2048 * 768 * 30528
    assert found.padded_bytes == 2 * (2048 * 768 + 768 * 30528 + 2048 * 30528)
    assert found.copied_bytes == 2 * 2 * 768 * 30522  # of the second factor, read and written


def test_a_padded_step_between_rows_is_aligned() -> None:
    found = library_call("aten::mm", [[64, 49], [49, 32]], [HALF] * 2, [[56, 1], [32, 1]])
    assert found is not None
    assert found.misaligned is False


def test_without_strides_only_the_result_tells() -> None:
    told = library_call("aten::mm", [[64, 32], [32, 30522]], [HALF] * 2)
    untold = library_call("aten::mm", [[64, 49], [49, 32]], [HALF] * 2)
    assert told is not None
    assert untold is not None
    assert (told.misaligned, untold.misaligned) == (True, None)


def test_batched_products_pad_each_matrix() -> None:
    shapes, strides = [[12, 49, 49], [12, 49, 32]], [[2401, 49, 1], [1568, 32, 1]]
    found = library_call("aten::bmm", shapes, [HALF] * 2, strides)
    assert found is not None
    assert found.padded_flops == 2 * 12 * 49 * 56 * 32


def test_a_weight_of_linear_lies_the_other_way() -> None:
    found = library_call("aten::linear", [[64, 48], [30522, 48], []], [HALF, HALF, ""], [[48, 1], [48, 1], []])
    assert found is not None
    assert found.misaligned
    assert found.flops == 2 * 64 * 48 * 30522


def _convolution(weight: list[int], groups: int, tf32: str = "True") -> LibraryCall:
    inputs: list[Any] = [
        [[2, 256, 1, 49], weight, *[[]] * 7],
        ["float", "float", "ScalarList", "ScalarList", "ScalarList", *["Scalar"] * 4],
        [[12544, 49, 49, 1], [weight[1] * weight[3], weight[3], weight[3], 1], *[[]] * 7],
        ["", "", "[0, 64]", "[1, 1]", "[1, 1]", str(groups), "False", "False", tf32],
    ]
    found = library_call("aten::cudnn_convolution", *inputs)
    assert found is not None
    return found


def test_a_grouped_convolution_s_windows_are_those_of_all_groups() -> None:
    found = _convolution([256, 16, 1, 128], 16)
    assert (found.groups, found.channels, found.depthwise, found.allow_tf32) == (16, 16, False, True)
    assert found.unfolded_bytes == 2 * 50 * 256 * 128 * 4  # batch, places, channels, window


def test_a_filter_for_each_channel_is_depthwise() -> None:
    found = _convolution([256, 1, 1, 3], 256, "False")
    assert found.depthwise
    assert found.allow_tf32 is False


def test_attention_backward_is_told_from_forward() -> None:
    shapes = [[2, 3, 16, 8]] * 3
    found = library_call(
        "aten::_scaled_dot_product_flash_attention",
        [*shapes, [], [], [], []],
        [HALF] * 3 + ["Scalar", "Scalar", "Scalar", ""],
        [[384, 128, 8, 1]] * 3 + [[]] * 4,
        ["", "", "", "0.", "False", "False", ""],
    )
    assert found is not None
    assert (found.operation, found.flops) == ("attention", 2 * 2 * 3 * 16 * 16 * 16)


@pytest.mark.parametrize(
    ("shapes", "dtypes"),
    [
        ([], []),
        ([[4, 8]], ["float"]),
        ([[4, 8], [9, 2]], ["float", "float"]),
        ([[4, -8], [8, 2]], ["float", "float"]),
        ([["4", 8], [8, 2]], ["float", "float"]),
        ([[4, 8], [8, 2]], ["Scalar", "mystery"]),
        ([[0, 8], [8, 2]], ["float", "float"]),
    ],
)
def test_a_damaged_record_is_no_call(shapes: list[Any], dtypes: list[str]) -> None:
    assert library_call("aten::mm", shapes, dtypes) is None


@pytest.mark.parametrize(
    ("window", "stride", "padding", "patches"),
    [
        ([16, 16], "[16, 16]", "[0, 0]", True),
        ([2, 4], "[2, 4]", "[0, 0]", True),
        ([16, 16], "[16]", "[0]", True),
        ([16, 16], "[8, 8]", "[0, 0]", False),
        ([16, 16], "[16, 16]", "[1, 1]", False),
        ([1, 1], "[1, 1]", "[0, 0]", False),  # a product already
        ([2, 4], "[4, 2]", "[0, 0]", False),
    ],
)
def test_patches_lie_side_by_side_without_padding(window: list[int], stride: str, padding: str, patches: bool) -> None:
    found = library_call(
        "aten::cudnn_convolution",
        [[4, 3, 224, 224], [768, 3, *window], *[[]] * 7],
        [HALF, HALF, "ScalarList", "ScalarList", "ScalarList", *["Scalar"] * 4],
        None,
        ["", "", padding, stride, "[1, 1]", "1", "False", "False", "True"],
    )
    assert found is not None
    assert found.patches is patches


def test_an_operator_for_depthwise_convolutions_needs_no_groups_to_say_so() -> None:
    found = library_call(
        "aten::_conv_depthwise2d",
        [[32, 64, 56, 56], [64, 1, 3, 3], [], [], [], [], []],
        [HALF, HALF, "ScalarList", "", "ScalarList", "ScalarList", "ScalarList"],
        None,
        ["", "", "[3, 3]", "", "[1, 1]", "[1, 1]", "[1, 1]"],
    )
    assert found is not None
    assert found.depthwise
