"""How an operator takes part in a fusion group: a table by class of operator, with the exceptions by name.

And what it computes an element, in the steps that the predictor knows.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import Any

from tracemine.ops import is_custom, lookup
from tracemine.ops.facts import STEPS, base_name
from tracemine.tables import table_beside


class Role(IntEnum):
    """What may join: a producer of what the operator reads, a consumer of what it writes. See roles.toml."""

    LIBRARY = 0
    POINTWISE = 1
    ROW = 2
    GATHER = 3
    SCATTER = 4
    SCAN = 5
    WINDOW = 6


TAKES_PRODUCERS = frozenset({Role.POINTWISE, Role.ROW, Role.GATHER, Role.SCATTER, Role.SCAN})
TAKES_CONSUMERS = frozenset({Role.POINTWISE, Role.ROW, Role.GATHER, Role.WINDOW})


def role_of(operator: str, op_class: str | None) -> Role:
    """Return the role of an operator; `op_class` is its overload's class, None where the operator is not known.

    >>> role_of("aten::mul_", "pointwise"), role_of("aten::mm", "gemm"), role_of("aten::embedding_bag", "embedding")
    (<Role.POINTWISE: 1>, <Role.LIBRARY: 0>, <Role.LIBRARY: 0>)
    """
    if op_class is None or lookup(operator) is None or is_custom(operator):
        return Role.LIBRARY
    by_class, by_name, _ = _tables()
    return by_name.get(base_name(operator), by_class.get(op_class, Role.LIBRARY))


def reason_of(op_class: str) -> str:
    """Return why a library's kernel is left alone, in words; `op_class` may also be `host`, `generated` or `unknown`.

    >>> reason_of("gemm")
    "a matrix product is a library's kernel"
    """
    reasons = _tables()[2]
    return reasons.get(op_class, reasons["otherwise"])


@cache
def _tables() -> tuple[dict[str, Role], dict[str, Role], dict[str, str]]:
    document: dict[str, Any] = table_beside(__file__, "roles.toml")
    by_class = {name: Role[role.upper()] for name, role in document["classes"].items()}
    by_name = {name: Role[role.upper()] for role, names in document["operators"].items() for name in names.split()}
    return by_class, by_name, document["reasons"]


def steps_of(op: str) -> tuple[str, ...]:
    """Return the steps of an operator, by its name with or without `aten::` and a trailing underscore.

    >>> steps_of("aten::gelu"), steps_of("aten::div_"), steps_of("add")
    (('simple', 'simple', 'erf'), ('divide',), ('simple',))
    """
    return STEPS.get(base_name(op), ("simple",))


def online_softmax(steps: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a compiler makes of a group's softmax: one loop for maximum and sum, or two for scaled inputs.

    A maximum, an exponential and a sum of it are computed in one walk over the row, with a second exponential. Of a
    scaled input the compiler takes the maximum before it scales, and that is no longer the pattern which it merges.

    >>> online_softmax(("sum", "simple", "exp", "sum", "log"))
    ('softmax', 'log')
    >>> online_softmax(("scale", "softmax"))
    ('scale', 'sum', 'simple', 'exp', 'sum', 'divide')
    """
    for at in range(len(steps)):
        if steps[at : at + 4] == ("sum", "simple", "exp", "sum"):
            return (*steps[:at], "softmax", *steps[at + 4 :])
        if at and steps[at] == "softmax" and steps[at - 1] in ("scale", "divide"):
            return (*steps[:at], "sum", "simple", "exp", "sum", "divide", *steps[at + 1 :])
    return steps
