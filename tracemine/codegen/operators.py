"""The closed table of what operators compute: `operators.toml`, checked when it is read."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources

import msgspec

# What dropout makes of a number, of whether it is kept, and of the share that is dropped.
DROPPED = "{0} * tl.where({1}, tl.where({2} < 1.0, 1.0 / (1.0 - {2}), 0.0), 0.0)"

QUOTIENT = "{0} / {1}"

# No product is made part of it: CUDA's own, which compilers leave as it is.
DIFFERENCE = "libdevice.sub_rn({0}, {1})"


class Pointwise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the table: the fields are explained where the rows stand."""

    ops: tuple[str, ...]
    args: tuple[str, ...]
    expr: str
    compute: str = "common"
    types: tuple[str, ...] = ()
    defaults: Mapping[str, float | int] = {}
    unless: str | None = None
    short: str | None = None
    exact: str | None = None
    brief: str | None = None
    gives: str | None = None
    ulp: int = 0


class Power(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """x raised to one particular exponent."""

    expr: str
    ulp: int
    exact: str | None = None


class Reduction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How elements become one."""

    other: str
    lanes: str
    end: str


class Foreach(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an operator over lists does to each member."""

    base: str
    args: tuple[str, ...]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of `operators.toml`."""

    pointwise: tuple[Pointwise, ...]
    powers: Mapping[str, Power]
    reductions: Mapping[str, Reduction]
    helpers: Mapping[str, str]
    foreach: Mapping[str, Foreach]


@cache
def table() -> Table:
    """The table, read once."""
    text = resources.files(__package__).joinpath("operators.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), Table)


@cache
def pointwise_rows() -> Mapping[str, Pointwise]:
    """Each pointwise operator's row, by its name without namespace.

    >>> pointwise_rows()["silu"].expr
    '_share({0}, 1.0 + _exp(-{0}))'
    """
    return {name: row for row in table().pointwise for name in row.ops}


@cache
def exact_templates() -> Mapping[str, str]:
    """For each template that is not correctly rounded on a GPU, one that is.

    >>> exact_templates()["{0} / {1}"]
    'tl.div_rn({0}, {1})'
    """
    rows: list[Pointwise | Power] = [*table().pointwise, *table().powers.values()]
    found = {row.expr: row.exact for row in rows if row.exact is not None}
    return found | {brief: found.get(expr, expr) for expr, brief in brief_templates().items()}


@cache
def brief_templates() -> Mapping[str, str]:
    """For templates of many instructions, one of fewer that is good enough for a result of 16 bits.

    >>> brief_templates()["_tanh({0})"]
    '_tanh_16({0})'
    """
    return {row.expr: row.brief for row in table().pointwise if row.brief is not None}


@cache
def _error_ulp() -> Mapping[str, int]:
    """Error of each template, in units in the last place of float32; what is not here has none."""
    rows: list[Pointwise | Power] = [*table().pointwise, *table().powers.values()]
    found = {row.expr: row.ulp for row in rows if row.ulp}
    return found | {brief: found[expr] for expr, brief in brief_templates().items() if expr in found}


def ulp_of(templates: Iterable[str]) -> float:
    """By how much expressions may be off in all, in units in the last place of float32; 0 where each is exact.

    >>> ulp_of(["{0} + {1}"]), ulp_of(["{0} + {1}", "_tanh({0})"]) > 0
    (0.0, True)
    """
    return float(sum(_error_ulp().get(template, 0) for template in templates))
