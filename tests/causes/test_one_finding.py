"""One finding is followed from its rule to its verdict in twelve files, as docs/internals/pipeline.md lists them."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tracemine.causes.cause import Cause

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "internals" / "pipeline.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^\d+\. `([^`]+)`: `(\w+)`", PAGE, re.M)
BEGIN = {"tracemine/pipeline.py", "tracemine/verify/pipeline.py"}  # what the commands call


def module(path: str) -> ModuleType:
    return import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))


def reached(known: ModuleType) -> set[str]:
    """Modules that a reader is led to from one: those of what it imports, and those that a cause names."""
    causes = [each for each in vars(known).values() if isinstance(each, Cause)]
    made = [getattr(cause.fix, "made", None) for cause in causes]
    brought = [*made, *(value for cause in causes for value in (cause.estimate, *cause.savings.values()))]
    return {getattr(value, "__module__", "") for value in (*vars(known).values(), *brought)}


def test_they_are_twelve_at_most_and_have_what_the_page_names() -> None:
    assert 2 < len(STEPS) <= 12
    assert len(STEPS) == len(re.findall(r"^\d+\. ", PAGE, re.M))
    for path, name in STEPS:
        assert re.search(rf"^(def |\[*){name}\b", (ROOT / path).read_text("utf-8"), re.M), (path, name)


def test_each_is_found_from_those_before_it() -> None:
    pytest.importorskip("torch")
    rule, *others = STEPS
    room, known = f"tracemine/causes/{Path(rule[0]).parent.name}/", set[str]()
    assert any(path == f"{room}__init__.py" for path, _ in others)
    for path, _ in others:
        found = module(path)
        assert path in BEGIN or path == f"{room}__init__.py" or found.__name__ in known, path
        known |= reached(found)
