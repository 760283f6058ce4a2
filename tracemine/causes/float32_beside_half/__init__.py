"""Batched products in float32 of what was cast up for them, in a model that multiplies in half precision."""

from __future__ import annotations

from tracemine.causes.cause import Cause
from tracemine.causes.inference_in_float32 import in_half, of_type
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


CAUSE = Cause(rule="float32_beside_half", estimate=estimate)
