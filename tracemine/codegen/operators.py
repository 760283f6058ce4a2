"""The closed table of what operators compute: `operators.toml`, checked when it is read.

Everything but the printer knows an expression by its name. A name may join others: `ge & lt` compares twice, each time
its own arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Final

import msgspec

from tracemine.tables import table_beside

_JOINED = {" & ": "({0})", " | ": "({0})", " + ": "{0}"}  # how an expression is joined to another
_ARGUMENT = re.compile(r"\{(\d+)\}")


class Expression(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How an operation is spelled, and what is known of it: the fields are explained where the rows stand."""

    expr: str
    exact: str | None = None
    brief: str | None = None
    ulp: int = 0
    zero_of: tuple[int, ...] = ()
    expensive: bool = False

    @property
    def arity(self) -> int:
        """Return how many arguments it takes."""
        return 1 + max(map(int, _ARGUMENT.findall(self.expr)), default=-1)


class PointwiseRow(Expression, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One row of the table: an operator's arguments, and its expression or the name of another's."""

    ops: tuple[str, ...]
    args: tuple[str, ...]
    name: str | None = None
    same: str | None = None
    expr: str = ""
    compute: str = "common"
    types: tuple[str, ...] = ()
    defaults: Mapping[str, float | int] = {}
    unless: str | None = None
    short: str | None = None
    gives: str | None = None

    @property
    def operation(self) -> str:
        """Return the name of its expression."""
        return self.same or self.name or self.ops[0]


class OperatorTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of `operators.toml`."""

    pointwise: tuple[PointwiseRow, ...]
    expressions: Mapping[str, Expression]
    powers: Mapping[str, str]
    reductions: Mapping[str, Mapping[str, str]]
    helpers: Mapping[str, str]
    foreach: Mapping[str, tuple[str, ...]]  # what an operator over lists does to each member, and its arguments


ONLINE: Final = table_beside(__file__, "online_reductions.toml")


@cache
def table() -> OperatorTable:
    """Return the table, read once."""
    return msgspec.convert(table_beside(__file__, "operators.toml"), OperatorTable)


@cache
def pointwise_rows() -> Mapping[str, PointwiseRow]:
    """Return each pointwise operator's row, by its name without namespace.

    >>> pointwise_rows()["silu"].expr
    '_share({0}, 1.0 + _exp(-{0}))'
    """
    return {name: row for row in table().pointwise for name in row.ops}


@cache
def _expressions() -> dict[str, Expression]:
    return {row.operation: row for row in table().pointwise if row.expr} | dict(table().expressions)


@cache
def expression(name: str) -> Expression:
    """Return an expression by its name. Raises KeyError where the table has none.

    >>> expression("add").expr, expression("ge & lt").expr
    ('{0} + {1}', '({0} >= {1}) & ({2} < {3})')
    """
    for sign, beside in _JOINED.items():
        if sign in name:
            parts = [expression(part) for part in name.split(sign)]
            ends = [*accumulate(part.arity for part in parts)]
            own = [[f"{{{k}}}" for k in range(end - part.arity, end)] for part, end in zip(parts, ends, strict=True)]
            texts = [beside.format(part.expr.format(*args)) for part, args in zip(parts, own, strict=True)]
            return Expression(expr=sign.join(texts))
    return _expressions()[name]


def spelled(name: str, args: Sequence[str], exact: bool = False, brief: bool = False) -> str:
    """Return an expression with its arguments filled in. exact: correctly rounded; brief: good enough for 16 bits.

    >>> spelled("div", ["x", "y"]), spelled("div", ["x", "y"], exact=True)
    ('x / y', 'tl.div_rn(x, y)')
    """
    row = expression(name)
    text = row.exact if exact else row.brief if brief else None
    return (text or row.expr).format(*args)


def ulp_of(names: Iterable[str]) -> float:
    """Return by how much expressions may be off in all, in units in the last place of float32; 0 where each is exact.

    >>> ulp_of(["add"]), ulp_of(["add", "tanh"]) > 0
    (0.0, True)
    """
    return float(sum(expression(name).ulp for name in names))
