"""What the rules tell people to paste is Python, and computes what it replaces."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from tests.recipes import blocks_of, run
from tracemine.causes import load_rules
from tracemine.matching import Rule

pytest.importorskip("torch")

import torch

F = torch.nn.functional


def function_of(rule: str, name: str) -> Callable[..., Any]:
    """A function that the fix of one of our own rules prints."""
    fix = next(one.fix for one in load_rules() if one.id == rule)
    code = re.search(rf"^    def {name}\(.*?(?=^\S|\Z)", fix, re.M | re.S)
    assert code is not None
    made: dict[str, Any] = {"torch": torch, "F": F}
    exec(textwrap.dedent(code[0]), made)  # noqa: S102  (our own text, from the repository)
    found: Callable[..., Any] = made[name]
    return found


@pytest.mark.parametrize(("channels", "out", "groups", "window", "padding"), [(12, 12, 4, 5, 2), (8, 16, 2, 4, 3)])
def test_unfolded_windows_are_a_grouped_convolution(
    channels: int, out: int, groups: int, window: int, padding: int
) -> None:
    x = torch.randn(3, channels, 20, dtype=torch.float64)
    weight = torch.randn(out, channels // groups, window, dtype=torch.float64)
    bias = torch.randn(out, dtype=torch.float64)
    found = function_of("grouped_convolution", "grouped_conv1d")(x, weight, bias, groups, padding)
    torch.testing.assert_close(found, F.conv1d(x, weight, bias, padding=padding, groups=groups))


@pytest.mark.parametrize("window", [(4, 4), (2, 8)])
def test_reshaped_patches_are_a_convolution(window: tuple[int, int]) -> None:
    conv = torch.nn.Conv2d(3, 10, window, stride=window, dtype=torch.float64)
    x = torch.randn(2, 3, 16, 24, dtype=torch.float64)
    torch.testing.assert_close(function_of("patch_convolution", "patches_embedded")(x, conv), conv(x))


def test_a_padded_weight_gives_the_same_columns() -> None:
    x, weight = torch.randn(5, 12, dtype=torch.float64), torch.randn(30, 12, dtype=torch.float64)
    padded = F.pad(weight, (0, 0, 0, -weight.shape[0] % 8))
    assert padded.shape[0] == 32
    torch.testing.assert_close(F.linear(x, padded)[..., :30], F.linear(x, weight))


RULES = {rule.id: rule for rule in load_rules()}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_all_code_that_is_printed_is_python_or_a_command(rule: Rule) -> None:
    for text in (rule.fix, *(one.text for one in rule.advice)):
        for placeholder, name in (
            ("{optimizer}", "AdamW"),
            ("{recurrent}", "GRU"),
            ("{forward}", "loss"),
            ("{recurrence}", "GRU"),
            ("{function}", "loss"),
            ("{operators}", "mul, add"),
            ("{waiting}", ".item()"),
            ("{graph_answer}", ""),
            ("{blockers}", ""),
        ):
            text = text.replace(placeholder, name)
        for code in blocks_of(text):
            ast.parse(code)


def block(rule: str, contains: str) -> str:
    """The one block of a rule's code that contains this, as a text prints it."""
    texts = (RULES[rule].fix, *(one.text for one in RULES[rule].advice))
    (code,) = {code for text in texts for code in blocks_of(text) if contains in code}
    return textwrap.indent(code, "    ")


def wide(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.float64)


def test_a_padded_factor_gives_the_same_batched_product() -> None:
    a, b = wide(3, 5, 12), wide(3, 12, 30)
    torch.testing.assert_close(run(block("misaligned_product", "torch.bmm(a, b)"), a=a, b=b, columns=30)["y"], a @ b)


def test_layers_put_together_give_what_each_gave() -> None:
    layers = [torch.nn.Linear(6, 4, dtype=torch.float64) for _ in range(3)]
    x = wide(5, 6)
    out = run(block("small_products_apart", "weight = torch.cat"), layers=layers, x=x)["out"]
    torch.testing.assert_close(out, torch.cat([layer(x) for layer in layers], -1))


def test_batched_turns_give_what_each_gave() -> None:
    inputs, weights = [wide(5, 6) for _ in range(3)], wide(3, 6, 4)
    out = run(block("small_products_apart", "torch.stack(inputs)"), inputs=inputs, weights=weights)["out"]
    torch.testing.assert_close(out, torch.stack([x @ w for x, w in zip(inputs, weights, strict=True)]))


def test_averages_over_lists_are_those_of_the_loop() -> None:
    average, model = (torch.nn.Linear(4, 3, dtype=torch.float64) for _ in range(2))
    expected = [a * 0.9 + m * 0.1 for a, m in zip(average.parameters(), model.parameters(), strict=True)]
    with torch.no_grad():
        run(block("parameter_loop", "averages, weights"), average=average, model=model, decay=0.9)
    for one, wanted in zip(average.parameters(), expected, strict=True):
        torch.testing.assert_close(one, wanted.detach())


def test_a_mask_that_is_kept_is_the_causal_one() -> None:
    class Module(torch.nn.Module):  # type: ignore[misc]  # torch is not followed
        pass

    q, k, v = (wide(2, 3, 5, 4) for _ in range(3))
    code = block("loop_invariant", "self.mask")
    out = run(code, self=Module(), longest=9, length=5, q=q, k=k, v=v)["out"]
    torch.testing.assert_close(out, F.scaled_dot_product_attention(q, k, v, is_causal=True))


def test_a_dequantised_weight_that_is_kept_is_that_of_each_step() -> None:
    class Module(torch.nn.Module):  # type: ignore[misc]  # torch is not followed
        pass

    module, packed, scale = Module(), torch.randint(-127, 127, (4, 6), dtype=torch.int8), wide(4, 1)
    run(block("loop_invariant", "packed.to"), self=module, packed=packed, scale=scale)
    torch.testing.assert_close(module.weight, packed.double() * scale)
