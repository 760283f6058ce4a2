"""Nodes that ONNX Runtime joins at a higher level of optimisation.

columns.py   which kernels are theirs
"""

from __future__ import annotations

from tracemine.causes.cause import Cause
from tracemine.causes.ort_optimisation_level.columns import COLUMNS
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import IntArray, number

_OF_LONGEST = (0.8, 1.2, 2.0)  # of the longest kernel's time: it reads and writes the tensor once, as one kernel does


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate the kernels of one such part as one kernel, by the longest of them."""
    longest = number(context.rows["activities"], "dur_ns")[matrix].max(axis=1).mean()
    after = outwards(*(float(longest) * share for share in _OF_LONGEST))
    says = "one kernel takes what the longest of them does, up to twice as long"
    return on_gpu(context, matrix, Estimate(after_ns=after, assumptions=(says,)))


CAUSE = Cause(rule="ort_optimisation_level", columns=COLUMNS, estimate=estimate)
