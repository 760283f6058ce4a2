"""Why a largest number that passes over NaN changes no result: what is made of it is NaN by another number, too.

So with a row's largest less its smallest number: either is NaN where the row holds one. That both look at the same
numbers is read off the text: what they are made of is the same, down to the loads, but for which end is sought.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

_KERNEL = re.compile(r"def (\w+)\(")


class _Otherwise(Exception):
    """A value is something else than the largest or smallest of numbers."""


def nan_comes_otherwise(lines: Sequence[str], at: int) -> bool:
    """Whether all that is made of a line's number takes another that is NaN where this one should be."""
    return _beside(lines, at, _said(lines[at])[0])


def _beside(lines: Sequence[str], at: int, name: str) -> bool:
    end = next((k for k in range(at, len(lines)) if not lines[k].startswith("    ")), len(lines))
    uses = [k for k in range(at + 1, end) if re.search(rf"\b{name}\b", _plain(lines[k]))]
    return bool(uses) and all(_used_beside(lines, k, name) for k in uses)


def _used_beside(lines: Sequence[str], at: int, name: str) -> bool:
    stored = re.match(rf"\s*tl\.store\((scratch\d+)_ptr \+ [^,]+, {name}, mask=\w+\)$", _plain(lines[at]))
    if stored is not None:
        loads = [k for k, line in enumerate(lines) if f"tl.load({stored[1]}_ptr " in line]
        return all(_beside(lines, k, _said(lines[k])[0]) for k in loads)
    target, said = _said(lines[at])
    if re.fullmatch(rf"-?_row_max\((-?tl\.where\(column_mask, )?{name}(, -?float\('inf'\)\))?\)", said):
        return _beside(lines, at, target)
    both = re.fullmatch(r"(\w+) [-+*/] (\w+)", said)  # NaN if either is
    if both is None or both[1] == both[2]:
        return False
    try:
        return _made_of(lines, at, both[1]) == _made_of(lines, at, both[2])
    except _Otherwise:
        return False


def _plain(line: str) -> str:
    return line.partition("  #")[0]


def _said(line: str) -> tuple[str, str]:
    """The name that a line gives, and what it says that it is."""
    name, _, said = _plain(line).strip().partition(" = ")
    return name, said


def _made_of(lines: Sequence[str], at: int, name: str, inside: tuple[str, ...] = ()) -> str:
    """What a value is the largest or smallest of, written alike for both."""
    begin = next(k for k in range(at, -1, -1) if _KERNEL.match(lines[k]))
    said = [said for given, said in map(_said, lines[begin:at]) if given == name]
    if name in inside:
        return "itself"
    if not said:
        raise _Otherwise
    return " and ".join(_form(lines, at, ast.parse(each, mode="eval").body, (*inside, name)) for each in said)


def _form(lines: Sequence[str], at: int, tree: ast.expr, inside: tuple[str, ...]) -> str:
    text = ast.unparse(tree)
    if isinstance(tree, ast.Name):
        return _made_of(lines, at, tree.id, inside)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return _form(lines, at, tree.operand, inside)
    if text == "float('inf')":
        return "infinity"
    if text.endswith(".to(tl.float32)"):
        text = text.removesuffix(".to(tl.float32)")
        tree = ast.parse(text, mode="eval").body
    if not isinstance(tree, ast.Call):
        raise _Otherwise
    name, first, rest = ast.unparse(tree.func), tree.args[0], tree.args[1:]
    if name == "tl.load":
        return _loaded(lines, at, text)
    if name in ("_row_max", "_row_min"):
        return f"row of {_form(lines, at, first, inside)}"
    if name in ("tl.maximum", "tl.minimum") and "propagate_nan=tl.PropagateNan.ALL" in text:
        return f"({_form(lines, at, first, inside)}, {_form(lines, at, rest[0], inside)})"
    if name == "tl.where":
        one, other = (_form(lines, at, each, inside) for each in rest)
        return f"{ast.unparse(first)} ? {one} : {other}"
    if name == "tl.full":
        return f"{ast.unparse(first)} of {_form(lines, at, rest[0], inside)}"
    raise _Otherwise


def _loaded(lines: Sequence[str], at: int, text: str) -> str:
    """An input's numbers are themselves, in this kernel; partial results are what was stored."""
    scratch = re.match(r"tl\.load\((scratch\d+)_ptr ", text)
    if scratch is None:
        begin = next(k for k in range(at, -1, -1) if _KERNEL.match(lines[k]))
        return f"{lines[begin]} {text}"
    stores = [k for k, line in enumerate(lines) if f"tl.store({scratch[1]}_ptr " in line]
    stored = re.search(r", (\w+), mask=\w+\)$", _plain(lines[stores[0]])) if len(stores) == 1 else None
    if stored is None:
        raise _Otherwise
    ways = re.sub(rf"\b{scratch[1]}_", "scratch_", f"{text} {_plain(lines[stores[0]])}").replace(stored[1], "stored")
    return f"{ways} {_made_of(lines, stores[0], stored[1])}"
