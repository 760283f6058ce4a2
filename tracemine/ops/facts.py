"""What an operator is, beyond its class and schema: facts.toml, read once."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

from tracemine.tables import table_beside

VIEWS: Final = ("in_order", "rearranged", "part")  # kinds of [values] that share the memory of what they read


def _names(table: dict[str, Any]) -> frozenset[str]:
    return frozenset(table["operators"].split())


_FACTS = table_beside(__file__, "facts.toml")
# Operator → arguments whose elements are not all read.
UNREAD = {name: frozenset(arguments.split()) for name, arguments in _FACTS["unread"].items()}
LOOKED_UP = _names(_FACTS["looked_up"])
PLACED: dict[str, str] = _FACTS["placed"]  # operator → the argument with what is placed
REPLACED = _names(_FACTS["replaced"])
UNKNOWN = _names(_FACTS["unknown"])
FLOPS_PER_ELEMENT: dict[str, int] = _FACTS["flops_per_element"]
STEPS = {name: tuple(key.split()) for key, names in _FACTS["steps"].items() for name in names.split()}
STEPS |= dict.fromkeys(_names(_FACTS["unmeasured"]), ("simple",))
VALUES = {kind: frozenset(names.split()) for kind, names in _FACTS["values"].items()}  # kind → operators


def keeping_values(*kinds: str) -> frozenset[str]:
    """Return the operators whose results hold values of their first argument as they are, of some kinds or of all.

    >>> "permute" in keeping_values(), "permute" in keeping_values("in_order", "copied")
    (True, False)
    """
    return frozenset().union(*(VALUES[kind] for kind in kinds or VALUES))


def base_name(operator: str) -> str:
    """Return the name that tables use: without namespace, overload, and the underscore of what writes in place.

    >>> base_name("aten::mul_"), base_name("aten::add.Tensor"), base_name("aten::__and__"), base_name("relu")
    ('mul', 'add', '__and__', 'relu')
    """
    name = operator.removeprefix("aten::").split(".")[0]
    return name if name.endswith("__") else name.removesuffix("_")


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
