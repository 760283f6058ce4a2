"""Products of what was dequantised, by the library's product of 8 bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.verify.fixes.test_by_rule import checked_on_cpu
from tracemine.causes.quantised_product_widened.fix import narrow
from tracemine.codegen.graph import Graph
from tracemine.codegen.graph_builder import GraphBuilder
from tracemine.verify.fixes.record import Around, NoFixedForm

ROWS, COLUMNS, WIDTH = 32, 48, 64
FLOAT8, HALF = "float8_e4m3fn", "bfloat16"


def widened(b: GraphBuilder, x: Any, scale: Any, dtype: str = HALF) -> Any:
    return b.call("aten::mul.Tensor", b.call("aten::_to_copy", x, dtype=dtype), scale)


def linear_of(kind: str, of_x: tuple[int, ...], of_w: tuple[int, ...], bias: bool = False, rows: int = ROWS) -> Graph:
    """A layer of which both operands are dequantised, in half."""
    b = GraphBuilder("widened")
    x, w = b.input("x", (rows, WIDTH), kind), b.input("w", (COLUMNS, WIDTH), kind)
    scale_x, scale_w = b.input("scale_x", of_x, HALF), b.input("scale_w", of_w, HALF)
    beside = [b.input("bias", (COLUMNS,), HALF)] if bias else []
    return b.done(b.call("aten::linear", widened(b, x, scale_x), widened(b, w, scale_w), *beside))


def turned(kind: str) -> Graph:
    """A product of a weight that is dequantised, then turned; what it gives is rounded to 8 bits again."""
    b = GraphBuilder("turned")
    x, w = b.input("x", (ROWS, WIDTH), kind), b.input("w", (COLUMNS, WIDTH), kind)
    scale, bias = b.input("scale", (COLUMNS, 1), HALF), b.input("bias", (COLUMNS,), HALF)
    sides = b.call("aten::mul.Tensor", b.call("aten::_to_copy", x, dtype=HALF), 0.125), widened(b, w, scale)
    y = b.call("aten::addmm", bias, sides[0], b.call("aten::t", sides[1]))
    return b.done(b.call("aten::mul.Tensor", y, 0.5), y)


GRAPHS: dict[str, Callable[[], Graph]] = {
    "float8 by rows": lambda: linear_of(FLOAT8, (ROWS, 1), (COLUMNS, 1), bias=True),
    "float8 by columns alone": lambda: linear_of(FLOAT8, (), (COLUMNS, 1)),
    "float8 by one scale each": lambda: linear_of(FLOAT8, (1,), ()),
    "int8 by rows": lambda: linear_of("int8", (ROWS, 1), (COLUMNS, 1), bias=True),
    "int8 by columns": lambda: linear_of("int8", (), (COLUMNS, 1)),
    "float8 turned": lambda: turned(FLOAT8),
    "int8 turned": lambda: turned("int8"),
}


@pytest.fixture(autouse=True)
def exact_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for the library: on processors without 8-bit dot products oneDNN's sums stop at 16 bits."""

    def int_mm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x.long() @ w.long()).int()

    def scaled_mm(
        x: torch.Tensor,
        w: torch.Tensor,
        scale_x: torch.Tensor,
        scale_w: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        out_dtype: torch.dtype,
    ) -> torch.Tensor:
        found = (x.double() @ w.double()) * scale_x * scale_w
        return (found if bias is None else found + bias).to(out_dtype)

    monkeypatch.setattr(torch, "_int_mm", int_mm)
    monkeypatch.setattr(torch, "_scaled_mm", scaled_mm)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_library_multiplies_what_was_quantised(name: str, tmp_path: Path) -> None:
    graph = GRAPHS[name]()
    fixed = narrow(graph, Around())
    assert ("torch._scaled_mm(x, w.t()" if name.startswith("float8") else "torch._int_mm(x, w.t()") in fixed.source
    faults = checked_on_cpu(fixed, graph, tmp_path)
    assert faults == {"8 bits": []}


def test_what_was_dequantised_is_left_out_where_its_own_calls_alone_read_it(tmp_path: Path) -> None:
    b = GraphBuilder("lasting")
    x, w = b.input("x", (ROWS, WIDTH), "int8"), b.input("w", (COLUMNS, WIDTH), "int8")
    scale = b.input("scale", (COLUMNS, 1), HALF)
    wide = widened(b, x, 0.125)
    graph = b.done(wide, b.call("aten::linear", wide, widened(b, w, scale)))
    fixed = narrow(graph, Around(unread=graph.live[:1]))
    assert "return (None, found,)" in fixed.source
    assert checked_on_cpu(fixed, graph, tmp_path) == {"8 bits": []}
    with pytest.raises(NoFixedForm, match="read elsewhere too"):
        narrow(graph, Around())


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("float8 by rows", "[:, None]", ".flip(0)[:, None]"),
        ("float8 by rows", ", bias=bias", ""),
        ("float8 turned", "as_tensor(other", "as_tensor(2 * other"),
        ("int8 by columns", " * (scale_w", " * 2 * (scale_w"),
        ("int8 turned", "* (other)", "* (2 * other)"),
    ],
)
def test_a_mistake_in_the_product_is_seen(name: str, old: str, new: str, tmp_path: Path) -> None:
    graph = GRAPHS[name]()
    fixed = narrow(graph, Around())
    assert any(checked_on_cpu(fixed, graph, tmp_path, (old, new)).values())


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (lambda: linear_of(FLOAT8, (1, WIDTH), ()), "change along what is summed"),
        (lambda: linear_of("int8", (), (), rows=16), "takes no 16 x 64 x 48"),
        (lambda: linear_of("uint8", (), ()), "no matrices of int8"),
    ],
)
def test_what_the_library_takes_not_is_refused(graph: Callable[[], Graph], why: str) -> None:
    with pytest.raises(NoFixedForm, match=why):
        narrow(graph(), Around())
