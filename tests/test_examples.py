"""The examples in docstrings are run."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

PACKAGE = Path(__file__).parents[1] / "tracemine"
# Each module, and whether an example stands in it: doctest takes twenty milliseconds to find that none does.
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): ">>>"
    in path.read_text(encoding="utf-8")
    for path in sorted(PACKAGE.rglob("*.py"))
}


def loaded(name: str) -> ModuleType:
    """A module; where what it needs is not installed, the test is skipped."""
    if name.startswith(
        ("tracemine.calibrate.", "tracemine.codegen.triton.", "tracemine.validate", "tracemine.verify.")
    ):
        pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')
    if name == "tracemine.agents.server":
        pytest.importorskip("mcp_types", reason='the SDK is not installed: pip install ".[mcp]"')
    return import_module(name)


@pytest.mark.parametrize("name", [name for name, shows in MODULES.items() if shows])
def test_every_example_holds(name: str) -> None:
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder().find(loaded(name)):
        if test.examples:  # for one without, too, a runner asks for every file that Python keeps lines of
            runner.run(test)
    assert runner.failures == 0
    assert runner.tries


def test_every_other_module_can_be_loaded() -> None:
    names = [name for name, shows in MODULES.items() if not shows]
    assert len(names) > 400
    for name in names:
        loaded(name)
