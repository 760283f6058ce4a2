"""Layers of TensorRT engines: wide regions priced whole, conversions, pads and products without TF32; near misses."""

from __future__ import annotations

import os
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.formats.tensorrt_files import (
    HALF,
    LINEAR16,
    LINEAR32,
    VECTOR8,
    VECTOR32,
    closed_engine,
    convolution,
    exported,
    gap_engine,
    layer,
    quantized,
    reformatted,
    wide,
)
from tracemine.findings.record import Finding, Scan
from tracemine.pipeline import scan
from tracemine.report import Drawing, render_page, renderer

_SHARED = Path(os.environ.get("TRACEMINE_COMPAT_TRACES", "/nowhere")) / "compilers/tensorrt"
shared = pytest.mark.skipif(not _SHARED.is_dir(), reason="TRACEMINE_COMPAT_TRACES names no folder with engines")
_GPU = "NVIDIA A100 80GB PCIe"


def of_rule(found: Scan, rule: str) -> list[Finding]:
    return [one for one in found.findings if one.rule == rule]


def profile_of(engine: str) -> Path:
    (profile,) = (_SHARED / engine).glob("*.profile.json")
    return profile


def of_layers(folder: Path, layers: list[dict[str, Any]]) -> Scan:
    total = sum(one["ms"] for one in layers)
    return scan(exported(folder, layers, run_ms=total, gpu=_GPU))


@shared
@pytest.mark.parametrize(
    ("before", "after"), [("resnet_qat_before", "resnet_qat_after"), ("mobilenet_qat_before", "mobilenet_qat_after")]
)
def test_a_region_is_predicted_within_eight_points_of_what_placing_it_better_saved(before: str, after: str) -> None:
    found, then = (scan(profile_of(engine)) for engine in (before, after))
    first = found.findings[0]
    run_ns, saved_ns = found.summary.gpu_busy_ns, found.summary.gpu_busy_ns - then.summary.gpu_busy_ns
    assert first.rule == "trt_precision_gap"
    predicted = first.gpu_saving_ns
    shares = [f"−{ns / run_ns:.1%}" for ns in (predicted.mid, predicted.low, predicted.high, saved_ns)]
    print(f"{before}: {shares[0]} ({shares[1]} to {shares[2]}), true {shares[3]}")
    assert predicted.low <= saved_ns <= predicted.high
    assert abs(predicted.mid - saved_ns) <= 0.08 * run_ns
    assert first.step_saving_ns.mid == predicted.mid


@shared
@pytest.mark.parametrize("engine", ["resnet_qat_after", "mobilenet_qat_after"])
def test_an_engine_whose_products_stay_narrow_has_no_gap(engine: str) -> None:
    found = scan(profile_of(engine))
    assert {one.rule for one in found.findings} <= {"trt_input_formats", "trt_quantize_alone"}
    assert sum(one.rule == "trt_quantize_alone" for one in found.findings) == (engine == "resnet_qat_after")


def test_the_region_is_priced_and_not_its_conversions(tmp_path: Path) -> None:
    (gap,) = of_rule(of_layers(tmp_path, gap_engine()), "trt_precision_gap")
    assert gap.occurrences == 2
    conversions_ns = 2 * 28_000
    assert gap.gpu_saving_ns.low >= 0.8 * conversions_ns
    assert gap.gpu_saving_ns.mid > 1.1 * conversions_ns
    assert gap.gpu_saving_ns.high < gap.measured_ns


def test_nothing_is_claimed_where_products_stay_narrow_or_a_global_pooling_ends_them(tmp_path: Path) -> None:
    found = of_layers(tmp_path, closed_engine())
    assert {one.rule for one in found.findings} == {"trt_input_formats"}


def test_a_float_engine_has_no_gap(tmp_path: Path) -> None:
    layers = [
        convolution("Conv_0", [wide("x", 64, HALF)], wide("a", 64, HALF), 0.05, tactic="sm80_f16"),
        convolution("Conv_1", [wide("a", 64, HALF)], wide("y", 64, HALF), 0.05, tactic="sm80_f16"),
    ]
    assert not of_layers(tmp_path, layers).findings


def test_a_quantisation_that_no_product_reads_is_no_gap(tmp_path: Path) -> None:
    layers = [*gap_engine()[:2], quantized("QuantizeLinear_2", wide("a", 64, LINEAR16), wide("y", 64, VECTOR8), 0.028)]
    assert {one.rule for one in of_layers(tmp_path, layers).findings} <= {"trt_input_formats"}


def test_a_dequantised_residual_is_priced_with_the_product_that_reads_it(tmp_path: Path) -> None:
    layers = closed_engine()
    layers[3]["Inputs"][1] = {"Name": "w", "Dimensions": [32, 64, 56, 56], "Format/Datatype": LINEAR32}
    layers[3]["Outputs"] = layers[4]["Inputs"] = [
        {"Name": "e", "Dimensions": [32, 64, 56, 56], "Format/Datatype": LINEAR32}
    ]
    layers[3]["ms"] = 0.09
    layers.insert(3, quantized("DequantizeLinear_2", wide("b", 64, VECTOR8), wide("w", 64, LINEAR32), 0.02))
    (alone,) = of_rule(of_layers(tmp_path, layers), "trt_quantize_alone")
    assert alone.kernels == ("DequantizeLinear_2", "layer1.conv2.weight + Conv_4 + Add_5")
    assert 20_000 < alone.gpu_saving_ns.mid < 90_000


def test_conversions_at_the_ends_and_inside_are_apart(tmp_path: Path) -> None:
    layers = [
        reformatted(
            "Reformatting CopyNode for Input Tensor 0 to Conv_0", wide("x", 3, LINEAR32), wide("a", 3, HALF), 0.03
        ),
        convolution("Conv_0", [wide("a", 3, HALF)], wide("b", 64, HALF), 0.2),
        reformatted(
            "Reformatting CopyNode for Input Tensor 0 to Pool_1", wide("b", 64, HALF), wide("c", 64, LINEAR16), 0.03
        ),
        layer("Pool_1", "Pooling", [wide("c", 64, LINEAR16)], [wide("d", 64, LINEAR16, 28)], 0.05),
        reformatted(
            "Reformatting CopyNode for Output Tensor 0 to Pool_1",
            wide("d", 64, LINEAR16, 28),
            wide("y", 64, LINEAR32, 28),
            0.02,
        ),
    ]
    found = of_layers(tmp_path, layers)
    assert {one.rule: one.kernels for one in found.findings} == {
        "trt_input_formats": ("Reformatting CopyNode for Input Tensor 0 to Conv_0",),
        "trt_reformat": ("Reformatting CopyNode for Input Tensor 0 to Pool_1",),
        "trt_output_formats": ("Reformatting CopyNode for Output Tensor 0 to Pool_1",),
    }
    assert "--inputIOFormats=" in of_rule(found, "trt_input_formats")[0].fix
    assert "--outputIOFormats=" in of_rule(found, "trt_output_formats")[0].fix


def test_what_an_input_needs_is_said_by_what_converts_it(tmp_path: Path) -> None:
    order = [
        layer("Transpose_0", "Shuffle", [("x", [32, 56, 56, 3], LINEAR32)], [wide("a", 3, LINEAR32)], 0.05),
        convolution("Conv_1", [wide("a", 3, LINEAR32)], wide("y", 64, LINEAR32), 0.2, tactic="sm80_f32"),
    ]
    (first,) = of_rule(of_layers(tmp_path / "order", order), "trt_input_formats")
    assert "--inputs-as-nchw" in first.fix
    assert "--inputIOFormats" not in first.fix
    (narrow,) = of_rule(of_layers(tmp_path / "narrow", closed_engine()), "trt_input_formats")
    assert "x.dtype = np.int8" in narrow.fix
    assert "--int8 --inputIOFormats=int8:chw32" in narrow.fix  # trtexec makes the input FP32 without it


def test_a_small_copy_is_not_priced_by_its_own_time(tmp_path: Path) -> None:
    layers = [
        convolution("Conv_0", [wide("x", 64, HALF)], wide("b", 64, HALF), 0.02),
        reformatted(
            "Reformatting CopyNode for Input Tensor 0 to Conv_1", wide("b", 64, HALF), wide("c", 64, LINEAR16), 0.0039
        ),
        convolution("Conv_1", [wide("c", 64, LINEAR16)], wide("y", 64, LINEAR16), 0.02),
    ]
    assert not of_layers(tmp_path, layers).findings


@pytest.mark.parametrize("kind", ["Padding", "Slice"])
def test_a_padding_is_named_where_a_pooling_alone_reads_it(tmp_path: Path, kind: str) -> None:
    pad = layer(
        "Pad_1",
        kind,
        [wide("a", 64, HALF)],
        [wide("b", 64, HALF, 58)],
        0.06,
        **({"Mode": "FILL"} if kind == "Slice" else {}),
    )
    pool = layer("MaxPool_2", "Pooling", [wide("b", 64, HALF, 58)], [wide("y", 64, HALF, 28)], 0.05)
    layers = [convolution("Conv_0", [wide("x", 64, HALF)], wide("a", 64, HALF), 0.2), pad, pool]
    (found,) = of_layers(tmp_path / "pool", layers).findings
    assert (found.rule, found.kernels) == ("trt_pad_pool", ("Pad_1",))
    layers[2] = convolution("Conv_2", [wide("b", 64, HALF, 58)], wide("y", 64, HALF), 0.2)
    assert not of_layers(tmp_path / "product", layers).findings


def _float_engine(channels: int, tactic: str) -> list[dict[str, Any]]:
    tf32 = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32"
    return [
        convolution(
            "Conv_0", [wide("x", channels, LINEAR32, 112)], wide("a", 64, LINEAR32), 0.5, size=7, tactic=tactic
        ),
        convolution("Conv_1", [wide("a", 64, VECTOR32)], wide("b", 64, VECTOR32), 0.1, tactic=tf32),
        convolution("Conv_2", [wide("b", 64, VECTOR32)], wide("y", 64, VECTOR32), 0.1, tactic=tf32),
    ]


def test_a_first_product_without_tf32_beside_others_with_it(tmp_path: Path) -> None:
    found, wide_ones = of_layers(tmp_path, _float_engine(3, "sm80_first_layer_f32")).findings
    assert (wide_ones.rule, wide_ones.measured_ns) == ("trt_wide_product", 200_000)  # the others, in FP16
    assert (found.rule, found.kernels) == ("trt_no_tf32", ("Conv_0",))
    assert 0 < found.gpu_saving_ns.low < found.gpu_saving_ns.mid < found.gpu_saving_ns.high < found.measured_ns


@pytest.mark.parametrize(
    "layers", [_float_engine(64, "sm80_f32"), _float_engine(3, "sm80_tf32_first"), _float_engine(3, "sm80_f32")[:1]]
)
def test_products_whose_channels_fit_or_where_none_has_tf32_are_left_alone(
    tmp_path: Path, layers: list[dict[str, Any]]
) -> None:
    assert {one.rule for one in of_layers(tmp_path, layers).findings} == {"trt_wide_product"}


def test_products_of_half_and_of_int8_are_not_called_wide(tmp_path: Path) -> None:
    for layers in (gap_engine(), [convolution("Conv_0", [wide("x", 64, HALF)], wide("a", 64, HALF), 0.2)]):
        assert "trt_wide_product" not in {one.rule for one in of_layers(tmp_path, layers).findings}


@pytest.mark.parametrize("report", ["text", "json", "markdown"])
def test_reports_say_nothing_of_torch(tmp_path: Path, report: str) -> None:
    found, out = of_layers(tmp_path, gap_engine()), StringIO()
    renderer(report)(found, out, Drawing(whole=True))
    said = out.getvalue().lower()
    assert "torch.compile" not in said
    assert "torch.profiler" not in said
    assert "% busy" not in said  # of gaps nothing is known


def test_a_page_is_drawn(tmp_path: Path) -> None:
    out = StringIO()
    render_page("html", [(of_layers(tmp_path, gap_engine()), Drawing(whole=True))], out)
    assert "Wide tensors between INT8 products" in out.getvalue()
