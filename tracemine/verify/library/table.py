"""The table of library calls, `table.toml`, checked when it is read; the fields are explained there."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from functools import cache

import msgspec

from tracemine.tables import table_beside
from tracemine.verify.library.pattern import Pattern, parse


class Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pattern, the call that says the same, and how a user comes to make it, where that is otherwise."""

    pattern: str
    call: str
    shown: str | None = None


class Wrong(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mistake to plant in a call. unless: a text of calls that it does not change."""

    text: str
    becomes: str
    unless: str | None = None


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One replacement."""

    title: str
    scalars: tuple[str, ...]
    literals: tuple[str, ...]
    forms: tuple[Form, ...]
    where: Mapping[str, str] = {}
    through: bool = False
    roots: Mapping[str, str] = {}
    needs: tuple[str, ...] = ()
    positive: tuple[str, ...] = ()
    dense: bool = False
    instead: Mapping[str, str] = {}
    solve: Mapping[str, tuple[str, ...]] = {}
    otherwise: Mapping[str, float] = {}
    differs: Mapping[str, str] = {}
    assumes: Mapping[str, str] = {}
    gpu_only: str | None = None
    wrong: tuple[Wrong, ...] = ()

    def pattern(self, text: str) -> Pattern:
        """Return one of its patterns."""
        return Pattern(
            tree=parse(text),
            where={name: parse(part) for name, part in self.where.items()},
            scalars=frozenset(self.scalars),
            literals=frozenset(self.literals),
            through=self.through,
        )


@cache
def table() -> dict[str, Row]:
    """Return every row, by name.

    >>> "F.rms_norm" in table()["rms_norm"].forms[0].call
    True
    """
    return msgspec.convert(table_beside(__file__, "table.toml"), dict[str, Row])


def number(text: str, known: Mapping[str, float]) -> float:
    """Evaluate an expression of the table. Raises KeyError for a name that is not known, ArithmeticError and
    ValueError where there is no such number.

    >>> number("-lr / (1 - beta ** 2)", {"lr": 0.75, "beta": 0.5})
    -1.0
    """
    return _number(ast.parse(text, mode="eval").body, known)


_FUNCTIONS = {"sqrt": math.sqrt, "log": math.log}


def _number(tree: ast.expr, known: Mapping[str, float]) -> float:
    match tree:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name):
            return known[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand, known)
        case ast.Call(func=ast.Name(id=name), args=[argument]):
            return _FUNCTIONS[name](_number(argument, known))
        case ast.BinOp(left=left, op=op, right=right):
            return _sign(op, _number(left, known), _number(right, known))
    raise ValueError(ast.dump(tree))


def _sign(op: ast.operator, a: float, b: float) -> float:
    match op:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
        case ast.Div():
            return a / b
        case ast.Pow():
            return float(a**b)
    raise ValueError(ast.dump(op))
