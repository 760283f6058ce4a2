"""How an unfused norm and the residual sum next to it follow each other, and what its weight is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tracemine.calls.text import Extents
from tracemine.findings.lists import Lists
from tracemine.ops.facts import base_name

SUM_FIRST, NORM_FIRST, BETWEEN_NORMS = "sum first", "norm first", "between norms"
_ORDERS: Final[Mapping[str, str]] = {"+n": SUM_FIRST, "n+": NORM_FIRST, "n+n": BETWEEN_NORMS}
_SUM, _NORM = "+", "n"
_MEAN, _ADD, _CAST = "mean", "add", "copy"


def norm_order(lists: Lists, op_rows: Iterable[int], named: Iterable[int]) -> str | None:
    """Return how one occurrence's norms and residual sum follow each other, by its operators in order of time.

    named: operators that the norm's pattern names. None: next to the norms there is something other than one such sum.
    """
    rows, own = [row for row in dict.fromkeys(op_rows) if row >= 0], set(named)
    width = _width(lists, rows)
    told = []
    for row in rows:
        name = base_name(lists.name(row))
        if row in own:
            told += [_NORM] if name == _MEAN else []
        elif name == _ADD and _is_residual(lists.shapes(row), width):
            told.append(_SUM)
        elif name != _CAST:
            return None
    return _ORDERS.get("".join(told))


def has_offset(lists: Lists, op_rows: Iterable[int]) -> bool:
    """Return whether a number is added to the norm's weight, a vector as long as its rows."""
    rows = [row for row in dict.fromkeys(op_rows) if row >= 0]
    width = _width(lists, rows)
    return width is not None and any(
        base_name(lists.name(row)) == _ADD and lists.shapes(row)[:2] == ((width,), ()) for row in rows
    )


def _width(lists: Lists, rows: Sequence[int]) -> int | None:
    """Return the length of the rows over which the mean is taken."""
    means = [lists.shapes(row) for row in rows if base_name(lists.name(row)) == _MEAN]
    shape = means[0][0] if means and means[0] else ()
    return shape[-1] if shape and isinstance(shape[-1], int) else None


def _is_residual(shapes: Sequence[Extents], width: int | None) -> bool:
    """Return whether two tensors of the norm's rows are added."""
    first, second = (*shapes, (), ())[:2]
    return first == second and len(first) > 1 and first[-1] == width
