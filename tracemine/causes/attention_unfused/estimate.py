"""One fused call in place of eager attention: what it saves, and what advice asks about its scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from tracemine.causes.attention_unfused.eager import eager_attention, fused_attention
from tracemine.causes.attention_unfused.scores import score_function
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained
from tracemine.rows.table import BoolArray, IntArray, number


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate one fused call in place of eager attention."""
    facts, members = context.facts["activities"], np.sort(matrix[0])
    eager = eager_attention(context.lists, facts.op_row[members].tolist())
    if eager is None or context.rates is None:
        return Abstained("attention_sizes_unknown" if eager is None else "device_unknown")
    eager = replace(eager, other_scores=score_function(context, members) is not None)
    capability = next((each.compute_capability for each in context.timeline.meta.devices), None)
    written = number(context.rows["activities"], "bytes_written", null=0)[members]
    scores = int(written[written >= eager.call.score_bytes].sum())
    environment = context.environment
    found = fused_attention(eager, context.rates, capability, environment.torch, scores, amd=environment.amd)
    return on_gpu(context, matrix, found)


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return what is done to scores that the fused call has no argument for, of the first class that shows any."""
    if rule.saving != "attention":
        return {}
    occurrences = (np.sort(one.matrix[0]) for one in classes)
    return {"score_function": next(filter(None, (score_function(context, each) for each in occurrences)), None)}


FACTS = AdviceFacts(
    docs={
        "score_function": FactDoc(
            "what attention does to its scores that `scaled_dot_product_attention` has no argument for",
            text=True,
            values=("soft cap", "bias of queries", "other"),
        )
    },
    find=_facts,
)
