"""One product for all iterations of a recurrence: what it saves."""

from __future__ import annotations

from tracemine.causes.small_products_apart.estimate import at_once
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained
from tracemine.rows.table import IntArray, number


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate one product in place of one an iteration."""
    return at_once(context, matrix, int(number(context.rows["activities"], "projection_turns")[matrix[0, 0]]))
