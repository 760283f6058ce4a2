"""A kernel that takes longer than the bytes that its program states need."""

from __future__ import annotations

from tracemine.causes.cause import Cause
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import IntArray, category, number

_SLOW = 1.5  # times as long as a copy: what is nearer is left alone
_INTENSE = 8.0  # operations a byte from which arithmetic may be what limits a kernel


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate a kernel that moves its bytes as a copy does, halfway there as the middle."""
    rows, first = context.rows["activities"], int(matrix[0, 0])
    runs = number(rows, "runs")[matrix[:, 0]].mean()
    moved = number(rows, "stated_bytes")[matrix[:, 0]].mean() / runs
    flops = number(rows, "stated_flops", null=-1)[matrix[:, 0]].mean() / runs
    limited = category(rows, "bound").among("memory")[first] or 0 <= flops < _INTENSE * moved
    if context.curves is None or not limited or flops >= _INTENSE * moved:
        return Abstained("device_unknown" if context.curves is None else "compute_bound")
    copied_ns = float(runs) * context.curves.memory_ns(moved / 2, moved / 2, 0.0)
    measured_ns = float(context.facts["activities"].dur_ns[matrix].mean())
    if measured_ns < _SLOW * copied_ns:
        return Abstained("at_its_rate")
    text = "low end: as a copy of as many bytes; middle: halfway there; high end: as long as now"
    after = outwards(copied_ns, (copied_ns + measured_ns) / 2, measured_ns)
    return on_gpu(context, matrix, Estimate(after_ns=after, assumptions=(text,)))


CAUSE = Cause(rule="kernel_below_rate", estimate=estimate)
