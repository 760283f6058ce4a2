"""The table of threats in this package's docstring names tests that are there."""

from __future__ import annotations

import ast
import re

import tests.attack
from tests.attack.harness import ROOT

_ROW = re.compile(r"^\| (?P<threat>[^|]+) \| (?P<file>[\w/]+): (?P<test>\w+) \|$", re.MULTILINE)


def test_each_threat_is_held_by_a_test_that_is_there() -> None:
    text = tests.attack.__doc__ or ""
    rows = list(_ROW.finditer(text))
    assert len(rows) == text.count("\n| ") - 1 > 20, "a row is no row"
    for row in rows:
        tree = ast.parse((ROOT / f"tests/{row['file']}.py").read_text("utf-8"))
        assert f"test_{row['test']}" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, row[0]


def test_no_two_threats_are_held_by_one_test() -> None:
    named = [(row["file"], row["test"]) for row in _ROW.finditer(tests.attack.__doc__ or "")]
    assert len(named) == len(set(named))
