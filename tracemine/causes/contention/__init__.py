"""Kernels that collectives slow down: how long they take with fewer multiprocessors given away."""

from __future__ import annotations

from tracemine.causes.cause import Cause
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import IntArray, number

_HALF = 0.5  # of the excess goes, the rest is the clock's and the memory's: assumed


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate kernels next to a collective that takes fewer blocks: at best as fast as alone."""
    excess = int(number(context.rows["activities"], "contention_ns")[matrix].sum())
    each = excess / len(matrix)
    found = Estimate(
        after_ns=outwards(0, each * (1 - _HALF), each),
        assumptions=(
            "the same kernel alone takes less; low end: the collectives then take longer by as much; middle: half of "
            "the difference goes (assumed); high end: all of it",
        ),
    )
    return on_gpu(context, matrix, found, measured_ns=excess)


CAUSE = Cause(rule="contention", estimate=estimate)
