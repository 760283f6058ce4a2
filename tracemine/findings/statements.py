"""The one statement of a function that calls what a finding is about, where the program's source is at hand.

Profilers record where a function begins. The source is a stranger's text: it is parsed, and never run. What several
statements of a function may call, or none, stays as it was recorded.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from tracemine.errors import TracemineError
from tracemine.files.reading import path_in, read_file
from tracemine.findings.record import Finding, Scan, Source
from tracemine.ops import lookup
from tracemine.tables import table_beside

_MOST_BYTES: Final = 1 << 21
# What neither torch's operators nor Python's builtins name, and launches nothing of another kind.
_HARMLESS: Final = frozenset(
    [
        *("half", "cuda", "cpu", "numpy", "tolist", "bfloat16", "double", "size", "dim", "numel", "item", "type"),
        *("append", "extend", "items", "keys", "values", "pop", "parameters"),
    ]
)
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_LOOPS: Final = (ast.For, ast.While, ast.AsyncFor, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Classes of operators that run no operator of another kind, but for copies.
_ALONE: Final = frozenset({"pointwise", "reduction", "view", "copy", "gemm"})
_COPIES: Final = frozenset({"copy", "_to_copy", "to", "clone", "contiguous"})
_COPYING_VIEWS: Final = frozenset({"reshape", "reshape_as", "flatten"})
_TABLE = table_beside(__file__, "statements.toml")
# What operators are written as: names that are called (statements.toml), and signs.
_CALLED: Final[Mapping[str, Sequence[str]]] = _TABLE["called"]
_ASKED: Final = frozenset(
    {"_local_scalar_dense", "item", "is_nonzero"}
)  # by `if` and `while` too, of what a method gave
_TELL: Final = frozenset({"print", "str", "repr", "format"})
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
        leads = _leads(finding, at, waits)
        body = _function(parsed(source.file), source) if source.begins and leads is not None else None
        told.append(source if body is None or leads is None else replace(source, statement=_statement(body, leads)))
    return replace(finding, source=tuple(told))


def _leads(finding: Finding, at: int, waits: bool) -> Callable[[ast.AST], bool] | None:
    """Return what the statement of a frame has in it; None: several may be it, or what came late is not slow itself."""
    if at:
        return _calls((finding.source[at - 1].function,))
    if finding.loop is not None and finding.loop.source == finding.source[at] and not waits:
        return _is_loop
    return _operators(finding.ops[0]) if len(set(finding.ops)) == 1 and (finding.on_gpu or waits) else None


def _statement(body: _Function, leads: Callable[[ast.AST], bool]) -> int | None:
    """Return the line of the one statement that leads on; None: there are several, or it runs wherever it is taken."""
    nodes = [(node, line) for node, line in _statements(body) if leads(node)]
    lines = {line for _, line in nodes}
    runs_later = any(isinstance(node, ast.GeneratorExp) for node, _ in nodes)
    return lines.pop() if len(lines) == 1 and not runs_later else None


def _parsed(file: str, folder: Path) -> ast.Module | None:
    """Return the source of a recorded file that lies in a folder, by as much of its path as is there."""
    name = path_in(folder, file) if file.endswith(".py") else None
    try:
        if name is None or not (folder / name).resolve().is_relative_to(folder.resolve()):
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a stranger's escapes
            return ast.parse(read_file(folder / name, _MOST_BYTES))
    except (TracemineError, OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _function(module: ast.Module | None, source: Source) -> _Function | None:
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


def _statements(function: _Function) -> Iterator[tuple[ast.AST, int]]:
    """Yield what a function's own code does, with the line that it begins at; functions within it have their own."""
    left: list[ast.AST] = [*function.body]
    while left:
        node = left.pop()
        if isinstance(node, (_Function, ast.Lambda, ast.ClassDef)):
            continue
        if isinstance(node, (ast.expr, ast.stmt)):
            yield node, node.lineno
        left += ast.iter_child_nodes(node)


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _unknown(node: ast.AST, op: str) -> bool:
    """Return whether a node calls what may be anything: no method or function that torch or Python has.

    Nor is one known that torch has: one that is made of several operators, or an object of the user's with its name.
    """
    if not isinstance(node, ast.Call) or _is_own(node.func):
        return isinstance(node, ast.Call)
    name = _name(node.func)
    operator = lookup(f"aten::{name}")
    if operator is None:
        return not (hasattr(builtins, name) or name in _HARMLESS)
    copies = operator.op_class in ("copy", "gemm") or name in _COPYING_VIEWS
    return operator.op_class not in _ALONE or (op in _COPIES and copies)


def _is_own(called: ast.expr) -> bool:
    """Return whether an attribute of `self` is called: a module, as often as not."""
    inner = called
    while isinstance(inner, ast.Attribute):
        inner = inner.value
    return inner is not called and isinstance(inner, ast.Name) and inner.id == "self"


def _is_loop(node: ast.AST) -> bool:
    return isinstance(node, _LOOPS)


def _calls(names: Sequence[str]) -> Callable[[ast.AST], bool]:
    """Return whether a node calls one of these functions, or a method of that name."""
    plain = {name.rpartition(".")[2] for name in names}

    def calls(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and _name(node.func) in plain

    return calls


def _tells(node: ast.AST) -> bool:
    """Return whether a node makes text of a value, which is fetched for it."""
    if isinstance(node, ast.Call):
        told = [each for each in node.args if not isinstance(each, (ast.Constant, ast.JoinedStr))]
        return bool(told) and _name(node.func) in _TELL
    return isinstance(node, ast.FormattedValue) and not isinstance(node.value, ast.Constant)


def _operators(op: str) -> Callable[[ast.AST], bool]:
    """Return whether a node may call an operator; what calls an object, or a function of the user's, may."""
    plain = op.rpartition("::")[2].rstrip("_")
    signs, asks = _SIGNS.get(plain, ()), plain in _ASKED
    called = _calls((plain, f"{plain}_", *_CALLED.get(plain, ())))

    def does(node: ast.AST) -> bool:
        if asks and _tells(node):
            return True
        if asks and isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            return any(
                isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) for each in ast.walk(node.test)
            )
        own = (
            (node.op,) if isinstance(node, (ast.BinOp, ast.AugAssign, ast.UnaryOp))
            else node.ops if isinstance(node, ast.Compare) else (node,) if isinstance(node, ast.Subscript) else ()
        )  # fmt: skip
        return called(node) or any(isinstance(each, signs) for each in own) or (not asks and _unknown(node, plain))

    return does
