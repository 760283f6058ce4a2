# Kernels are in Triton's language, which no type checker follows.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The interpreter rounds as a GPU does, and sees what a kernel touches that it should not."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')

import torch
import triton
import triton.language as tl

from tracemine.codegen import GraphBuilder
from tracemine.validate import interpreter, interpreter_cache, reference, worker
from tracemine.validate.sandbox import make_job

# Warnings are numpy's, from inside the interpreter.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("interpreted")]


@triton.jit
def cast_kernel(x, out, n, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place, mask=place < n), mask=place < n)


@triton.jit
def copy_kernel(x, out, n, step, BLOCK: tl.constexpr):
    place = tl.program_id(0) * step + tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place, mask=place < n), mask=place < n)


@triton.jit
def less_kernel(x, y, top, out, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    product = tl.load(x + place) * tl.load(y + place)
    tl.store(out + place, product - tl.load(top + place))


@triton.jit
def within_kernel(x, least, most, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    number = tl.load(x + place)
    tl.store(least + place, tl.minimum(number, 2.0))
    tl.store(most + place, tl.maximum(number, 2.0))


@triton.jit
def dot_kernel(x, y, out, PRECISION: tl.constexpr, BLOCK: tl.constexpr):
    row, column = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    left, right = tl.load(x + row * BLOCK + column), tl.load(y + row * BLOCK + column)
    tl.store(out + row * BLOCK + column, tl.dot(left, right, input_precision=PRECISION))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn])
def test_products_are_of_what_operands_hold(dtype: torch.dtype) -> None:
    x, y = (torch.randn(32, 32, generator=torch.Generator().manual_seed(k)).to(dtype) for k in (0, 1))
    out = torch.empty(32, 32)
    dot_kernel[(1,)](x, y, out, PRECISION="ieee", BLOCK=32)
    right = x.double() @ y.double()
    assert float((out - right).square().mean().sqrt() / right.square().mean().sqrt()) < 1e-6


def test_products_of_tf32_keep_ten_bits() -> None:
    x, y = (torch.randn(32, 32, generator=torch.Generator().manual_seed(k)) for k in (0, 1))
    out = torch.empty(32, 32)
    dot_kernel[(1,)](x, y, out, PRECISION="tf32", BLOCK=32)
    right = x.double() @ y.double()
    error = float((out - right).square().mean().sqrt() / right.square().mean().sqrt())
    assert 1e-4 < error < 1e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_casts_round_to_nearest_even(dtype: torch.dtype) -> None:
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-40, 3.3e38, 448.0, 464.0, 57344.0])
    x = torch.cat([special, torch.randn(4086, generator=torch.Generator().manual_seed(0)) * 10])
    out = torch.empty(4096, dtype=dtype)
    cast_kernel[(1,)](x, out, 4096, BLOCK=4096)
    bits = torch.int16 if out.element_size() == 2 else torch.uint8
    want = x.to(dtype)
    same = (out.view(bits) == want.view(bits)) | (out.float().isnan() & want.float().isnan())
    assert bool(same.all())


def test_every_bfloat16_is_read_as_itself() -> None:
    x = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    out = torch.empty(65536)
    cast_kernel[(1,)](x, out, 65536, BLOCK=65536)
    assert torch.equal(out.nan_to_num(7.0), x.float().nan_to_num(7.0))


def test_the_smaller_and_the_larger_of_nan_and_a_number_is_the_number() -> None:
    x = torch.tensor([torch.nan, 1.0, 3.0, torch.inf])
    least, most = torch.empty(4), torch.empty(4)
    within_kernel[(1,)](x, least, most, BLOCK=4)
    assert least.tolist() == [2.0, 1.0, 2.0, 2.0]
    assert most.tolist() == [2.0, 2.0, 3.0, torch.inf]


def watched(n: int, step: int, count: int = 100) -> tuple[interpreter.Watch, bool]:
    """What was seen, and whether all of the output was written."""
    x, out = torch.zeros(count), torch.zeros(count)
    with interpreter.watching() as watch:
        watch.allow(x)
        watch.allow(out)
        try:
            copy_kernel[(2,)](x, out, n, step, BLOCK=64)
        except Exception as error:
            assert "OutOfBounds" in str(error)
        written = bool(watch.written(out))
    return watch, written


def test_a_right_kernel_is_silent() -> None:
    watch, all_written = watched(100, 64)
    assert watch.faults == {}
    assert all_written
    assert (watch.bytes_read, watch.bytes_written) == (400, 400)


def test_a_mask_that_is_too_wide_is_seen() -> None:
    assert watched(101, 64)[0].faults == {"reads out of bounds": 1}


def test_an_element_that_is_not_written_is_seen() -> None:
    watch, all_written = watched(99, 64)
    assert watch.faults == {}
    assert not all_written


def test_two_programs_that_write_one_element_are_seen() -> None:
    assert watched(100, 60)[0].faults == {"elements written by two programs": 4}


@triton.jit
def loop_kernel(x, out, n, BLOCK: tl.constexpr):
    total = tl.zeros((1,), tl.float32)
    for start in range(0, n, BLOCK):
        place = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x + place, mask=place < n, other=0.0))
    tl.store(out + tl.arange(0, 1), total)


@pytest.mark.filterwarnings("error:Conversion of an array:DeprecationWarning")
def test_a_loops_bound_is_a_number_whatever_triton_makes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stock = interpreter.stock_patch_tensor

    def as_of_3_6(tensor: object, *rest: object) -> None:
        stock(tensor, *rest)
        tensor.__index__ = lambda self: int(self.handle.data)  # type: ignore[attr-defined]

    monkeypatch.setattr(interpreter, "stock_patch_tensor", as_of_3_6)
    x, out = torch.arange(100, dtype=torch.float32), torch.empty(1)
    loop_kernel[(1,)](x, out, 100, BLOCK=32)
    assert out.item() == x.sum().item()


@pytest.mark.parametrize("contracts", [True, False])
def test_a_product_that_something_is_taken_off_is_rounded_once_or_twice(contracts: bool) -> None:
    x, y = torch.rand(2, 64, generator=torch.Generator().manual_seed(0))
    top, out = x * y, torch.empty(64)
    with interpreter.watching() as watch:
        watch.contracts = contracts
        for tensor in (x, y, top, out):
            watch.allow(tensor)
        less_kernel[(1,)](x, y, top, out, BLOCK=64)
    left = (x.double() * y.double() - top.double()).float()
    assert torch.equal(out, left if contracts else torch.zeros(64))
    assert bool(left.any())


@triton.jit
def _halved(x):
    return x * 0.5


@triton.jit
def halving_kernel(x, out, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, _halved(tl.load(x + place)))


def test_types_and_patches_are_worked_out_once_for_all_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = dict.fromkeys(("_stock_block", "_stock_tensor", "_stock_patch"), 0)

    def counted(module: object, name: str) -> None:
        stock = getattr(module, name)

        def count(*given: object) -> object:
            counts[name] += 1
            return stock(*given)

        monkeypatch.setattr(module, name, count)

    monkeypatch.setattr(interpreter_cache, "_patched", set())
    for name in counts:
        counted(interpreter_cache, name)
    x, out = torch.randn(512), torch.empty(512)
    halving_kernel[(1,)](x[:64], out, BLOCK=64)
    assert counts["_stock_patch"] == 1
    once_each = {**counts}
    halving_kernel[(8,)](x, out, BLOCK=64)
    assert counts == once_each
    assert torch.equal(out, x * 0.5)


@triton.jit
def zeros_kernel(x, out, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    value = tl.load(x + place)
    tl.store(out + place, value * 0.0)
    tl.store(out + BLOCK + place, value * -0.0)
    tl.store(out + 2 * BLOCK + place, value * 1)


def test_numbers_that_are_kept_as_operands_are_told_apart_by_sign_and_by_what_they_meet() -> None:
    """The same number again: beside another type, beside another shape, and made anew where too many were kept."""
    x, out = torch.rand(16) + 1.0, torch.empty(48)
    zeros_kernel[(1,)](x, out, BLOCK=16)
    assert torch.equal(out.signbit(), torch.tensor([False] * 16 + [True] * 16 + [False] * 16))
    whole, again = torch.arange(1, 9, dtype=torch.int64) << 40, torch.empty(24, dtype=torch.float64)
    zeros_kernel[(1,)](whole, again, BLOCK=8)
    assert torch.equal(again[16:], whole.double())
    assert len(interpreter_cache._numbers) <= interpreter_cache._MOST_NUMBERS


def test_a_trial_whose_roundings_lead_to_what_eager_refuses_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """But the first: of a graph that refuses its own numbers nothing can be said."""
    b = GraphBuilder("sums")
    graph = b.done(b.call("aten::sum.dim_IntList", b.input("x", (6, 40), "float32"), [1], False))
    whole = worker.validate(make_job(graph, mutants=False))
    asked = count()

    def refused(*given: Any, after: int) -> reference.ReferenceRun:
        if next(asked) >= after:
            raise IndexError("a place that the table has not")
        return spread(*given)

    spread = reference.spread
    monkeypatch.setattr(reference, "spread", partial(refused, after=1))
    found = worker.validate(make_job(graph, mutants=False))
    left_out = [text for text in found.skipped if text.endswith(": a place that the table has not")]
    assert found.faults == ()
    assert 0 < len(left_out) == whole.trials - found.trials
    asked = count()
    monkeypatch.setattr(reference, "spread", partial(refused, after=0))
    with pytest.raises(IndexError):
        worker.validate(make_job(graph, mutants=False))
