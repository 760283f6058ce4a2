"""Activations behind products: those that a library's epilogue does, and those that it does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.dispatched import dispatched
from tracemine.pipeline import analysed, mined

WEIGHT, BIAS = torch.randn(1024, 256, dtype=torch.bfloat16), torch.randn(1024, dtype=torch.bfloat16)
BACK = torch.randn(1024, 256, dtype=torch.bfloat16)


def perceptron(x: Any, activation: Any = F.relu, bias: Any = BIAS, **more: Any) -> Any:
    return activation(F.linear(x, WEIGHT, bias), **more) @ BACK


def of_gelu(x: Any) -> Any:
    return perceptron(x, F.gelu, approximate="tanh")


def without_bias(x: Any) -> Any:
    return perceptron(x, bias=None)


def residual(x: Any) -> Any:
    return (F.linear(x, WEIGHT, BIAS) + x.repeat(1, 4)) @ BACK


def gate(x: Any) -> Any:
    hidden = F.linear(x, WEIGHT, BIAS)
    return (F.relu(hidden) * hidden) @ BACK


def in_float32(x: Any) -> Any:
    return F.relu(F.linear(x.float(), WEIGHT.float(), BIAS.float())) @ BACK.float()


@pytest.mark.parametrize(
    ("program", "is_found"),
    [(perceptron, True), (of_gelu, True), (without_bias, False), (residual, False), (gate, False), (in_float32, False)],
)
def test_an_activation_of_a_biased_product_alone(program: Any, is_found: bool) -> None:
    timeline = dispatched(program, torch.randn(4096, 256, dtype=torch.bfloat16))
    found = {each.rule: each for each in mined(analysed(timeline)).findings}
    assert ("epilogue_apart" in found) is is_found
    if is_found:
        assert len(set(found["epilogue_apart"].ops)) == 1


def test_what_is_asked_for_computes_the_same() -> None:
    timeline = dispatched(perceptron, torch.randn(4096, 256, dtype=torch.bfloat16))
    (text,) = (each.fix for each in mined(analysed(timeline)).findings if each.rule == "epilogue_apart")
    given = {"x": torch.randn(2, 8, 16), "weight": torch.randn(32, 16), "bias": torch.randn(32), "torch": torch}
    gelu, relu = (line.partition("=")[2].partition("#")[0].strip() for line in text.splitlines() if " y = " in line)
    plain = F.linear(given["x"], given["weight"], given["bias"])
    # A CPU computes the other GELU, which differs by less.
    made = eval(gelu, given)  # noqa: S307 - the rule's own text
    torch.testing.assert_close(made, F.gelu(plain, approximate="tanh"), atol=1e-3, rtol=0)
    torch.testing.assert_close(eval(relu, given), F.relu(plain))  # noqa: S307 - the rule's own text
