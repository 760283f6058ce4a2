"""Sums of gradients that no optimizer step reads in part: what they take without that part."""

from __future__ import annotations

from tracemine.causes.cause import Cause
from tracemine.causes.communication_exposed import shorter
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained
from tracemine.rows.table import IntArray, number
from tracemine.units import percent_text


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate sums that are shorter by what nothing reads."""
    unused, whole = (
        int(number(context.rows["activities"], name)[matrix].sum()) for name in ("unused_bytes", "message_bytes")
    )
    share = unused / max(whole, 1)
    return shorter(context, matrix, share, f"{percent_text(share, 1)} of what is summed is read by no optimizer step")


CAUSE = Cause(rule="gradient_unused", estimate=estimate)
