"""A name that Python 3.12 mixes up: a comprehension's variable, and a global in another one of the same function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.modules import nodes

ROOT = Path(__file__).parents[1] / "tracemine"
_INLINED = (ast.ListComp, ast.SetComp, ast.DictComp)  # into their function, not so generators
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.GeneratorExp)


class Names(ast.NodeVisitor):
    """The names of one function: its own, and those of the comprehensions in it. What has a scope is left out."""

    def __init__(self, function: ast.AST, named: bool = True) -> None:
        self.own: set[str] = set()
        self.variables: set[str] = set()
        self.others: set[str] = set()
        self.within: list[set[str]] = []  # variables of the comprehensions around
        for node in ast.iter_child_nodes(function):
            self.visit(node)
        if named:
            self.own |= {node.target.id for node in ast.walk(function) if isinstance(node, ast.NamedExpr)}

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, _INLINED):
            first, *rest = node.generators
            self.visit(first.iter)  # stands outside
            targets = (n for g in node.generators for n in ast.walk(g.target))
            self.within.append({n.id for n in targets if isinstance(n, ast.Name)})
            self.variables |= self.within[-1]
            elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            for inner in (*elements, *first.ifs, *(each for g in rest for each in (g.iter, *g.ifs))):
                self.visit(inner)
            self.within.pop()
        elif isinstance(node, (ast.Name, ast.arg)):
            name = node.id if isinstance(node, ast.Name) else node.arg
            if not self.within:
                self.own.add(name)
            elif not any(name in variables for variables in self.within):
                self.others.add(name)
        elif not isinstance(node, (*_SCOPES, ast.ClassDef)):
            self.generic_visit(node)


def mixed_up(module: Sequence[ast.AST]) -> Iterator[str]:
    """Names that are mixed up, by line. Where the function itself has the name, Python tells the two apart."""
    named = any(isinstance(node, ast.NamedExpr) for node in module)
    lines = [node.lineno for node in module if isinstance(node, _INLINED)]
    for function in module:
        if isinstance(function, _SCOPES) and any(function.lineno <= at <= (function.end_lineno or at) for at in lines):
            names = Names(function, named)
            yield from (f"{function.lineno}: {name}" for name in sorted(names.variables & names.others - names.own))


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("return {number for number in s}, {k: number(k) for k in s}", ["1: number"]),
        ("return [number(k) for k in [number for number in s]]", ["1: number"]),
        ("return [[number for number in [x]] for x in s], [number(k) for k in s]", ["1: number"]),
        ("return {number for number in s}, {k: number(k) for k in s}, number(0)", []),
        ("return list(number for number in s), [number(k) for k in s]", []),
        ("return [value for value in s], [number(k) for k in s]", []),
        ("return [number for number in s if number]", []),
        ("return [k for k in s if (number := k)], [number for number in s]", []),
    ],
)
def test_the_pattern_is_found_where_names_are_mixed_up_and_nowhere_else(body: str, found: list[str]) -> None:
    assert list(mixed_up([*ast.walk(ast.parse(f"def f(s):\n    {body}\n"))])) == found


def test_no_variable_of_a_comprehension_is_a_global_in_another_of_its_function() -> None:
    found = {path.name: names for path in sorted(ROOT.rglob("*.py")) if (names := list(mixed_up(nodes(path))))}
    assert found == {}
