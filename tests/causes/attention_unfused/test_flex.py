"""Attention whose scores go through a function, as flex_attention, which computes the same; else it says why not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.verify.fixes.test_by_rule import checked_on_cpu
from tracemine.causes.attention_unfused.fix import attended
from tracemine.codegen.graph import Graph
from tracemine.codegen.graph_builder import GraphBuilder
from tracemine.verify.fixes.record import Around, NoFixedForm

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 3, 5, 7, 8
LINES = BATCH * HEADS
Function = Callable[[GraphBuilder, Any, Any], Any]  # of the builder, scores and queries


def attention(of_scores: Function, *, trained: bool = False, behind: str = "") -> Graph:
    """Attention as torch.matmul and softmax are recorded; behind: an operator on the probabilities."""
    b = GraphBuilder("attention")
    given = b.input("given", *GIVEN[of_scores]) if of_scores in GIVEN else None
    q, k, v = (
        b.input(n, (BATCH, HEADS, rows, WIDTH), "float32") for n, rows in (("q", QUERIES), ("k", KEYS), ("v", KEYS))
    )
    turned = b.call("aten::clone", b.call("aten::permute", k, [0, 1, 3, 2]), memory_format=0)
    left, right = b.call("aten::view", q, [LINES, QUERIES, WIDTH]), b.call("aten::view", turned, [LINES, WIDTH, KEYS])
    scores = b.call("aten::view", b.call("aten::bmm", left, right), [BATCH, HEADS, QUERIES, KEYS])
    weights = b.call("aten::_softmax", of_scores(b, scores, q if given is None else given), -1, False)
    weights = b.call(behind, weights) if behind else weights
    flat, values = (
        b.call("aten::view", x, [LINES, rows, n]) for x, rows, n in ((weights, QUERIES, KEYS), (v, KEYS, WIDTH))
    )
    out = b.call("aten::bmm", flat, values)
    found = b.call("aten::permute", b.call("aten::view", out, [BATCH, HEADS, QUERIES, WIDTH]), [0, 2, 1, 3])
    return b.done(b.call("aten::clone", found, memory_format=0), *([weights] if trained else []))


def capped(b: GraphBuilder, scores: Any, mask: Any) -> Any:
    squeezed = b.call("aten::tanh", b.call("aten::div.Tensor", b.call("aten::mul.Tensor", scores, 0.3), 5.0))
    return b.call("aten::add.Tensor", b.call("aten::mul.Tensor", squeezed, 5.0), mask)


def gated(b: GraphBuilder, scores: Any, factor: Any) -> Any:
    return b.call("aten::mul.Tensor", scores, factor)


def chosen(b: GraphBuilder, scores: Any, far: Any) -> Any:
    return b.call("aten::where.self", b.call("aten::gt.Scalar", far, 0.1), scores, far)


def hidden(b: GraphBuilder, scores: Any, out_of_sight: Any) -> Any:
    return b.call("aten::masked_fill.Scalar", b.call("aten::sigmoid", scores), out_of_sight, -9.0)


def out_of_sight(b: GraphBuilder, scores: Any, mask: Any) -> Any:
    """Two masks, one of which hides what lies at keys to come, the other a row whole."""
    far = b.call("aten::masked_fill.Scalar", b.call("aten::tanh", scores), b.call("aten::gt.Scalar", mask, 0.0), -1e38)
    return b.call("aten::add.Tensor", mask, far)


def of_queries(b: GraphBuilder, scores: Any, q: Any) -> Any:
    """A term that is computed of the queries before."""
    return b.call("aten::mul.Tensor", b.call("aten::tanh", scores), b.call("aten::mean.dim", q, [-1], True))


GIVEN: dict[Function, Any] = {
    capped: ((BATCH, 1, QUERIES, KEYS), "float32"),
    gated: ((HEADS, 1, KEYS), "float32"),
    chosen: ((QUERIES, KEYS), "float32"),
    hidden: ((BATCH, 1, 1, KEYS), "bool"),
    out_of_sight: ((HEADS, QUERIES, KEYS), "float32"),
}
FUNCTIONS = (capped, gated, chosen, hidden, out_of_sight, of_queries)


@pytest.fixture
def untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions of scores are called, where flex_attention without torch.compile traces them anew for each call."""
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True, raising=False)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_of_scores_computes_the_same_as_a_score_function(function: Function, tmp_path: Path) -> None:
    graph = attention(function)
    fixed = attended(graph, Around())
    ways = ["flex", "flex, blocks"][: 2 if function in (capped, out_of_sight) else 1]
    assert list(fixed.own) == ways and "score_mod=score_function" in fixed.source
    assert checked_on_cpu(fixed, graph, tmp_path) == {way: [] for way in ways}


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize(
    ("function", "old", "new"),
    [
        (capped, "torch.tanh", "torch.abs"),
        (capped, "given[batch, 0, query, key]", "given[0, 0, query, key]"),
        (capped, "k.reshape", "k.sort(dim=2).values.reshape"),
        (gated, "given[head, 0, key]", "given[0, 0, key]"),
        (chosen, "[query, key], score", "[query, 0], score"),
        (hidden, "given[batch, 0, 0, key]", "given[batch, 0, 0, 0]"),
        (of_queries, "scale=1.0", "scale=0.5"),
        (out_of_sight, "aten.gt.Scalar", "aten.lt.Scalar"),
        (out_of_sight, "[head, query, key]\n\n    def", "[head, query, 0]\n\n    def"),
        (of_queries, "[batch, head, query, 0]", "[batch, 0, query, 0]"),
    ],
)
def test_a_mistake_in_a_score_function_is_seen(function: Function, old: str, new: str, tmp_path: Path) -> None:
    graph = attention(function)
    fixed = attended(graph, Around())
    assert not any(checked_on_cpu(fixed, graph, tmp_path).values())
    assert any(checked_on_cpu(fixed, graph, tmp_path, (old, new)).values())


def long_attention(length: int) -> tuple[Graph, list[Any]]:
    """Attention with a soft cap and an added mask of many rows, and its inputs: the last row sees nothing."""
    import torch

    b = GraphBuilder("long")
    q, k, v = (b.input(n, (1, 1, length, WIDTH), "float32") for n in "qkv")
    added = b.input("added", (length, length), "float32")
    sides = b.call("aten::view", q, [1, length, WIDTH]), b.call("aten::permute", k, [0, 1, 3, 2])
    turned = b.call("aten::view", b.call("aten::clone", sides[1], memory_format=0), [1, WIDTH, length])
    scores = b.call("aten::view", b.call("aten::bmm", sides[0], turned), [1, 1, length, length])
    weights = b.call("aten::_softmax", b.call("aten::add.Tensor", b.call("aten::tanh", scores), added), -1, False)
    flat = b.call("aten::view", weights, [1, length, length]), b.call("aten::view", v, [1, length, WIDTH])
    mask = torch.full((length, length), torch.finfo(torch.float32).min).triu(1)
    mask[-1] = torch.finfo(torch.float32).min
    torch.manual_seed(0)
    return b.done(b.call("aten::bmm", *flat)), [*(torch.randn(1, 1, length, WIDTH) for _ in range(3)), mask]


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("return ~hidden[query, key]", "return ~hidden[key, query]"),
        (" & ~hidden.all(-1, keepdim=True)", ""),
        ("(seen_of > 0) & ~full", "(seen_of > 9999) & ~full"),
        ("full = seen_of == side * side", "full = seen_of > 0"),
        ("descending=True", "descending=False"),
    ],
)
def test_blocks_that_a_mask_hides_are_left_out_and_no_others(old: str, new: str) -> None:
    graph, given = long_attention(length := 384)
    space: dict[str, Any] = {"torch": pytest.importorskip("torch")}
    exec(attended(graph, Around()).source.replace(old, new), space)  # noqa: S102
    whole, inputs = space["fixed"](*given)[0], space["masked"](given)
    same = bool((space["fixed"](*inputs)[0] - whole).abs().max() < 1e-5)
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    wanted = flex.create_block_mask(inputs[-1].mask_mod, 1, 1, length, length, device="cpu")
    for name in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks"):  # which a CPU does not go by
        same &= getattr(inputs[-1], name).tolist() == getattr(wanted, name).tolist()
    assert (same and bool((inputs[-1].to_dense() == wanted.to_dense()).all())) == (not old)
    assert old or inputs[-1].sparsity() == pytest.approx(100 / 3, abs=1)


def sorted_scores(b: GraphBuilder, scores: Any, _: Any) -> Any:
    return b.call("aten::cumsum", b.call("aten::tanh", scores), 3)


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (attention(sorted_scores), "cumsum"),
        (attention(capped, trained=True), "read elsewhere"),
        (attention(capped, behind="aten::relu"), "stands behind it"),
    ],
)
def test_what_no_score_function_says_is_refused_with_the_reason(graph: Graph, why: str) -> None:
    with pytest.raises(NoFixedForm, match=why):
        attended(graph, Around())
