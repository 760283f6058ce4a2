"""Gradients that are None in place of zeros: what that saves."""

from __future__ import annotations

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.labels import text_at
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, without_zeros
from tracemine.rows.table import IntArray, category


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate gradients that nothing fills: without zeros nothing is added to them either."""
    durations = context.facts["activities"].dur_ns[matrix]
    operation = category(context.rows["activities"], "operation")
    added = [text_at(operation, row) == "add" for row in matrix[0]]
    measured_ns = float(durations.sum(axis=1).mean())
    return on_gpu(context, matrix, without_zeros(measured_ns, float(durations.mean(axis=0)[added].sum())))
