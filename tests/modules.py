"""Modules of tracemine, each parsed once for all tests of a process that look at its nodes."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module, the module first, in no order."""
    return tuple(ast.walk(ast.parse(path.read_text("utf-8"))))
