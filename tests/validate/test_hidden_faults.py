"""Wrong kernels that somebody thought up to get past the proof: right nearly everywhere, and each is found out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice

import msgspec
import pytest

from tests.codegen.catalogue import CATALOGUE
from tracemine.codegen import Graph, GraphBuilder

pytest.importorskip("torch")
pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')

import torch

from tests.codegen.user_written import recorded
from tracemine.codegen.options import LONGEST_ROW
from tracemine.validate import trials
from tracemine.validate.launcher_mutants import NARROWER
from tracemine.validate.record import Validation
from tracemine.validate.sandbox import Sandbox, make_job
from tracemine.verify.gpu.correctness import repeats, right


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as found:
        yield found


def caught(sandbox: Sandbox, chain: Graph, pattern: str, becomes: str, longest_row: int) -> str | None:
    """What gives a source away of which the first line that a pattern fits is another; None where nothing does."""
    job = make_job(chain, mutants=False, longest_row=longest_row)
    wrong = re.sub(pattern, becomes, job.source, count=1, flags=re.MULTILINE)
    assert wrong != job.source, "the source has another text by now"
    job = msgspec.structs.replace(job, mutants=(("by hand", "", wrong, None, None),))
    proof = sandbox.answer(msgspec.json.encode(job))
    assert isinstance(proof, Validation), proof
    assert proof.faults == ()
    (mutant,) = proof.mutants
    return mutant.killed_by


def spread() -> Graph:
    b = GraphBuilder("spread")
    x = b.input("x", (6, 50), "float32")
    return b.done(b.call("aten::var.correction", x, [1], correction=1, keepdim=True))


def inverse() -> Graph:
    b = GraphBuilder("inverse")
    x, y = b.input("x", (5, 40), "float32"), b.input("y", (5, 40), "float32")
    return b.done(b.call("aten::div.Tensor", y, b.call("aten::neg", x)))


def marked() -> Graph:
    b = GraphBuilder("marked")
    x, codes = b.input("x", (3, 20), "float32"), b.input("codes", (3, 20), "int32")
    return b.done(b.call("aten::neg", x), b.call("aten::any.dim", codes, 1))


def column_spread() -> Graph:
    b = GraphBuilder("column_spread")
    return b.done(b.call("aten::var.correction", b.input("x", (150, 24), "bfloat16"), [0], correction=0))


# What is wrong, on which chain, the line and what it becomes; rows that are walked in a loop, by as many columns.
ENEMIES: dict[str, tuple[Callable[[], Graph], str, str]] = {
    "the epsilon is left out": (CATALOGUE["rms_norm"], r"^(    add_1 = \w+ \+ )\w+", r"\g<1>0.0"),
    "the variance is the biased one": (spread, r"= \(n1 \* 1\.0\) - 1\.0", "= (n1 * 1.0) - 0.0"),
    "the sign of zero is lost on the way": (inverse, r"^    neg_1 = -(\w+)", r"    neg_1 = 0.0 - \1"),
    "a last block that is not whole is not walked": (CATALOGUE["looped_softmax"], r"columns if tail else full", "full"),
    "a product is made one with the difference to its row's largest": (
        CATALOGUE["temperature_softmax"],
        r"_under\((div_2), \w+\)",
        r"\1",
    ),
    "rows are taken to lie side by side": (
        CATALOGUE["add_rms_norm"],
        r"(residual_ptr \+ .*)column \* residual_s\d",
        r"\1column",
    ),
    "each call gives the same memory": (
        CATALOGUE["relu_squared"],
        r"^    \(out,\) = (_allocate\(.*\))$",
        r"    (out,) = PLANS.setdefault(('kept', id(new)), \1)",
    ),
    "only the first call is right": (
        CATALOGUE["relu_squared"],
        r"^    launch\((.*)\)$",
        r"    launch(\1)\n    out.mul_(2 if PLANS.get('called') else 1)\n    PLANS['called'] = True",
    ),
    "every program writes behind its own rows too": (
        CATALOGUE["layer_norm"],
        r"^(    tl\.store\(out1_ptr \+ row \* out1_s0)(, \w+, mask=)row_mask\)",
        r"\1\2row_mask)\n\1 + out1_s0\2row + 1 < rows)",
    ),
    "one element behind the last is read, and masked out": (
        CATALOGUE["rms_norm"],
        r"^(    x_1 = tl\.load\(.*mask=)mask(, .*)$",
        r"\1row_mask & (column < columns + 1)\2\n    x_1 = tl.where(mask, x_1, 0.0)",
    ),
    "NaN is passed over": (CATALOGUE["token_quant"], r"_row_max\((.*)\)  #", r"tl.max(\1, 1)[:, None]  #"),
    "a gain is written as it was": (
        CATALOGUE["layer_norm"],
        r"^(    weight_1 = tl\.load\((weight_ptr \+ \S+ \* \w+), mask=(\w+).*)$",
        r"\1\n    tl.store(\2, weight_1, mask=\3)",
    ),
    "the ignored class is counted": (CATALOGUE["cross_entropy"], r"= target_1 != -100  #", "= target_1 != -101  #"),
    "a plan is kept however one tensor lies": (
        CATALOGUE["gated_residual"],
        r"t\.shape, t\.stride\(\), (?=.* in tensors\])",
        "t is tensors[0] or (t.shape, t.stride()), ",
    ),
    "a plan is kept however whole numbers lie of which one tells": (
        marked,
        r"t\.stride\(\), (?=.* in tensors\])",
        "t.is_floating_point() and t.stride(), ",
    ),
}


@pytest.mark.parametrize("name", ENEMIES)
def test_it_is_found_out_in_the_interpreter(sandbox: Sandbox, name: str) -> None:
    make, pattern, becomes = ENEMIES[name]
    in_loops = make in (CATALOGUE["looped_softmax"], CATALOGUE["temperature_softmax"])
    longest_row = 64 if in_loops else LONGEST_ROW
    assert caught(sandbox, make(), pattern, becomes, longest_row) is not None


@pytest.mark.parametrize("scratch", ["scratch0", "scratch1"])
def test_partial_results_of_16_bits_are_found_out_below_results_of_16_bits(sandbox: Sandbox, scratch: str) -> None:
    """Squares and counts of parts: in no trial do they err more than the result is rounded; its bits tell."""
    job = make_job(column_spread(), longest_row=64)
    narrower = [m for m in job.mutants if m[0] == NARROWER and m[1].startswith(scratch)]
    proof = sandbox.answer(msgspec.json.encode(msgspec.structs.replace(job, mutants=tuple(narrower))))
    assert isinstance(proof, Validation), proof
    assert proof.faults == ()
    (mutant,) = proof.mutants
    assert mutant.equivalent is None
    assert mutant.killed_by is not None
    assert "differ from eager's bits" in mutant.killed_by


ROWS = 2**16 + 40


def test_rows_beyond_two_bytes_are_judged_where_they_are_recorded() -> None:
    """A proof of smaller sizes does not see them; the judge of recorded sizes does."""

    def eager(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.ops.aten.mul.Tensor(x, x),)

    def fused(x: torch.Tensor) -> tuple[torch.Tensor]:
        found = x * x
        found[2**16 :] = found[: ROWS - 2**16]
        return (found,)

    described = [("x", (ROWS, 2), torch.bfloat16, (2, 1), None)]
    judged = right(eager, {"eager": eager, "fused": fused}, described, 0.0, "cpu", (0,))
    assert judged["eager"]["faults"] == []
    assert judged["fused"]["faults"]


def test_a_race_that_is_lost_once_in_a_while_shows_in_ten_runs() -> None:
    runs: list[int] = []

    def fused(x: torch.Tensor) -> tuple[torch.Tensor]:
        runs.append(1)
        found = x + 1
        if len(runs) % 7 == 0:
            found[3] = 0
        return (found,)

    described = [("x", (40,), torch.float32, (1,), None)]
    assert not repeats(fused, described, "cpu")


def test_an_epsilon_that_is_left_out_shows_among_rows_of_small_numbers() -> None:
    def normed(x: torch.Tensor, eps: float) -> tuple[torch.Tensor]:
        mean = torch.ops.aten.mean.dim(torch.ops.aten.mul.Tensor(x, x), [-1], True)
        return (torch.ops.aten.mul.Tensor(x, torch.ops.aten.rsqrt(torch.ops.aten.add.Tensor(mean, eps))),)

    variants = {"right": lambda x: normed(x, 1e-6), "wrong": lambda x: normed(x, 1e-9)}
    described = [("x", (64, 256), torch.bfloat16, (256, 1), None)]
    judged = right(variants["right"], variants, described, 2.0, "cpu")
    assert judged["right"]["faults"] == []
    assert all(fault.startswith("seed 1") for fault in judged["wrong"]["faults"])
    assert judged["wrong"]["faults"]


@pytest.mark.parametrize(
    ("name", "kind", "line"),
    [
        ("quantile", "recorded scalar baked in", "div_2 ="),  # what each of two that are equal has of a gradient
        ("log_cosh", "wrong scalar", "softplus_backward_1 ="),  # from where on it is a straight line
        ("int8_by_row", "recorded scalar baked in", "clamp_2 ="),  # a bound that no share of the largest reaches
        ("jaccard", "mask of a reduction dropped", "sum_1 ="),  # 0 beyond the columns unless a bound is negative
        ("adafactor", "plan kept whatever the strides", "by_column."),  # of one row: its columns may have gaps alone
    ],
)
def test_it_is_found_out_by_numbers_that_meet_or_reach_a_bound(
    sandbox: Sandbox, name: str, kind: str, line: str
) -> None:
    job = make_job(recorded(name, 5, 36))
    wrong = tuple(m for m in job.mutants if m[0] == kind and m[1].startswith(line))
    proof = sandbox.answer(msgspec.json.encode(msgspec.structs.replace(job, mutants=wrong)))
    assert isinstance(proof, Validation), proof
    assert proof.faults == ()
    assert proof.mutants
    assert all(m.killed_by and m.equivalent is None for m in proof.mutants)


@pytest.mark.parametrize("name", ["nucleus", "supervised_contrastive"])
def test_what_is_taken_off_itself_leaves_nothing(sandbox: Sandbox, name: str) -> None:
    """The first share of a row less its own running sum, the largest number less itself: 0 in eager, for any bound."""
    proof = sandbox.answer(msgspec.json.encode(make_job(recorded(name, 5, 36), mutants=False)))
    assert isinstance(proof, Validation), proof
    assert proof.faults == ()


def test_trials_by_lot_are_the_same_each_time_and_change_scalars_alike_that_are_alike() -> None:
    chain = recorded("policy_gradient", 5, 36)
    first, again = (list(islice(trials.drawn({0: 5, 1: 36}), 40)) for _ in range(2))
    assert first == again
    assert {t.kind for t in first} >= {"equal inputs", "in the tens", trials.INTEGERS}
    for trial in first:
        values = trials.scalar_values(chain, trial)
        assert values == trials.scalar_values(chain, trial)
        if trial.seed % 2:
            assert values["min_1"] == values["other_4"], "a bound and its gradient's"
