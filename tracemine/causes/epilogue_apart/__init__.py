"""An activation behind a product, which the library's product can do itself."""

from __future__ import annotations

from tracemine.causes.cause import Cause
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import remove
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained
from tracemine.rows.table import IntArray


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate activations that a product's epilogue does: PyTorch's operator for it has no derivative."""
    return Abstained("nothing_to_win") if context.training else remove(context, rule, matrix)


CAUSE = Cause(rule="epilogue_apart", estimate=estimate, fix_at=f"{__name__}.fix:FIX")
