"""The examples in docstrings are run."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import tracemine

MODULES = sorted(module.name for module in pkgutil.walk_packages(tracemine.__path__, "tracemine."))


@pytest.mark.parametrize("name", MODULES)
def test_every_example_holds(name: str) -> None:
    if name.startswith(
        ("tracemine.calibrate.", "tracemine.codegen.triton.", "tracemine.validate", "tracemine.verify.")
    ):
        pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')
    if name == "tracemine.agents.server":
        pytest.importorskip("mcp_types", reason='the SDK is not installed: pip install ".[mcp]"')
    assert doctest.testmod(import_module(name)).failed == 0
