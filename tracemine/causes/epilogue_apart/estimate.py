"""An activation in the library's product: what is left of it, as the rule says."""

from __future__ import annotations

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import remove
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained
from tracemine.rows.table import IntArray


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate activations that a product's epilogue does: PyTorch's operator for it has no derivative."""
    return Abstained("nothing_to_win") if context.training else remove(context, rule, matrix)
