"""What the rules for library calls tell people to paste computes what the call computed."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from tracemine.matching import load_rules

torch = pytest.importorskip("torch")
F = torch.nn.functional


def function_of(rule: str, name: str) -> Callable[..., Any]:
    """A function that the fix of one of our own rules prints."""
    fix = next(one.fix for one in load_rules() if one.id == rule)
    code = re.search(rf"^    def {name}\(.*?(?=^\S|\Z)", fix, re.M | re.S)
    assert code is not None
    made: dict[str, Any] = {"torch": torch, "F": F}
    exec(textwrap.dedent(code[0]), made)  # noqa: S102  (our own text, from the repository)
    return made[name]


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
