"""Labelled programs: which lines of a step are slow and why, said in the source before any finding was looked at.

A label is a comment behind the first line of the statement it is about:

    for user in users:  # cause: python_loop, main
    loss.item()         # cause: host_sync, stays       the program's fix leaves it as it is
    loss.backward()     # same: host_sync                the cause of that kind shows on this line too
    mask.sum()          # may: host_sync                 right if found, no loss if not
    nn.LSTM(...)        # near: recurrence_unfused       looks like one and is none: must not be found here

Kinds are plain words; `labelled.toml` says which rules' findings mean them. A label's lines are its statement's.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
    """A comment. kind: in plain words. lines: of the statement."""

    sort: str
    kind: str
    lines: range
    main: bool
    stays: bool


def labels_of(program: Labelled) -> list[Label]:
    """Read a program's labels off its source."""
    lines, first = inspect.getsourcelines(program.make)
    statements = [
        node
        for node in ast.walk(ast.parse(textwrap.dedent("".join(lines))))
        if isinstance(node, ast.stmt | ast.comprehension)
    ]
    found = []
    for number, line in enumerate(lines, 1):
        for sort, kind, rest in LABEL.findall(line):
            begin, end = _reach(statements, number)
            words = set(re.findall(r"\w+", rest))
            found.append(Label(sort, kind, range(first + begin - 1, first + end), "main" in words, "stays" in words))
    return found


def _reach(statements: Sequence[Any], number: int) -> tuple[int, int]:
    """Return the lines of the innermost statement that begins on a line, or else holds it."""
    own = [(node.lineno, node.end_lineno) for node in statements if isinstance(node, ast.stmt)]
    begins = [(begin, end) for begin, end in own if begin == number]
    holds = [(begin, end) for begin, end in own if begin <= number <= end]
    return min(begins or holds, key=lambda each: each[1] - each[0])


def held_out(programs: Sequence[Labelled]) -> frozenset[str]:
    """Return the ten that no detector may be built with: by a hash of the name, as many of each family as can be."""

    def key(program: Labelled) -> str:
        return hashlib.sha256(program.name.encode()).hexdigest()

    ranked: dict[str, list[Labelled]] = {}
    for program in sorted(programs, key=key):
        ranked.setdefault(program.family, []).append(program)
    rounds = [(place, key(program), program.name) for each in ranked.values() for place, program in enumerate(each)]
    return frozenset(name for _, _, name in sorted(rounds)[:HELD_OUT])
