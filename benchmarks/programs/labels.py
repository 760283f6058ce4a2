"""Labelled programs: which lines of a step are slow and why, said in the source before any finding was looked at.

A label is a comment behind the first line of the statement it is about:

    for user in users:  # cause: python_loop, main
    loss.item()         # cause: host_sync, stays       the program's fix leaves it as it is
    loss.backward()     # same: host_sync                the cause of that kind shows on this line too
    mask.sum()          # may: host_sync                 right if found, no loss if not
    nn.LSTM(...)        # near: recurrence_unfused       looks like one and is none: must not be found here

Kinds are plain words; `labelled.toml` says which rules' findings mean them. A label's lines are its statement's.

Profilers record where a function begins, not the line that runs in it. A frame that names a line means a label whose
statement has that line. One that names where a function begins means the labels of that function's own statements: all
of them where the frame is the innermost one of the program, else those that call the function of the next inner frame.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

LABEL = re.compile(r"#\s*(cause|same|may|near):\s*(\w+)((?:,\s*\w+)*)")
HELD_OUT = 10
WHOLE = ""  # as an expected failure: none


@dataclass(frozen=True)
class Built:
    """A step, and tensors that it changes: with what it gives, they are what two variants are compared by."""

    step: Callable[[], Any]
    tensors: Sequence[Any] = ()


@dataclass(frozen=True)
class Expected:
    """Why a step would not run as a graph; "" where it would.

    capture: all of the step as one torch.cuda.graph. compiled: the function that its user would compile, as one graph
    without a break. graphs: that function's CUDA graphs, of reduce-overhead and max-autotune.
    """

    capture: str = WHOLE
    compiled: str = WHOLE
    graphs: str = WHOLE


@dataclass(frozen=True)
class Labelled:
    """A program. `make(wrap, fixed, dtype, **sizes)` builds it on the default device; `fixed` is its best one fix."""

    make: Callable[..., Built]
    family: str
    small: Mapping[str, Any]  # sizes at which a CPU runs it at once
    expected: Expected = field(default_factory=Expected)
    training: bool = False
    tolerance: float = 2e-2  # of outputs and gradients in the program's own dtype, of the largest of the original's

    @property
    def name(self) -> str:
        return self.make.__name__


@dataclass(frozen=True)
class Label:
    """A comment. kind: in plain words. lines: of the statement. within: the line where its function begins. calls:
    names of what the statement calls.
    """

    sort: str
    kind: str
    lines: range
    main: bool
    stays: bool
    within: int = 0
    calls: frozenset[str] = frozenset()


class Frame(Protocol):
    """What a finding says of a place. begins: the line is where the function begins."""

    line: int
    function: str
    begins: bool


def reached(label: Label, frames: Sequence[Frame]) -> bool:
    """Return whether frames of a label's program, innermost first, lead to its statement."""
    inner: Frame | None = None
    for frame in frames:
        if frame.line in label.lines and not (frame.begins and frame.line == label.within):
            return True
        if frame.begins and frame.line == label.within and (inner is None or called(inner.function) in label.calls):
            return True
        inner = frame
    return False


def called(function: str) -> str:
    """Return a function's name without what it is defined in."""
    return function.rpartition(".")[2]


def labels_of(program: Labelled) -> list[Label]:
    """Read a program's labels off its source."""
    lines, first = inspect.getsourcelines(program.make)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    names, found = _names(tree), []
    for number, line in enumerate(lines, 1):
        for sort, kind, rest in LABEL.findall(line):
            statement = _innermost(tree, number, ast.stmt)
            begin, end = statement.lineno, statement.end_lineno
            function = _innermost(tree, begin, ast.FunctionDef)
            words = set(re.findall(r"\w+", rest))
            found.append(
                Label(
                    sort,
                    kind,
                    range(first + begin - 1, first + end),
                    main="main" in words,
                    stays="stays" in words,
                    within=first + min(each.lineno for each in (function, *function.decorator_list)) - 1,
                    calls=frozenset(each for call in _calls(statement) for each in names.get(call, (call,))),
                )
            )
    return found


def _innermost(tree: ast.AST, number: int, kind: type[Any]) -> Any:
    """Return the innermost node of a kind that begins on a line, or else holds it."""
    every = [node for node in ast.walk(tree) if isinstance(node, kind) and node.lineno <= number <= node.end_lineno]
    begins = [node for node in every if node.lineno == number and kind is ast.stmt]
    return min(begins or every, key=lambda node: node.end_lineno - node.lineno)


def _calls(node: ast.AST) -> set[str]:
    """Return the names that are called by themselves, of `tower.step(...)` the last, and of `map(pooled, ...)` both."""
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    called = [each.func for each in calls]
    called += [each.args[0] for each in calls if isinstance(each.func, ast.Name) and each.func.id == "map"]
    return {
        call.id if isinstance(call, ast.Name) else call.attr
        for call in called
        if hasattr(call, "id") or hasattr(call, "attr")
    }


def _names(tree: ast.AST) -> dict[str, set[str]]:
    """Return what a name that stands for `wrap(...)`, a lambda, or one of two functions may be: the functions that are
    named in its value.

    What a loop goes over may be modules, which call `forward`.
    """
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension):
            targets = [each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)]
            found |= {name: {name, "forward"} for name in targets}
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.IfExp):
            either = (node.value.body, node.value.orelse)
            found[node.targets[0].id] = {getattr(each, "attr", getattr(each, "id", "")) for each in either}
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Call):
            inside = list(ast.walk(node.value))
            if isinstance(node.value.func, ast.Name) and node.value.func.id == "wrap":
                lambdas = {"<lambda>" for each in inside if isinstance(each, ast.Lambda)}
                found[node.targets[0].id] = lambdas | {each.id for each in inside if isinstance(each, ast.Name)}
    return found


def held_out(programs: Sequence[Labelled]) -> frozenset[str]:
    """Return the ten that no detector may be built with: by a hash of the name, as many of each family as can be."""

    def key(program: Labelled) -> str:
        return hashlib.sha256(program.name.encode()).hexdigest()

    ranked: dict[str, list[Labelled]] = {}
    for program in sorted(programs, key=key):
        ranked.setdefault(program.family, []).append(program)
    rounds = [(place, key(program), program.name) for each in ranked.values() for place, program in enumerate(each)]
    return frozenset(name for _, _, name in sorted(rounds)[:HELD_OUT])
