"""What Inductor's kernels do, read off the code that it wrote: which only move data, which finish what another began.

The code is parsed, never run. A kernel goes by its name; a trace's kernels have the same.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

_KEEPS = {"where", "broadcast_to", "reshape", "to"}  # calls whose result is an element as it was loaded, or a filler


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel's source."""

    parameters: tuple[str, ...]
    reduces: bool
    moves: bool  # loads and stores elements as they are: a pad, a slice, a layout


@dataclass(slots=True)
class Code:
    """The kernels of some files. `finishing`: of the launches of each, the share that only finishes partial results."""

    kernels: dict[str, Kernel] = field(default_factory=dict)
    finishing: dict[str, float] = field(default_factory=dict)

    def moves(self, name: str) -> bool:
        """Whether the kernel does nothing but move data."""
        return name in self.kernels and self.kernels[name].moves


def read(files: Iterable[Path]) -> Code:
    """The kernels of files as Inductor writes them. Files of one program share no names of different kernels."""
    code = Code()
    launches: dict[str, list[bool]] = defaultdict(list)
    for path in files:
        tree = ast.parse(path.read_text("utf-8"))
        kernels = {name: _kernel(source) for name, source in _sources(tree)}
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and function.name == "call":
                for name, finishes in _launches(function, kernels):
                    launches[name].append(finishes)
        code.kernels |= kernels
    code.finishing = {name: sum(own) / len(own) for name, own in launches.items()}
    return code


def _sources(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) == "triton" and len(node.args) >= 2:
            name, source = node.args[:2]
            if isinstance(name, ast.Constant) and isinstance(source, ast.Constant):
                yield str(name.value), str(source.value)


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _kernel(source: str) -> Kernel:
    """What a kernel does.

    >>> _kernel("def k(in_ptr0, out_ptr0, xnumel):\\n  tmp0 = tl.load(in_ptr0)\\n  tl.store(out_ptr0, tmp0)").moves
    True
    >>> _kernel("def k(in_ptr0, out_ptr0, xnumel):\\n  tmp0 = tl.load(in_ptr0)\\n  tl.store(out_ptr0, -tmp0)").moves
    False
    """
    tree = ast.parse(source)
    function = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    types = {
        str(key.value): str(value.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(value, ast.Constant)
    }
    values = _Values(types)
    stored: list[tuple[str, str | None]] = []
    for node in _statements(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values.assign(node.targets[0].id, node.value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _called(node.value) == "store":
            address, value = node.value.args[:2]
            stored.append((types.get(_pointer(address), ""), values.as_loaded(value)))
    parameters = tuple(argument.arg for argument in function.args.args)
    reduces = "r0_numel" in parameters
    return Kernel(parameters, reduces, not reduces and bool(stored) and all(into == kind for into, kind in stored))


@dataclass(slots=True)
class _Values:
    """What is known of a kernel's names."""

    types: dict[str, str]  # of what each pointer points to
    kinds: dict[str, str] = field(default_factory=dict)  # of what is as it was loaded, the type it has in memory
    computed: set[str] = field(default_factory=set)  # what depends on anything loaded

    def assign(self, name: str, value: ast.expr) -> None:
        kind = self.as_loaded(value)
        if kind is not None:
            self.kinds[name] = kind
        if self._depends(value):
            self.computed.add(name)

    def as_loaded(self, value: ast.expr) -> str | None:
        """The type in memory of what the expression takes from there, if it does not compute with it."""
        if isinstance(value, ast.Name):
            return self.kinds.get(value.id)
        if not isinstance(value, ast.Call):
            return None
        called = _called(value)
        if called == "load":  # a computed address makes it a lookup
            return None if self._depends(value.args[0]) else self.types.get(_pointer(value.args[0]), "")
        if called not in _KEEPS:
            return None
        inner = [value.func.value] if called == "to" and isinstance(value.func, ast.Attribute) else value.args
        kinds = {self.as_loaded(each) for each in inner if self._depends(each)}
        return kinds.pop() if len(kinds) == 1 else None

    def _depends(self, value: ast.expr) -> bool:
        nodes = list(ast.walk(value))
        return any(isinstance(n, ast.Name) and n.id in self.computed for n in nodes) or any(
            isinstance(n, ast.Call) and _called(n) == "load" for n in nodes
        )


def _pointer(address: ast.expr) -> str:
    return next((n.id for n in ast.walk(address) if isinstance(n, ast.Name) and "ptr" in n.id), "")


@dataclass(slots=True)
class _Buffers:
    """Elements of each buffer, and rows of the reduction that wrote it: one result a row."""

    elements: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)


def _launches(function: ast.FunctionDef, kernels: dict[str, Kernel]) -> Iterator[tuple[str, bool]]:
    """The generated kernels in the order of their launches, and whether each only finishes partial results."""
    buffers = _Buffers()
    for node in _statements(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            _assigned(node.targets[0].id, node.value, buffers)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _called(node.value) == "run":
            call = node.value
            name = (
                call.func.value.id
                if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
                else ""
            )
            if name in kernels:
                yield name, _launched(kernels[name], call, buffers)


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
            yield from _statements(child)


def _assigned(name: str, value: ast.expr, buffers: _Buffers) -> None:
    if isinstance(value, ast.Name):
        for table in (buffers.elements, buffers.rows):
            if value.id in table:
                table[name] = table[value.id]
    elif isinstance(value, ast.Call) and _called(value) in ("empty_strided_cuda", "reinterpret_tensor"):
        shape = next((a for a in value.args if isinstance(a, ast.Tuple)), None)
        if shape is not None and all(isinstance(size, ast.Constant) for size in shape.elts):
            buffers.elements[name] = prod(int(ast.literal_eval(size)) for size in shape.elts)
        if _called(value) == "reinterpret_tensor" and isinstance(value.args[0], ast.Name):
            written = buffers.rows.get(value.args[0].id)
            if written is not None:
                buffers.rows[name] = written


def _launched(kernel: Kernel, call: ast.Call, buffers: _Buffers) -> bool:
    given = dict(zip(kernel.parameters, call.args, strict=False))
    rows, length = (_number(given.get(name)) for name in ("xnumel", "r0_numel"))
    names = {p: a.id if isinstance(a, ast.Name) else _inner(a) for p, a in given.items()}
    finishes = False
    if kernel.reduces and length > 1:
        full = [n for p, n in names.items() if "in" in p.split("_")[0] and buffers.elements.get(n) == rows * length]
        finishes = bool(full) and all(buffers.rows.get(n) == rows * length for n in full)
    for parameter, name in names.items():
        if parameter.startswith(("out_ptr", "in_out_ptr")):
            buffers.rows.pop(name, None)
            if kernel.reduces and buffers.elements.get(name) == rows:
                buffers.rows[name] = rows
    return finishes


def _inner(value: ast.expr) -> str:
    """The buffer that an argument is made of."""
    return next((n.id for n in ast.walk(value) if isinstance(n, ast.Name) and n.id.startswith(("buf", "arg"))), "")


def _number(value: ast.expr | None) -> int:
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, int) else 0
