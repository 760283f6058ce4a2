"""The kinds of work that operators and kernels do: one table, read by the operator table and the kernel families."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from tracemine.tables import table_beside


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
