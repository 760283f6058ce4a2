"""What is told of spelled-out norms: the order of norm and sum, and the weight, that were found; run, it is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.dispatched import dispatched
from tests.recipes import run
from tracemine.causes import load_rules
from tracemine.findings import Finding
from tracemine.matching.advice import advised
from tracemine.pipeline import ScanOptions, analysed, mined

RULE = next(rule for rule in load_rules() if rule.id == "rmsnorm_unfused")
ROWS, WIDTH, EPS = 512, 256, 1e-6
Program = Callable[..., Any]


def spelled_out(x: Any, weight: Any, wide: torch.dtype = torch.float32) -> Any:
    hidden = x.to(wide)
    hidden = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + EPS)
    return weight * hidden.to(x.dtype)


def less_one(x: Any, weight: Any, wide: torch.dtype = torch.float32) -> Any:
    hidden = x.to(wide)
    hidden = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + EPS)
    return (hidden * (1.0 + weight.to(wide))).to(x.dtype)


def sum_first(norm: Any, hidden: Any, residual: Any, weight: Any, _: Any, **how: Any) -> Any:
    residual = residual + hidden
    return norm(residual, weight, **how), residual


def norm_first(norm: Any, hidden: Any, residual: Any, weight: Any, _: Any, **how: Any) -> Any:
    return residual + norm(hidden, weight, **how)


def between_norms(norm: Any, hidden: Any, residual: Any, weight: Any, next_weight: Any, **how: Any) -> Any:
    residual = residual + norm(hidden, weight, **how)
    return norm(residual, next_weight, **how), residual


def alone(norm: Any, hidden: Any, _: Any, weight: Any, __: Any, **how: Any) -> Any:
    return norm(hidden, weight, **how)


def scaled_before(norm: Any, hidden: Any, _: Any, weight: Any, __: Any, **how: Any) -> Any:
    return norm(hidden * 45.25, weight, **how)


def gated_behind(norm: Any, hidden: Any, gate: Any, weight: Any, __: Any, **how: Any) -> Any:
    return norm(hidden, weight, **how) + torch.sigmoid(gate)


def tensors(dtype: torch.dtype, rows: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = ((rows, WIDTH), (rows, WIDTH), (WIDTH,), (WIDTH,))
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


def found(order: Program, norm: Program) -> Finding:
    # A product on each side, as blocks have them: else all that is computed of the inputs alone is a constant.
    def program(x: Any, residual: Any, *weights: Any) -> Any:
        made = order(norm, x @ matrix, residual, *weights)
        return [each @ matrix for each in (made if isinstance(made, tuple) else (made,))]

    matrix = torch.randn(WIDTH, WIDTH, dtype=torch.bfloat16)
    scan = mined(analysed(dispatched(program, *tensors(torch.bfloat16, ROWS))), ScanOptions(rules=[RULE]))
    (finding,) = scan.findings
    return finding


CASES: dict[str, tuple[Program, Program, str]] = {
    "sum_first": (sum_first, spelled_out, "add_norm"),
    "norm_first": (norm_first, spelled_out, "norm_add"),
    "between_norms": (between_norms, spelled_out, "norm_add_norm"),
    "sum_first, less one": (sum_first, less_one, "add_norm"),
    "norm_first, less one": (norm_first, less_one, "norm_add"),
    "between_norms, less one": (between_norms, less_one, "norm_add_norm"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_code_is_that_of_the_order_and_the_weight_that_were_found(case: str) -> None:
    """Run, with the names that it takes bound to tensors, it computes what the program computed."""
    order, norm, function = CASES[case]
    text = found(order, norm).fix
    assert ("1 + weight" in text) is (norm is less_one)
    hidden, residual, weight, next_weight = given = tensors(torch.float64, 8)
    code = run(text.replace(".float()", ".double()"))[function]
    weights = (weight, next_weight) if order is between_norms else (weight,)
    expected = order(norm, *given, wide=torch.float64)
    torch.testing.assert_close(code(hidden, residual, *weights, eps=EPS), expected)


@pytest.mark.parametrize("order", [scaled_before, gated_behind])
def test_beside_anything_else_no_sum_is_invented(order: Program) -> None:
    text = found(order, spelled_out).fix
    assert "residual" not in text
    assert "torch.compile(block.forward)" in text


class _Module:
    eps = variance_epsilon = EPS

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight


@pytest.mark.parametrize(
    ("facts", "norm"),
    [
        ({}, spelled_out),
        ({"offset_weight": True}, less_one),
        ({"library": "transformers"}, spelled_out),
        ({"library": "transformers", "offset_weight": True}, less_one),
    ],
)
def test_the_body_of_a_norm_alone_computes_what_it_did(facts: dict[str, Any], norm: Program) -> None:
    text = advised(RULE.advice, RULE.fix, facts).replace(".float()", ".double()")
    hidden, _, weight, _ = tensors(torch.float64, 8)
    out = run(text, hidden=hidden, hidden_states=hidden, self=_Module(weight))["out"]
    torch.testing.assert_close(out, norm(hidden, weight, wide=torch.float64))


@pytest.mark.parametrize("norm", [spelled_out, less_one])
def test_a_norm_alone_is_told_of_its_own_weight(norm: Program) -> None:
    assert ("1 + self.weight" in found(alone, norm).fix) is (norm is less_one)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_s_layer_is_the_one_for_the_weight(engine: str) -> None:
    plain, offset = ({"engine": engine, "offset_weight": one} for one in (False, True))
    assert "GemmaRMSNorm" in advised(RULE.advice, RULE.fix, offset)
    assert "GemmaRMSNorm" not in advised(RULE.advice, RULE.fix, plain)
