"""Read lines of generated kernels: where one begins and ends, what its names are, what an expression is."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

LOADED = re.compile(r"tl\.load\((\w+)_ptr\b.*")


def begin_of(lines: Sequence[str], at: int) -> int:
    """Return where the kernel of a line begins."""
    return next(k for k in range(at, -1, -1) if lines[k].startswith("def "))


def end_of(lines: Sequence[str], at: int) -> int:
    """Return where the body that a line is of ends."""
    return next((k for k in range(at, len(lines)) if not lines[k].startswith("    ")), len(lines))


def kernel_of(lines: Sequence[str], at: int) -> tuple[int, int]:
    """Return where the kernel of a line begins and ends, its signature too."""
    end = next((k for k in range(at, len(lines)) if not lines[k].startswith(("    ", ")"))), len(lines))
    return begin_of(lines, at), end


def after(lines: Sequence[str], at: int) -> list[str]:
    """Return the lines of a kernel behind one of them, without what they say of their call."""
    return [plain(line) for line in lines[at + 1 : end_of(lines, at)]]


def made_of(lines: Sequence[str], at: int) -> dict[str, str]:
    """Return what each name of a line's kernel is, up to that line."""
    return {name: said for name, said in map(said_of, lines[begin_of(lines, at) : at]) if said}


def plain(line: str) -> str:
    """Return a line without its comment."""
    return line.partition("  #")[0]


def said_of(line: str) -> tuple[str, str]:
    """Return the name that a line gives, and what it says that it is."""
    name, _, said = plain(line).strip().partition(" = ")
    return name, said


def parsed(said: str) -> ast.expr | None:
    """Return an expression's tree; None where it is none."""
    try:
        return ast.parse(said, mode="eval").body
    except SyntaxError:
        return None
