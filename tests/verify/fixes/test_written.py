"""Calls of a recorded step as lines of a function."""

from __future__ import annotations

import ast

from tracemine.codegen import GraphBuilder
from tracemine.verify.fixes.written import line


def test_a_call_that_gives_nothing_is_a_line_of_its_own() -> None:
    b = GraphBuilder("lists")
    x, y = b.input("x", (4,), "float32"), b.input("y", (4,), "float32")
    b.call("aten::_foreach_add_.List", [x], [y], alpha=-0.1)
    graph = b.done()
    written = line(graph, 0, {0: "x", 1: "y"})
    assert isinstance(ast.parse(written.strip()).body[0], ast.Expr)
    assert written.startswith("    aten._foreach_add_.List([x], [y]")
