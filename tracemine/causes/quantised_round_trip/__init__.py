"""Tensors that are quantised and dequantised at once, where nothing is trained."""

from tracemine.causes.cause import Cause
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import remove
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained
from tracemine.rows.table import IntArray


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate the pair as left out; in training it is what the model learns by."""
    return Abstained("nothing_to_win") if context.training else remove(context, rule, matrix)


CAUSE = Cause(rule="quantised_round_trip", estimate=estimate)
