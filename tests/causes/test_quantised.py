"""Quantised pipelines: products that do not take 8 bits, pairs that nothing absorbs, weights dequantised each step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.dispatched import dispatched
from tracemine.causes.quantised_round_trip import CAUSE
from tracemine.findings import Finding
from tracemine.perfmodel import Abstained
from tracemine.pipeline import analysed, mined, scan

HALF, STEP = torch.bfloat16, 0.02
ROWS, WIDTH, LAYERS = 512, 1024, 2


def quantised(y: Any) -> Any:
    return torch.clamp(torch.round(y / STEP), -128, 127).to(torch.int8)


def _tensors() -> tuple[Any, Any, Any, Any]:
    x = torch.ones(ROWS, WIDTH, dtype=HALF)
    packed = [torch.ones(WIDTH, WIDTH, dtype=torch.int8) for _ in range(LAYERS)]
    scales = [torch.ones(WIDTH, 1, dtype=HALF) for _ in range(LAYERS)]
    ready = [torch.ones(WIDTH, WIDTH, dtype=HALF) for _ in range(LAYERS)]
    return x, packed, scales, ready


def found(program: Callable[..., Any]) -> dict[str, Finding]:
    return {one.rule: one for one in mined(analysed(dispatched(program, *_tensors()))).findings}


def island(x: Any, packed: Any, scales: Any, ready: Any) -> Any:
    q = quantised(x)
    for w, s in zip(packed, scales, strict=True):
        q = quantised(F.linear(q.to(HALF) * STEP, w.to(HALF) * s))
    return q


def no_island(x: Any, packed: Any, scales: Any, ready: Any) -> Any:
    """Both are dequantised, and the result stays wide."""
    for w, s in zip(packed, scales, strict=True):
        x = torch.relu(F.linear(quantised(x).to(HALF) * STEP, w.to(HALF) * s))
    return x


@pytest.mark.parametrize("program", [island, no_island])
def test_products_of_dequantised_operands_are_one_finding(program: Callable[..., Any]) -> None:
    findings = found(program)
    finding = findings["quantised_product_widened"]
    assert finding.occurrences == 3 * LAYERS
    assert "aten::mm" in finding.ops
    assert "accuracy" in finding.fix
    assert "loop_invariant" not in findings  # the weights' dequantisation is part of it
    assert 0 < finding.gpu_saving_ns.mid < finding.measured_ns
    assert finding.gpu_saving_ns.low == 0


def weight_only(x: Any, packed: Any, scales: Any, ready: Any) -> Any:
    for w, s in zip(packed, scales, strict=True):
        x = F.linear(x, w.to(HALF) * s)
    return x


def eight_bit_floats(x: Any, packed: Any, scales: Any, ready: Any) -> Any:
    for w, s in zip(packed, scales, strict=True):
        x = F.linear(x, w.view(torch.float8_e4m3fn).to(HALF) * s)
    return x


@pytest.mark.parametrize("program", [weight_only, eight_bit_floats])
def test_a_weight_alone_is_dequantised_once(program: Callable[..., Any]) -> None:
    findings = found(program)
    assert "quantised_product_widened" not in findings
    assert "dequantised" in findings["loop_invariant"].title


def round_trip(x: Any, packed: Any, scales: Any, ready: Any) -> Any:
    for w in ready:
        x = quantised(F.linear(x, w)).to(HALF) * STEP
    return x


def faked(x: Any, packed: Any, scales: Any, ready: Any) -> Any:
    for w in ready:
        x = F.linear(torch.fake_quantize_per_tensor_affine(x, STEP, 0, -128, 127), w)
    return x


def both_faked(x: Any, packed: Any, scales: Any, ready: Any) -> Any:
    for w in ready:
        fake = torch.fake_quantize_per_tensor_affine(w, STEP, 0, -128, 127)
        x = F.linear(torch.fake_quantize_per_tensor_affine(x, STEP, 0, -128, 127), fake)
    return x


@pytest.mark.parametrize(("program", "operators"), [(round_trip, 6), (faked, 1), (both_faked, 2)])
def test_pairs_that_nothing_absorbs_can_go(program: Callable[..., Any], operators: int) -> None:
    finding = found(program)["quantised_round_trip"]
    assert (finding.occurrences, len(finding.ops)) == (3 * LAYERS, operators)
    assert finding.gpu_saving_ns.mid == finding.measured_ns
    assert "accuracy" in finding.fix


def test_in_training_the_rounding_is_the_purpose() -> None:
    assert CAUSE.estimate is not None
    context: Any = SimpleNamespace(training=True)
    assert CAUSE.estimate(context, Any, Any) == Abstained("nothing_to_win")  # type: ignore[arg-type]


def cached(x: Any, packed: Any, scales: Any, ready: Any) -> Any:
    """Keys are kept in 8 bits, and read at once as well."""
    q = quantised(x)
    packed[0][:ROWS].copy_(q)
    return F.linear(q.to(HALF) * STEP, ready[0])


def picture(x: Any, packed: Any, scales: Any, ready: Any) -> Any:
    return F.linear(packed[0].view(torch.uint8).to(HALF) / 255, ready[0])


def wide_too(x: Any, packed: Any, scales: Any, ready: Any) -> Any:
    """What is dequantised is added to the stream as well."""
    wide = quantised(x).to(HALF) * STEP
    return F.linear(wide, packed[0].to(HALF) * scales[0]) + wide


def plain(x: Any, packed: Any, scales: Any, ready: Any) -> Any:
    return F.linear(torch.relu(F.linear(x, ready[0])), ready[1])


@pytest.mark.parametrize("program", [cached, picture, plain])
def test_near_misses_are_left_alone(program: Callable[..., Any]) -> None:
    findings = found(program)
    assert not {"quantised_product_widened", "quantised_round_trip"} & set(findings)


def test_what_is_read_wide_as_well_stays() -> None:
    assert "quantised_product_widened" not in found(wide_too)


RECORDED = Path(__file__).parents[2] / "benchmarks" / "results" / "h200" / "quantised"


@pytest.mark.parametrize(
    ("name", "rule", "off"),
    [
        ("weight_dequantised", "loop_invariant", 0.03),
        ("weight_dequantised_decode", "dequantised_product", 0.06),
        ("island", "quantised_product_widened", 0.12),  # of the step, at most, between predicted and measured
        ("round_trip", "quantised_round_trip", 0.08),
        ("one_falls_back", "quantised_product_widened", 0.20),  # waits for the host: the GPU's 82 µs do not show
    ],
)
def test_predictions_hold_what_was_measured(name: str, rule: str, off: float) -> None:
    times = json.loads((RECORDED / "quantised.json").read_text())
    before, after = (1e6 * times[f"{name}_{form}_ms"] for form in ("before", "after"))
    found = scan(RECORDED / f"{name}_before.json.gz")
    (finding,) = [one for one in found.findings if one.rule == rule]
    saved = finding.step_saving_ns
    assert saved.low / found.trace.steps - 0.01 * before <= before - after <= saved.high / found.trace.steps
    assert abs(saved.mid / found.trace.steps - (before - after)) <= off * before


@pytest.mark.parametrize("name", ["island", "round_trip", "weight_dequantised", "weight_dequantised_decode"])
def test_the_fixed_forms_have_no_such_finding(name: str) -> None:
    found = scan(RECORDED / f"{name}_after.json.gz")
    assert not [one for one in found.findings if one.rule.startswith("quantised")]
