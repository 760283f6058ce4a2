"""Findings in profiles of ONNX Runtime with kernels: nodes to join, fallbacks, a host that is behind; near misses."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest

from tests.formats.onnxruntime_files import CPU, ProfiledNode, chain, layer_norm, profiled, quantised_product
from tracemine.findings.record import Scan
from tracemine.pipeline import scan
from tracemine.report import Drawing, render_page, renderer

_GELU = ("Div", "Erf", "Add", "Mul", "Mul")


def rules(found: Scan) -> set[str]:
    return {one.rule for one in found.findings}


def test_a_gelu_of_five_kernels_is_priced_as_one(tmp_path: Path) -> None:
    found = scan(profiled(tmp_path, chain("MatMul", *_GELU, device_us=40)))
    (part,) = (one for one in found.findings if one.rule == "ort_optimisation_level")
    assert (part.occurrences, part.measured_ns) == (2, 400_000)
    assert 2 * 120_000 <= part.gpu_saving_ns.low < part.gpu_saving_ns.mid < part.gpu_saving_ns.high < part.measured_ns
    assert "ORT_ENABLE_ALL" in part.fix


def test_layer_norms_are_found_in_each_run(tmp_path: Path) -> None:
    nodes = [*chain("MatMul", device_us=40), *layer_norm("a.", "MatMul_0", device_us=30)]
    (part,) = scan(profiled(tmp_path, nodes)).findings
    assert (part.rule, part.occurrences, len(part.ops)) == ("ort_optimisation_level", 2, 9)


@pytest.mark.parametrize(
    "kinds", [("MatMul", "Gelu"), ("MatMul", "Div", "Erf", "Add", "Mul", "Sub"), ("MatMul", "Relu", "Add")]
)
def test_what_is_joined_already_or_no_known_part_is_left_alone(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    assert not scan(profiled(tmp_path, chain(*kinds, device_us=40))).findings


def test_conversions_that_nothing_takes_in_are_priced_and_those_of_a_border_are_not(tmp_path: Path) -> None:
    found = scan(profiled(tmp_path / "apart", quantised_product(taken_in=False)))
    (apart,) = (one for one in found.findings if one.rule == "ort_quantised_apart")
    assert (apart.occurrences, apart.measured_ns) == (2 * 5, 2 * 5 * 20_000)  # of x, of the weight, of the result
    assert apart.gpu_saving_ns.mid == apart.measured_ns
    assert "compute_activation_error" in apart.fix
    assert not scan(profiled(tmp_path / "in", quantised_product(taken_in=True))).findings


def test_without_the_model_nothing_is_joined(tmp_path: Path) -> None:
    assert not scan(profiled(tmp_path, chain("MatMul", *_GELU, device_us=40), model=False)).findings


def test_the_device_waits_for_a_node_on_the_cpu(tmp_path: Path) -> None:
    nodes = [
        *chain("MatMul", "Relu", device_us=60),
        ProfiledNode("Memcpy", "MemcpyToHost", ("Relu_1",), device_us=4),
        ProfiledNode("NonZero_2", "NonZero", ("Memcpy",), host_us=120, provider=CPU),
        ProfiledNode("Memcpy_token_1", "MemcpyFromHost", ("NonZero_2",), device_us=4),
        ProfiledNode("MatMul_3", "MatMul", ("Memcpy_token_1",), device_us=80),
    ]
    found = scan(profiled(tmp_path, nodes))
    (waits,) = (one for one in found.findings if one.rule == "ort_cpu_fallback")
    assert waits.occurrences == 2
    assert 200_000 < waits.measured_ns < 300_000
    assert waits.step_saving_ns.mid > 0


def test_a_host_that_is_behind_is_told_of_graphs_and_one_that_is_ahead_is_not(tmp_path: Path) -> None:
    behind = scan(profiled(tmp_path / "behind", chain(*("MatMul", "Relu") * 8, device_us=3, host_us=20)))
    assert rules(behind) == {"ort_no_cuda_graph"}
    assert "enable_cuda_graph" in behind.findings[0].fix
    ahead = scan(profiled(tmp_path / "ahead", chain(*("MatMul", "Relu") * 8, device_us=60, host_us=10)))
    assert not rules(ahead)


@pytest.mark.parametrize("report", ["text", "json", "markdown"])
def test_reports_say_nothing_of_torch(tmp_path: Path, report: str) -> None:
    out = StringIO()
    renderer(report)(scan(profiled(tmp_path, chain(*("MatMul", *_GELU) * 4, device_us=3))), out, Drawing(whole=True))
    said = out.getvalue()
    for word in ("torch.compile", "torch.profiler", "ProfilerActivity", "tracemine.capture", "with_stack"):
        assert word not in said


def test_a_page_is_drawn(tmp_path: Path) -> None:
    out = StringIO()
    render_page("html", [(scan(profiled(tmp_path, chain("MatMul", *_GELU, device_us=40))), Drawing(whole=True))], out)
    assert "Nodes that ONNX Runtime could join" in out.getvalue()
