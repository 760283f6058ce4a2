"""Regular expressions that are compiled late: start-up compiles none, each is one, and all act as compiled ones."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from copy import copy
from pathlib import Path

import pytest

from tracemine.patterns import deferred

PACKAGE = Path(__file__).parents[1] / "tracemine"


def patterns(source: str) -> Iterator[str]:
    """Yield regular expressions that a module defers."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "deferred":
            text = node.args[0]
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield text.value


def test_each_is_a_regular_expression() -> None:
    sources = (path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    found = [one for source in sources if "deferred(" in source for one in patterns(source)]
    for one in found:
        re.compile(one)
    assert len(found) > 100


def test_it_is_compiled_where_it_is_first_used() -> None:
    wrong = deferred("(")
    with pytest.raises(re.error):
        wrong.search("(")


def test_it_acts_as_a_compiled_one() -> None:
    one = deferred(r"^A(\d)", re.IGNORECASE)
    assert (one.flags & re.IGNORECASE, one.groups, one.pattern) == (re.IGNORECASE, 1, r"^A(\d)")
    found = copy(one).match("a1")
    assert found is not None and found[1] == "1"
    assert one.search is one.search  # kept
    assert not hasattr(one, "no_such_thing")
