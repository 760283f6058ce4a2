"""New rows written in place of a cache that is copied to grow: what that saves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.labels import by_operator
from tracemine.findings.lists import Call
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Curves, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import IntArray

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


def row_bytes(calls: Sequence[Call]) -> list[int]:
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
