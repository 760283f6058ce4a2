"""Rows that are added up where indices say: each other way is right on a CPU, a spoiled one is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.verify.fixes.test_by_rule import checked_on_cpu  # noqa: E402
from tracemine.codegen.graph import Graph  # noqa: E402
from tracemine.codegen.graph_builder import GraphBuilder  # noqa: E402
from tracemine.codegen.index_inputs import pointing  # noqa: E402
from tracemine.verify.fixes.record import NOTHING_KNOWN, NoFixedForm  # noqa: E402
from tracemine.verify.fixes.sums import added_up  # noqa: E402

WAYS = ["sorted", "product", "atomics", "scattered"]


def messages(operator: str = "index_add_", dtype: str = "float32", **more: Any) -> Graph:
    """As a layer over a graph: rows gathered, scaled, and added up where edges end."""
    b = GraphBuilder("messages")
    x, into = b.input("x", (20, 6), dtype), b.input("into", (20, 6), dtype)
    begins, ends = (b.input(name, (90,), "int64", below=20) for name in ("begins", "ends"))
    rows = b.call("aten::mul.Tensor", b.call("aten::index_select", x, 0, begins), 0.5)
    found = b.call(f"aten::{operator}", into, 0, ends, rows, **more)
    return b.done() if operator.endswith("_") else b.done(found, rows)


def scattered(*, own: bool = False) -> Graph:
    """As libraries of graphs have it: an index for each element, the same along a row."""
    b = GraphBuilder("scattered")
    into, src = b.input("into", (9, 4), "float32"), b.input("src", (50, 4), "float32")
    index = b.input("places", (50, 4), "int64", strides=(4, 1) if own else (1, 0), below=9)
    return b.done(b.call("aten::scatter_add", into, 0, index, src))


def gradient(padding: int = -1, *, by_frequency: bool = False, rows: int = 30) -> Graph:
    b = GraphBuilder("gradient")
    grad, index = b.input("grad", (5, 8, 16), "bfloat16"), b.input("places", (5, 8), "int64", below=rows)
    wide = b.call("aten::mul.Tensor", grad, 2.0)
    return b.done(b.call("aten::embedding_dense_backward", wide, index, rows, padding, by_frequency))


def counts() -> Graph:
    b = GraphBuilder("counts")
    into, ones, index = (
        b.input("into", (8,), "float32"),
        b.input("ones", (64,), "float32"),
        b.input("i", (64,), "int64", below=8),
    )
    b.call("aten::index_add_", into, 0, index, ones)
    return b.done()


@pytest.mark.parametrize(
    "graph",
    [messages(), messages("index_add"), messages(dtype="bfloat16"), scattered(), gradient(), gradient(3), counts()],
    ids=["in place", "anew", "half", "scattered", "embedding", "padding", "one axis"],
)
def test_each_way_gives_what_the_calls_give(graph: Graph, tmp_path: Path) -> None:
    fixed = added_up(graph, NOTHING_KNOWN)
    assert [*fixed.own] == WAYS
    assert checked_on_cpu(fixed, graph, tmp_path) == {way: [] for way in WAYS}


@pytest.mark.parametrize(
    ("was", "became"),
    [
        ("rows[order].float()", "rows.float()"),
        ("torch.arange(count + 1,", "1 + torch.arange(count + 1,"),
        ("[:, None] == index", "[:, None] >= index"),
        (".index_add_(0, index, wide)", ".index_copy_(0, index, wide)"),
    ],
)
def test_a_spoiled_way_is_noticed(was: str, became: str, tmp_path: Path) -> None:
    found = checked_on_cpu(added_up(messages(), NOTHING_KNOWN), messages(), tmp_path, (was, became))
    assert any(found.values())


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (messages(alpha=2), "with a factor"),
        (scattered(own=True), "an index of its own"),
        (gradient(by_frequency=True), "how often an index comes"),
    ],
)
def test_what_is_no_sum_of_rows_says_why(graph: Graph, why: str) -> None:
    with pytest.raises(NoFixedForm, match=why):
        added_up(graph, NOTHING_KNOWN)


def test_many_sums_are_no_product() -> None:
    assert "product" not in added_up(gradient(rows=100_000), NOTHING_KNOWN).own


def test_indices_of_an_embeddings_gradient_stay_below_its_rows() -> None:
    graph = gradient()
    assert pointing(graph.calls[-1], graph.specs) == [(1, 30)]
