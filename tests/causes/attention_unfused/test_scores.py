"""Attention with another function of the scores is not told to be the fused operator, and what it is told is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.dispatched import dispatched
from tests.recipes import run
from tracemine.causes import load_rules
from tracemine.findings import Finding
from tracemine.pipeline import ScanOptions, analysed, mined

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
RULE = next(rule for rule in load_rules() if rule.id == "attention_unfused")
FUSED = "scaled_dot_product_attention("
BATCH, HEADS, LENGTH, WIDTH = 2, 16, 256, 64
SCALE, CAP = 0.125, 5.0
Program = Callable[..., torch.Tensor]


def heads(dtype: torch.dtype, length: int = LENGTH) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    q, k, v = (torch.randn(BATCH, HEADS, length, WIDTH, dtype=dtype) for _ in range(3))
    return q, k, v


def causal(length: int, dtype: torch.dtype, fill: float = -torch.inf) -> torch.Tensor:
    return torch.full((length, length), fill, dtype=dtype).triu(1)


def plain(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.mT * SCALE).softmax(-1) @ v


def capped(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return (torch.tanh(q @ k.mT * SCALE / CAP) * CAP + mask).softmax(-1) @ v


def alibi(q: Any, k: Any, v: Any, bias: Any, mask: Any) -> Any:
    return (q @ k.mT * SCALE + bias + mask).softmax(-1) @ v


def by_head(q: Any, k: Any, v: Any, scale: Any) -> Any:
    return (q @ k.mT * scale).softmax(-1) @ v


def gated(q: Any, k: Any, v: Any, factor: Any) -> Any:
    return (q @ k.mT * SCALE * factor).softmax(-1) @ v


def leaky(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT * SCALE
    return torch.where(scores > 0, scores, scores * 0.1).softmax(-1) @ v


def chosen(q: Any, k: Any, v: Any, near: Any, far: Any) -> Any:
    return torch.where(near, q @ k.mT * SCALE, far).softmax(-1) @ v


def filled(q: Any, k: Any, v: Any, kept: Any) -> Any:
    return torch.where(kept, q @ k.mT * SCALE, torch.finfo(q.dtype).min).softmax(-1) @ v


def disentangled(q: Any, k: Any, v: Any, weight: Any, positions: Any, places: Any) -> Any:
    q = q @ weight
    by_query = q @ positions.mT * SCALE
    return (q @ k.mT * SCALE + by_query.gather(-1, places.expand(*q.shape[:3], -1))).softmax(-1) @ v


def disentangled_both_ways(q: Any, k: Any, v: Any, weight: Any, positions: Any, places: Any) -> Any:
    """DeBERTa's: terms of the queries and of the keys, gathered in full and summed before they are added."""
    q, k = q @ weight, k @ weight
    at = places.expand(*q.shape[:3], -1)
    bias = (q @ positions.mT).gather(-1, at) * SCALE + (k @ positions.mT).gather(-1, at).mT * SCALE
    return (q @ k.mT * SCALE + bias).softmax(-1) @ v


def of_a_table(q: Any, k: Any, v: Any, table: Any, places: Any) -> Any:
    """A bias that is looked up in weights: of no query."""
    return (q @ k.mT * SCALE + table.gather(-1, places.expand(HEADS, -1, -1))).softmax(-1) @ v


def of_pairs(q: Any, k: Any, v: Any, weight: Any, pairs: Any, narrow: Any) -> Any:
    """A bias that is a product too, of something else than the queries."""
    q = q @ weight
    return (q @ k.mT * SCALE + (pairs @ narrow).permute(2, 0, 1)).softmax(-1) @ v


def sigmoid(q: Any, k: Any, v: Any) -> Any:
    return torch.sigmoid(q @ k.mT * SCALE) @ v


def clamped(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.mT * SCALE).clamp(-CAP, CAP).softmax(-1) @ v


def found(program: Program, *more: Any) -> Finding | None:
    given = [one.bfloat16() if isinstance(one, torch.Tensor) and one.is_floating_point() else one for one in more]
    scan = mined(analysed(dispatched(program, *heads(torch.bfloat16), *given)), ScanOptions(rules=[RULE]))
    return next(iter(scan.findings), None)


def slopes() -> torch.Tensor:
    apart = torch.arange(LENGTH)[None, :] - torch.arange(LENGTH)[:, None]
    return 2.0 ** -torch.arange(1, HEADS + 1)[:, None, None] * apart


def table() -> torch.Tensor:
    return 1 / (1 + (torch.arange(LENGTH)[None, :] - torch.arange(LENGTH)[:, None]).abs())


def relative() -> list[torch.Tensor]:
    apart = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)[None, :]
    return [torch.randn(WIDTH, WIDTH) / 8, torch.randn(HEADS, 17, WIDTH), apart.clamp(-8, 8) + 8]


@pytest.mark.parametrize(
    ("program", "more", "named"),
    [
        (capped, [causal(LENGTH, torch.float32)], "soft_cap"),
        (disentangled, relative(), "with_positions"),
        (gated, [table()], "changed"),
        (chosen, [table() > 0.1, table()], "changed"),
    ],
)
def test_another_function_of_scores_is_told_flex_attention_first_and_never_the_fused_operator(
    program: Program, more: list[Any], named: str
) -> None:
    finding = found(program, *more)
    assert finding is not None
    assert f"def {named}(" in finding.fix
    assert FUSED not in finding.fix
    assert "flex_attention takes" in " ".join(finding.assumptions)  # and it is priced so


@pytest.mark.parametrize(
    ("program", "more"),
    [
        (plain, []),
        (alibi, [slopes(), causal(LENGTH, torch.float32)]),
        (by_head, [torch.rand(HEADS, 1, 1)]),
        (filled, [causal(LENGTH, torch.float32) == 0]),
        (of_pairs, [relative()[0], torch.randn(LENGTH, LENGTH, 32), torch.randn(32, HEADS)]),
    ],
)
def test_scales_masks_and_biases_of_anything_else_are_the_fused_operator(program: Program, more: list[Any]) -> None:
    finding = found(program, *more)
    assert finding is not None
    assert FUSED in finding.fix
    assert "flex_attention" not in finding.fix


@pytest.mark.parametrize(("program", "gathers"), [(disentangled, 1), (disentangled_both_ways, 2)])
def test_terms_of_positions_go_into_the_kernel_with_what_gathers_them(program: Program, gathers: int) -> None:
    finding = found(program, *relative())
    assert finding is not None
    assert "def with_positions(" in finding.fix
    assert finding.variants[0].ops.count("aten::gather") == gathers
    assert "what is gathered is read within the kernel" in " ".join(finding.assumptions)
    assert finding.gpu_saving_ns.low < finding.gpu_saving_ns.mid < finding.gpu_saving_ns.high


def test_a_bias_that_is_gathered_from_weights_is_made_as_now() -> None:
    table = torch.randn(HEADS, LENGTH, 17)
    finding = found(of_a_table, table, relative()[2])
    assert finding is not None
    assert FUSED in finding.fix
    assert "made a bias before, as now" in " ".join(finding.assumptions)


@pytest.mark.parametrize("program", [sigmoid, clamped, leaky])
def test_what_is_no_softmax_of_such_scores_is_not_found(program: Program) -> None:
    assert found(program) is None


# --- what is printed, run ---------------------------------------------------------------------------------------------


def text_of(function: str | None) -> str:
    return (
        RULE.fix
        if function is None
        else next(one.text for one in RULE.advice if one.when == {"score_function": (function,)})
    )


def close(text: str, expected: torch.Tensor, **names: Any) -> None:
    q, k, v = heads(torch.float64)
    torch.testing.assert_close(run(text, q=q, k=k, v=v, scale=SCALE, **names)["out"], expected)


def test_the_soft_cap_s_code_is_the_eager_chain() -> None:
    close(text_of("soft cap"), capped(*heads(torch.float64), causal(LENGTH, torch.float64)), cap=CAP)


def test_the_code_for_positions_is_the_eager_chain() -> None:
    weight, positions, places = (one.double() if one.is_floating_point() else one for one in relative())
    q, k, v = heads(torch.float64)
    expected = disentangled(q, k, v, weight, positions, places)
    given = {"positions": positions, "places": places}
    torch.testing.assert_close(
        run(text_of("bias of queries"), q=q @ weight, k=k, v=v, scale=SCALE, **given)["out"], expected
    )


def test_the_code_for_any_function_is_the_eager_chain() -> None:
    factor = table().double()
    close(text_of("other"), gated(*heads(torch.float64), factor), factor=factor)


class _Module:
    training = False


@pytest.mark.parametrize("fill", [-torch.inf, torch.finfo(torch.float64).min])
def test_the_fused_operator_s_code_is_the_eager_chain_with_biases_and_masks(fill: float) -> None:
    bias = slopes().double() + causal(LENGTH, torch.float64, fill)
    expected = alibi(*heads(torch.float64), slopes().double(), causal(LENGTH, torch.float64, fill))
    close(text_of(None), expected, mask=bias, p=0.1, self=_Module())


def test_of_rows_without_any_key_the_fused_operator_gives_other_numbers_and_the_rule_says_so() -> None:
    mask = causal(LENGTH, torch.float64)
    mask[3] = -torch.inf
    q, k, v = heads(torch.float64)
    out = run(text_of(None), q=q, k=k, v=v, scale=SCALE, mask=mask, p=0.0, self=_Module())["out"]
    eager = alibi(q, k, v, torch.zeros(()), mask)
    others = torch.arange(LENGTH) != 3
    torch.testing.assert_close(out[:, :, others], eager[:, :, others])
    assert eager[:, :, 3].isnan().all()
    assert not out[:, :, 3].isnan().any()
    assert any("whose keys are all masked" in each for each in RULE.false_positives)
