"""Where eager casts what has no number in the other dtype, nothing is said of a kernel; everywhere else it is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

pytest.importorskip("torch")

import torch

from tracemine.codegen import GraphBuilder
from tracemine.validate import numerics, reference
from tracemine.validate.undefined_casts import defined, undefined
from tracemine.verify.gpu.correctness import right

NUMBERS = torch.tensor([1.2, torch.nan, 300.0, -7.9, torch.inf, 127.9])
NOBODYS = [False, True, True, False, True, False]  # as int8


def cast() -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]:
    codes = torch.ops.aten._to_copy(NUMBERS, dtype=torch.int8)
    return [codes], [torch.ops.aten._to_copy(NUMBERS.double(), dtype=torch.int8)]


@pytest.mark.parametrize("other", [0, 127, -128])
def test_a_cast_of_no_number_may_give_any(other: int) -> None:
    (eager,), (truth,) = defined(cast)
    assert truth.isnan().tolist() == NOBODYS
    made_up = eager.clone()  # as another version, or a GPU, may cast
    made_up[NOBODYS] = other
    for ours, theirs in ((made_up, eager), (eager, made_up)):
        assert numerics.compare(ours, theirs, truth, 0).faults == ()
        assert numerics.wiring(numerics.promised(ours, theirs, truth), theirs, exact=True, ulp=0) is None


def test_what_has_a_number_is_judged_beside_it() -> None:
    (eager,), (truth,) = defined(cast)
    wrong = eager.clone()
    wrong[3] += 1
    assert numerics.compare(wrong, eager, truth, 0).faults
    assert numerics.wiring(numerics.promised(wrong, eager, truth), eager, exact=True, ulp=0) is not None


def test_what_is_made_of_such_codes_is_nobodys_either() -> None:
    b = GraphBuilder("codes")
    x = b.input("x", (3, 2), "float32")
    codes = b.call("aten::_to_copy", x, dtype="int8")
    chain = b.done(b.call("aten::mul.Tensor", b.call("aten::_to_copy", codes, dtype="float32"), 0.5), codes)
    _, truth, _ = reference.judged(chain, [NUMBERS.view(3, 2)], {s.name: s.value for s in chain.scalars}, {})
    for found in truth.live:
        assert found.isnan().flatten().tolist() == NOBODYS


def told(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    found = undefined(x, dtype)
    assert found is not None
    return found


def test_codes_of_numbers_that_fit_are_defined() -> None:
    x = torch.tensor([-128.9, 127.9, 0.0, -0.9])
    assert not told(x, torch.int8).any()
    assert told(x, torch.uint8).tolist() == [True, False, False, False]
    assert undefined(x, torch.bool) is None
    assert told(torch.tensor([448.0, 500.0, torch.nan]), torch.float8_e4m3fn).tolist() == [False, True, False]


def test_the_judge_of_recorded_sizes_says_nothing_of_them_either() -> None:
    def eager(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.ops.aten._to_copy(x * 10, dtype=torch.uint8),)

    def saturated(x: torch.Tensor) -> tuple[torch.Tensor]:
        return ((x * 10).clamp(0, 255).to(torch.uint8),)

    def wrong(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (saturated(x)[0] + 1,)

    described = [("x", (40, 30), torch.float32, (30, 1), None)]
    judged = right(eager, {"saturated": saturated, "wrong": wrong}, described, 0.0, "cpu", (0,))
    assert judged["saturated"]["faults"] == []
    assert judged["wrong"]["faults"]
