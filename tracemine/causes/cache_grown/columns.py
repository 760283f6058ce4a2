"""Rows that are appended to a cache."""

from __future__ import annotations

import numpy as np

from tracemine.calls import Call, calls_of
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import Column, ColumnDoc, Columns, Flags, Rows, Sources

_GROWS = 16  # times as long as what is appended
_MOST_ROWS = 8
_LEAST_AXES = 3


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    op_row = rows_of(sources.timeline.activities["op_row"])
    return {"appended": Flags(calls_of(sources.timeline).spread(op_row, appended, False, np.bool_))}


def appended(call: Call) -> bool:
    """Return whether a call is a `cat` of two tensors that appends a few rows to many.

    >>> cats = [((4, 8, 256, 64), (4, 8, 1, 64)), ((4, 8, 1, 64), (4, 8, 256, 64))]
    >>> [appended(Call("aten::cat", (members, ()))) for members in cats]
    [True, False]
    >>> appended(Call("aten::cat", (((4, 256, 8, 64), (4, 1, 8, 64)), ())))  # heads lie within a row
    True
    >>> cats = [((32, 512, 7, 7), (32, 4, 7, 7)), ((32, 512, 7, 64), (32, 1, 7, 60))]  # channels, no cache
    >>> [appended(Call("aten::cat", (members, ()))) for members in cats]
    [False, False]
    """
    members = call.members(0) if call.name == "aten::cat" else ()
    if len(members) != 2:
        return False
    many, few = members
    if len(many) != len(few) or len(many) < _LEAST_AXES:
        return False
    differ = [at for at, (a, b) in enumerate(zip(many, few, strict=True)) if a != b]
    if len(differ) != 1 or not 0 < few[differ[0]] <= _MOST_ROWS or _GROWS * few[differ[0]] > many[differ[0]]:
        return False
    behind = many[differ[0] + 1 :]
    of_heads = len(behind) == 2 and differ[0] > 0 and behind[1] % 8 == 0 and behind[0] != behind[1]
    return len(behind) == 1 or of_heads


COLUMNS = Columns(
    docs=(
        ColumnDoc("appended", "flags", "a `cat` of two tensors of three axes or more that differ in the last but one, where the second has at most eight rows and the first at least 16 times as many: a few rows are appended to many"),
    ),
    derive=_columns,
)  # fmt: skip
