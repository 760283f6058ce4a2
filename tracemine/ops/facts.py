"""What an operator is, beyond its class and schema: facts.toml, read once."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Literal

from msgspec import Struct

from tracemine.tables import table_beside

VIEWS: Final = ("in_order", "rearranged", "part")  # kinds of [values] that share the memory of what they read


class OperatorFacts(Struct, frozen=True):
    """The tables of facts.toml."""

    unread: dict[str, frozenset[str]]  # operator → arguments whose elements are not all read
    looked_up: frozenset[str]
    placed: dict[str, str]  # operator → the argument with what is placed
    replaced: frozenset[str]
    unknown: frozenset[str]
    flops_per_element: dict[str, int]
    steps: dict[str, tuple[str, ...]]
    values: dict[str, frozenset[str]]  # kind → operators


@cache
def facts() -> OperatorFacts:
    """Return the tables."""
    document = table_beside(__file__, "facts.toml")
    return OperatorFacts(
        unread={name: frozenset(arguments.split()) for name, arguments in document["unread"].items()},
        looked_up=_names(document["looked_up"]),
        placed=document["placed"],
        replaced=_names(document["replaced"]),
        unknown=_names(document["unknown"]),
        flops_per_element=document["flops_per_element"],
        steps={name: tuple(key.split()) for key, names in document["steps"].items() for name in names.split()}
        | dict.fromkeys(_names(document["unmeasured"]), ("simple",)),
        values={kind: frozenset(names.split()) for kind, names in document["values"].items()},
    )


def keeping_values(*kinds: str) -> frozenset[str]:
    """Return the operators whose results hold values of their first argument as they are, of some kinds or of all.

    >>> "permute" in keeping_values(), "permute" in keeping_values("in_order", "copied")
    (True, False)
    """
    return frozenset().union(*(facts().values[kind] for kind in kinds or facts().values))


def base_name(operator: str) -> str:
    """Return the name that tables use: without namespace, overload, and the underscore of what writes in place.

    >>> base_name("aten::mul_"), base_name("aten::add.Tensor"), base_name("aten::__and__"), base_name("relu")
    ('mul', 'add', '__and__', 'relu')
    """
    name = operator.removeprefix("aten::").split(".")[0]
    return name if name.endswith("__") else name.removesuffix("_")


def _names(table: dict[str, Any]) -> frozenset[str]:
    return frozenset(table["operators"].split())


class OpClass(Struct, frozen=True):
    """One kind of work. `bound`: what limits a large kernel of this kind; None where it depends, or nothing runs."""

    name: str
    says: str
    bound: Literal["memory", "compute"] | None = None


_TABLE = table_beside(__file__, "classes.toml")
_CLASSES = tuple(OpClass(*row) for row in _TABLE["classes"])
CLASSES: dict[str, OpClass] = {row.name: row for row in _CLASSES}
MEMORY_BOUND_CLASSES = frozenset(row.name for row in _CLASSES if row.bound == "memory")
COMPUTE_BOUND_CLASSES = frozenset(row.name for row in _CLASSES if row.bound == "compute")
