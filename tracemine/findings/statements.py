"""The one statement of a function that calls what a finding is about, where the program's source is at hand.

Profilers record where a function begins. The source is a stranger's text: it is parsed, and never run. What several
statements of a function may call, or none, stays as it was recorded.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec.structs import replace

from tracemine.findings.record import Finding, Scan, Source
from tracemine.ops import lookup

_MOST_BYTES: Final = 1 << 21
# What neither torch's operators nor Python's builtins name, and launches nothing of another kind.
_HARMLESS: Final = frozenset(
    [
        *("half", "cuda", "cpu", "numpy", "tolist", "bfloat16", "double", "size", "dim", "numel", "item", "type"),
        *("append", "extend", "get", "items", "keys", "values", "pop", "update", "backward", "step", "parameters"),
    ]
)
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_LOOPS: Final = (ast.For, ast.While, ast.AsyncFor, ast.ListComp)
# What operators are written as: names that are called, and signs.
_CALLED: Final[Mapping[str, tuple[str, ...]]] = {
    "_local_scalar_dense": ("item", "float", "int", "bool", "tolist"),
    "item": ("item", "float", "int", "bool", "tolist"),
    "is_nonzero": ("bool",),
    "copy": (
        "copy_",
        "to",
        "cpu",
        "cuda",
        "numpy",
        "tolist",
        "float",
        "half",
        "bfloat16",
        "double",
        "type",
        "contiguous",
    ),
    "_to_copy": ("to", "cpu", "cuda", "numpy", "tolist", "float", "half", "bfloat16", "double", "type"),
    "to": ("to", "cpu", "cuda", "numpy", "tolist", "float", "half", "bfloat16", "double", "type"),
    "mm": ("matmul", "linear", "einsum"),
    "addmm": ("linear", "matmul"),
    "bmm": ("matmul", "einsum", "baddbmm"),
    "cat": ("concat", "concatenate", "hstack", "vstack"),
    "nonzero": ("where", "argwhere"),
    "_unique2": ("unique",),
    "_softmax": ("softmax", "softmin"),
    "native_layer_norm": ("layer_norm",),
}
_ASKED: Final = frozenset(
    {"_local_scalar_dense", "item", "is_nonzero"}
)  # by `if` and `while` too, of what a method gave
_SIGNS: Final[Mapping[str, tuple[type[ast.AST], ...]]] = {
    "add": (ast.Add,), "sub": (ast.Sub,), "rsub": (ast.Sub,), "mul": (ast.Mult,), "div": (ast.Div,), "pow": (ast.Pow,),
    "mm": (ast.MatMult,), "bmm": (ast.MatMult,), "addmm": (ast.MatMult,), "matmul": (ast.MatMult,), "neg": (ast.USub,),
    "bitwise_and": (ast.BitAnd,), "bitwise_or": (ast.BitOr,), "bitwise_not": (ast.Invert,), "lt": (ast.Lt,),
    "le": (ast.LtE,), "gt": (ast.Gt,), "ge": (ast.GtE,), "eq": (ast.Eq,), "ne": (ast.NotEq,),
    "copy": (ast.Subscript,), "nonzero": (ast.Subscript,),
    "index": (ast.Subscript,), "index_put": (ast.Subscript,), "_index_put_impl": (ast.Subscript,),
}  # fmt: skip


def with_statements(scan: Scan, folder: Path, waiting: Collection[str]) -> Scan:
    """Return a scan whose functions have the line of the one statement that leads on, by source in a folder.

    waiting: causes of idle time whose operators are the program's, not what was launched late.
    """
    parsed = cache(lambda file: _parsed(file, folder))
    return replace(scan, findings=tuple(_told(finding, parsed, finding.cause in waiting) for finding in scan.findings))


def _told(finding: Finding, parsed: Callable[[str], ast.Module | None], waits: bool) -> Finding:
    told: list[Source] = []
    for at, source in enumerate(finding.source):
        body = _function(parsed(source.file), source) if source.begins else None
        if body is None:
            told.append(source)
            continue
        if at:
            leads = _calls((finding.source[at - 1].function,))
        elif finding.loop is not None and finding.loop.source == source and not waits:
            leads = _is_loop
        elif len(set(finding.ops)) == 1 and (finding.on_gpu or waits):
            leads = _operators(finding.ops[0])
        else:  # several statements, or idle time, whose operators are what came late
            told.append(source)
            continue
        lines = {line for node, line in _statements(body) if leads(node)}
        told.append(replace(source, statement=lines.pop()) if len(lines) == 1 else source)
    return replace(finding, source=tuple(told))


def _parsed(file: str, folder: Path) -> ast.Module | None:
    """Return the source of a recorded file that lies in a folder, by as much of its path as is there."""
    parts = PurePosixPath(file.replace("\\", "/")).parts
    if not file.endswith(".py") or ".." in parts:
        return None
    for first in range(len(parts)):
        path = folder.joinpath(*(part for part in parts[first:] if part != "/"))
        try:
            if (
                path.is_file()
                and path.resolve().is_relative_to(folder.resolve())
                and path.stat().st_size <= _MOST_BYTES
            ):
                return ast.parse(path.read_bytes())
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            return None
    return None


def _function(module: ast.Module | None, source: Source) -> _Function | ast.Lambda | None:
    """Return the function that begins at a recorded line, under its recorded name."""
    name = source.function.rpartition(".")[2]
    for node in ast.walk(module) if module is not None else ():
        if (
            isinstance(node, _Function)
            and node.name == name
            and source.line in (node.lineno, *(each.lineno for each in node.decorator_list))
        ):
            return node
    return None


def _statements(function: _Function | ast.Lambda) -> Iterator[tuple[ast.AST, int]]:
    """Yield what a function's own code does, with the line that it begins at; functions within it have their own."""
    left: list[ast.AST] = [*function.body] if isinstance(function, _Function) else [function.body]
    while left:
        node = left.pop()
        if isinstance(node, (_Function, ast.Lambda, ast.ClassDef)):
            continue
        if isinstance(node, (ast.expr, ast.stmt)):
            yield node, node.lineno
        left += ast.iter_child_nodes(node)


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _unknown(node: ast.AST) -> bool:
    """Return whether a node calls what may be anything: no method or function that torch or Python has."""
    if not isinstance(node, ast.Call):
        return False
    name = _name(node.func)
    return not (hasattr(builtins, name) or name in _HARMLESS or lookup(f"aten::{name}") is not None)


def _is_loop(node: ast.AST) -> bool:
    return isinstance(node, _LOOPS)


def _calls(names: Sequence[str]) -> Callable[[ast.AST], bool]:
    """Return whether a node calls one of these functions, or a method of that name."""
    plain = {name.rpartition(".")[2] for name in names}

    def calls(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and _name(node.func) in plain

    return calls


def _operators(op: str) -> Callable[[ast.AST], bool]:
    """Return whether a node may call an operator; what calls an object, or a function of the user's, may."""
    plain = op.rpartition("::")[2].rstrip("_")
    signs, asks = _SIGNS.get(plain, ()), plain in _ASKED
    called = _calls((plain, f"{plain}_", *_CALLED.get(plain, ())))

    def does(node: ast.AST) -> bool:
        if asks and isinstance(node, (ast.If, ast.While, ast.IfExp)):
            return any(
                isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) for each in ast.walk(node.test)
            )
        own = (
            (node.op,) if isinstance(node, (ast.BinOp, ast.AugAssign, ast.UnaryOp))
            else node.ops if isinstance(node, ast.Compare) else (node,) if isinstance(node, ast.Subscript) else ()
        )  # fmt: skip
        return called(node) or any(isinstance(each, signs) for each in own) or (not asks and _unknown(node))

    return does
