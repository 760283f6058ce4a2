"""Statistics that batch norms wait for: what one rank shows of what they cost."""

from __future__ import annotations

from tracemine.causes.cause import Cause
from tracemine.causes.communication_exposed import shorter
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained
from tracemine.rows.table import IntArray

_ASSUMED = "a layer with its own rank's statistics waits for none"


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate layers that wait for no other rank."""
    return shorter(context, matrix, 1.0, _ASSUMED)


CAUSE = Cause(rule="sync_batch_norm", estimate=estimate)
