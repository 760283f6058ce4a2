"""Spelled-out attention whose operands were cast up: what is tried of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verify.fixes.test_by_rule import fixed_graph, tried
from tracemine.codegen.graph import Graph
from tracemine.codegen.graph_builder import GraphBuilder
from tracemine.verify.fixes.record import NoFixedForm

BATCH, HEADS, LENGTH, WIDTH = 2, 3, 8, 16
RULE, LINES = "attention_unfused", BATCH * HEADS


def sloped(*kinds: str) -> Graph:
    """Attention with a bias in float32. kinds: dtypes of queries, keys and values before they are cast."""
    b = GraphBuilder("sloped")
    given = [b.input(name, (BATCH, HEADS, LENGTH, WIDTH), kind) for name, kind in zip("qkv", kinds, strict=True)]
    bias = b.input("bias", (HEADS, LENGTH, LENGTH), "float32")
    wide = [
        each if kind == "float32" else b.call("aten::_to_copy", each, dtype="float32")
        for each, kind in zip(given, kinds, strict=True)
    ]
    q, k, v = (b.call("aten::view", each, [LINES, LENGTH, WIDTH]) for each in wide)
    scores = b.call("aten::bmm", q, b.call("aten::permute", k, [0, 2, 1]))
    scores = b.call("aten::mul.Tensor", b.call("aten::view", scores, [BATCH, HEADS, LENGTH, LENGTH]), 0.25)
    weights = b.call("aten::_softmax", b.call("aten::add.Tensor", scores, bias), -1, False)
    return b.done(b.call("aten::bmm", b.call("aten::view", weights, [LINES, LENGTH, LENGTH]), v))


def test_a_call_in_half_precision_is_not_held_against_float32() -> None:
    with pytest.raises(NoFixedForm, match="as they were, in half precision"):
        fixed_graph(RULE, sloped("bfloat16", "bfloat16", "bfloat16"))


def test_where_one_operand_was_in_float32_all_stay_so(tmp_path: Path) -> None:
    graph = sloped("bfloat16", "bfloat16", "float32")
    assert tried(RULE, graph, tmp_path)["math"] == []
