"""Small products in a loop: what differs from one to the next decides what is to be written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.dispatched import dispatched
from tracemine.pipeline import ScanOptions, analysed, mined
from tracemine.units import Threshold

TURNS, ROWS, SIZE = 24, 16, 64


def program(*, inputs: bool, weights: bool) -> Callable[[], Tensor]:
    x, w = torch.randn(TURNS, ROWS, SIZE), torch.randn(TURNS, SIZE, SIZE)
    return lambda: torch.stack([torch.tanh(x[at * inputs] @ w[at * weights]) for at in range(TURNS)])


@pytest.mark.parametrize(
    ("inputs", "weights", "says"),
    [
        (True, False, "out = layer(x)"),
        (False, True, "out = torch.matmul(x, weights)"),
        (True, True, "out = torch.bmm(torch.stack(inputs), weights)"),
    ],
)
def test_the_fix_is_that_of_what_differs(inputs: bool, weights: bool, says: str) -> None:
    scan = mined(analysed(dispatched(program(inputs=inputs, weights=weights))), ScanOptions(threshold=Threshold(ns=0)))
    (found,) = [one for one in scan.findings if one.rule == "small_products_apart"]
    assert found.fix.split("\n\n")[1].strip().startswith(says)
