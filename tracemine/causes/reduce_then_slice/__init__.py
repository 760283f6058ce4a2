"""Sums of which each rank reads its part alone: what a reduce-scatter leaves of them."""

from __future__ import annotations

from tracemine.causes.cause import Cause
from tracemine.causes.communication_exposed import shorter
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained
from tracemine.rows.table import IntArray

_HALF = 0.5  # of the bytes: an all-reduce is a reduce-scatter and an all-gather


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate reduce-scatters in place of all-reduces."""
    return shorter(context, matrix, _HALF, "a reduce-scatter sends half of an all-reduce's bytes")


CAUSE = Cause(rule="reduce_then_slice", estimate=estimate)
