"""The kernels compute what they say, in Triton's interpreter: a pattern that skipped work would calibrate a lie."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')

import torch

from tracemine.calibrate import kernels

# Warnings are numpy's, from inside the interpreter.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("interpreted")]

ROWS, LENGTH = 5, 300


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(ROWS, LENGTH, generator=torch.Generator().manual_seed(0))


def assert_close(out: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(out, expected.to(out.dtype), rtol=1e-5, atol=1e-5)


def test_pointwise_patterns_read_every_input_and_write_every_element(x: torch.Tensor) -> None:
    flat = x.flatten()
    n = flat.numel()
    grid = (-(-n // 256),)
    for inputs, kernel in (
        (1, kernels.copy_pattern),
        (2, kernels.add_pattern),
        (3, kernels.add3_pattern),
        (4, kernels.add4_pattern),
    ):
        out = torch.full_like(flat, torch.nan)
        kernel[grid](*[flat * (k + 1) for k in range(inputs)], out, n, BLOCK=256)
        assert_close(out, flat * sum(range(1, inputs + 1)))
    out = torch.full_like(flat, torch.nan)
    kernels.write_pattern[grid](out, n, BLOCK=256)
    assert_close(out, torch.ones_like(flat))
    blocks = torch.full(grid, torch.nan)
    kernels.read_pattern[grid](flat, blocks, n, BLOCK=256)
    assert_close(blocks.sum(), flat.sum())


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("exp", torch.exp),
        ("log", lambda x: torch.log(x.abs() + 1)),
        ("erf", torch.erf),
        ("divide", lambda x: x / (x.abs() + 1)),
        ("sigmoid", torch.sigmoid),
    ],
)
def test_a_function_pattern_computes_its_function(
    x: torch.Tensor, function: str, expected: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    flat = x.flatten()
    out = torch.full_like(flat, torch.nan)
    kernels.function_pattern[(-(-flat.numel() // 256),)](flat, out, flat.numel(), FUNCTION=function, BLOCK=256)
    assert_close(out, expected(flat))


def test_the_strided_pattern_transposes(x: torch.Tensor) -> None:
    out = torch.full((LENGTH, ROWS), torch.nan)
    kernels.strided_pattern[(1, -(-LENGTH // 32))](x, out, ROWS, LENGTH, TILE=32)
    assert_close(out, x.T)


@pytest.mark.parametrize("block", [128, 512])
def test_row_patterns_reduce_each_row(x: torch.Tensor, block: int) -> None:
    weight = torch.arange(1.0, LENGTH + 1)
    rms = x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6) * weight
    norm = torch.nn.functional.layer_norm(x, (LENGTH,), weight, eps=1e-6)
    cases = {
        "row_norm_looped": (weight, rms),
        "row_two_sums": (weight, norm),
        "row_welford": (weight, norm),
        "row_softmax_online": (None, x.softmax(1)),
        "row_scan": (None, x.cumsum(1)),
    }
    if block > LENGTH:
        cases |= {"row_norm": (weight, rms), "row_softmax": (None, x.softmax(1))}
    for name, (gain, expected) in cases.items():
        out = torch.full_like(x, torch.nan)
        tensors = (x, out) if gain is None else (x, gain, out)
        rows = 2 if block > LENGTH else 1
        kernel = getattr(kernels, f"{name}_pattern")
        kernel[(-(-ROWS // rows),)](*tensors, ROWS, LENGTH=LENGTH, ROWS=rows, BLOCK=block)
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")
    out = torch.full((ROWS,), torch.nan)
    kernels.row_sum_pattern[(ROWS,)](x, out, ROWS, LENGTH=LENGTH, ROWS=1, BLOCK=block)
    assert_close(out, x.sum(1))


def test_split_reductions_leave_nothing_out(x: torch.Tensor) -> None:
    parts = -(-LENGTH // 64)
    partial = torch.full((ROWS, parts), torch.nan)
    kernels.split_sum_pattern[(ROWS, parts)](x, partial, ROWS, LENGTH=LENGTH, PART=64, BLOCK=32)
    assert_close(partial.sum(1), x.sum(1))
    tall = x.T.contiguous()
    strips = -(-LENGTH // 64)
    partial = torch.full((strips, ROWS), torch.nan)
    kernels.column_sum_pattern[(1, strips)](tall, partial, LENGTH, COLUMNS=ROWS, STRIP=64, TILE=8)
    assert_close(partial.sum(0), tall.sum(0))
