"""Weights that are dequantised for few rows, and gates: found in a trace, and made as one kernel with the products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.dispatched import dispatched
from tracemine.findings import Finding
from tracemine.fix.kernel import WITH_PRODUCTS, kernel_module
from tracemine.pipeline import Analysis, analysed, mined
from tracemine.validate.downsize import tried
from tracemine.validate.sandbox import Sandbox
from tracemine.verify.prepare import LET_GO, gated, let_go
from tracemine.verify.rebuild.rebuilder import Rebuilder

HALF = torch.bfloat16


def found(program: Callable[..., Any], *tensors: Any) -> tuple[Analysis, dict[str, Finding]]:
    analysis = analysed(dispatched(program, *tensors))
    return analysis, {one.rule: one for one in mined(analysis).findings}


def ones(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype)


def weight_only(x: Any, codes: Any, scale: Any) -> Any:
    return F.linear(x, codes.to(HALF) * scale)


def gate(x: Any, w: Any, up: Any) -> Any:
    return F.silu(F.linear(x, w)) * F.linear(x, up)


def decoding(rows: int, dtype: torch.dtype = torch.int8) -> tuple[Analysis, dict[str, Finding]]:
    return found(weight_only, ones(rows, 2048), ones(4096, 2048, dtype=dtype), ones(4096, 1))


def test_a_weight_dequantised_for_few_rows_is_one_kernel_that_reads_the_codes() -> None:
    analysis, findings = decoding(16)
    finding = findings["dequantised_product"]
    assert "loop_invariant" not in findings
    assert set(finding.ops) == {"aten::copy_", "aten::mul", "aten::mm"}
    assert 0 < finding.gpu_saving_ns.low <= finding.gpu_saving_ns.mid < finding.measured_ns
    _, text = kernel_module(finding, analysis.dataflow, analysis.groups)
    assert "tl.dot(" in text and LET_GO in text


def test_the_kernel_that_reads_codes_is_right() -> None:
    analysis, findings = decoding(16)
    finding = findings["dequantised_product"]
    rebuilt = Rebuilder(analysis.dataflow, analysis.groups).rebuild(finding.activities[0], finding.rule)
    graphs, machine = tried(let_go(rebuilt).graph), Sandbox(time_limit_s=200)
    try:
        validation = machine.validate(graphs.small, False, graphs.recorded)
    finally:
        machine.close()
    assert not isinstance(validation, str)
    assert validation.trials > 9 and validation.faults == ()


@pytest.mark.parametrize(("rows", "dtype"), [(512, torch.int8), (16, torch.uint8)])
def test_many_rows_and_other_codes_are_none(rows: int, dtype: torch.dtype) -> None:
    assert "dequantised_product" not in decoding(rows, dtype)[1]


def test_a_gate_of_short_sums_is_one_kernel_with_its_products() -> None:
    analysis, findings = found(gate, ones(4096, 1024), ones(8192, 1024), ones(8192, 1024))
    finding = findings["memory_bound_chain"]
    whole = gated(finding, Rebuilder(analysis.dataflow, analysis.groups))
    assert whole is not None and len(whole.graph.live) == 1
    _, text = kernel_module(finding, analysis.dataflow, analysis.groups)
    assert text.count("tl.dot(") == 2 and WITH_PRODUCTS in text


def test_a_gate_that_the_library_multiplies_faster_keeps_its_products() -> None:
    analysis, findings = found(gate, ones(512, 8192), ones(1024, 8192), ones(1024, 8192))
    finding = findings["memory_bound_chain"]
    _, text = kernel_module(finding, analysis.dataflow, analysis.groups)
    assert "tl.dot(" not in text and WITH_PRODUCTS not in text


def test_a_chain_behind_one_product_is_no_gate() -> None:
    analysis, findings = found(lambda x, w: F.silu(F.linear(x, w)) * 2, ones(512, 256), ones(1024, 256))
    finding = findings["memory_bound_chain"]
    assert gated(finding, Rebuilder(analysis.dataflow, analysis.groups)) is None
