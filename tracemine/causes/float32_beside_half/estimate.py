"""Products in half precision in place of casts to float32 and products of them: modelled, no pair was measured."""

from __future__ import annotations

from tracemine.causes.inference_in_float32.estimate import in_half, of_type
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained
from tracemine.rows.table import IntArray, number


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate products without their casts, where most of what the model multiplies is in half precision."""
    if of_type(context, "float16", "bfloat16") < of_type(context, "float32"):
        return Abstained("nothing_to_win")
    return on_gpu(context, matrix, in_half(context, matrix, number(context.rows["activities"], "call") > 0))
