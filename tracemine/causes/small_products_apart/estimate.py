"""One call of each operator for all iterations of a loop: what it saves."""

from __future__ import annotations

import numpy as np

from tracemine.causes.small_products_apart.batching import batched
from tracemine.causes.small_products_apart.loop import loop_operators
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.gap_estimates import idle_before_ns
from tracemine.findings.labels import text_at
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained
from tracemine.rows.table import IntArray, number


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate one call of each operator in place of a loop's iterations."""
    return at_once(context, matrix, int(number(context.rows["activities"], "turns")[matrix[0, 0]]))


def of_projection(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate one product of all inputs in place of one an iteration of a recurrence."""
    return at_once(context, matrix, int(number(context.rows["activities"], "projection_turns")[matrix[0, 0]]))


def at_once(context: ScanContext, matrix: IntArray, turns: int) -> ClassEstimate | Abstained:
    """Estimate one call of each operator in place of so many iterations."""
    rows, members = context.rows["activities"], np.sort(matrix[0])
    durations = context.facts["activities"].dur_ns[matrix]
    if rows.graph is None:
        return Abstained("bytes_unknown")
    written = number(rows, "bytes_written", null=-1)[members]
    kernels = [text_at(context.kernel_names, row) or "" for row in members]
    mean_ns = durations.mean(axis=0)[np.argsort(matrix[0])]
    operators = loop_operators(context.timeline, rows.graph, members, mean_ns, written, kernels, turns)
    found = (
        Abstained("bytes_unknown")
        if operators is None
        else batched(operators, turns, context.curves, context.rates, idle_before_ns(context, matrix))
    )
    return on_gpu(context, matrix, found)
