"""A cache that is joined with each new row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tracemine.calls import Call, calls_of
from tracemine.causes.cause import Cause
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.labels import by_operator
from tracemine.findings.lists import ListedCall
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Curves, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import Column, ColumnDoc, Columns, Flags, IntArray, Rows, Sources

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

_ROW_NS: Final = (1_300, 2_000, 4_000)  # of a kernel that writes a few rows in place: `index_copy_`, a slice's `copy_`


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate what is left of a cache's growing. A call may launch several kernels, for parts of the axis."""
    facts, members = context.facts["activities"], matrix[0]
    calls = context.lists.calls(facts.op_row[members], [""] * len(members))
    parts = by_operator(facts, members)
    if len(calls) < len(parts):
        return Abstained("bytes_unknown")
    mean_ns = facts.dur_ns[matrix].mean(axis=0)
    spent = [float(mean_ns[part].sum()) for part in parts]
    return on_gpu(context, matrix, rows_written(row_bytes(calls), spent, context.curves))


def row_bytes(calls: Sequence[ListedCall]) -> list[int]:
    """Return bytes of what each `cat` appends, its second tensor."""
    return [
        (call.item_bytes or 4) * (call.sizes[0][1] if call.sizes and len(call.sizes[0]) > 1 else 0) for call in calls
    ]


def rows_written(row_bytes: Sequence[int], measured_ns: Sequence[float], curves: Curves | None) -> Estimate | Abstained:
    """Estimate rows written in place, each by a kernel of its own, where everything was copied before."""
    if curves is None:
        return Abstained("device_unknown")
    ends = []
    for nbytes, measured in zip(row_bytes, measured_ns, strict=True):
        moved = curves.memory_ns(nbytes, nbytes, 0.0) - curves.memory_ns(1, 1, 0.0)
        ends.append([min(each + max(moved, 0.0), measured) for each in _ROW_NS])
    low, mid, high = (sum(end) for end in zip(*ends, strict=True))
    return Estimate(
        after_ns=outwards(low, mid, high),
        assumptions=(
            "a row written in place takes a small kernel's time; what reads the cache reads it as long as it is",
        ),
    )


CAUSE = Cause(rule="cache_grown", columns=COLUMNS, estimate=estimate, fix_at=f"{__name__}.fix:FIX")
