"""One fused call in place of eager attention: what it saves, and what advice asks about its scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from tracemine.causes.attention_unfused.eager import eager_attention, fused_attention
from tracemine.causes.attention_unfused.scores import GATHERS, OF_QUERIES, score_function
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate, Range
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import BoolArray, IntArray, category, number

# What the host spends on making numbers of a mask that is a condition: two fills, a choice and their views, launched
# within the fused call. Of one program on an H200, whose host took 203 µs a call, 40 to 80 where no mask is given.
_CONDITION_NS: Final = Range(40_000, 100_000, 160_000)
_SCATTERED: Final = (1.0, 1.5, 4.0)  # of reading as many bytes in order


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate one fused call in place of eager attention."""
    facts, members = context.facts["activities"], np.sort(matrix[0])
    eager = eager_attention(context.lists, facts.op_row[members].tolist())
    if eager is None or context.rates is None:
        return Abstained("attention_sizes_unknown" if eager is None else "device_unknown")
    function = score_function(context, members)
    eager = replace(eager, other_scores=function is not None)
    capability = next((device.compute_capability for device in context.timeline.meta.devices), None)
    written = number(context.rows["activities"], "bytes_written", null=0)[members]
    scores = int(written[written >= eager.call.score_bytes].sum())
    environment = context.environment
    found = fused_attention(eager, context.rates, capability, environment.torch, scores, amd=environment.amd)
    if not isinstance(found, Abstained):
        found = _with_gathers(context, matrix, found, within=function == OF_QUERIES)
    made = on_gpu(context, matrix, found)
    return made if isinstance(made, Abstained) or not eager.by_condition else replace(made, call_ns=_CONDITION_NS)


def _with_gathers(context: ScanContext, matrix: IntArray, found: Estimate, *, within: bool) -> Estimate:
    """Return the fused call with what it gathers: within its kernel, else as now.

    Within, it reads as many bytes as the gathers wrote, scattered.
    """
    facts, rows = context.facts["activities"], context.rows["activities"]
    gathers = category(rows, "operation").among(*GATHERS)[matrix[0]]
    if not gathers.any():
        return found
    members = matrix[:, gathers]
    as_now = float(facts.dur_ns[members].mean(axis=0).sum())
    read = int(number(rows, "bytes_written", null=0)[members[0]].sum())
    moved = as_now if context.curves is None else context.curves.memory_ns(read, 0, 0.0)
    ends = tuple(min(times * moved, as_now) for times in _SCATTERED) if within else (as_now,) * 3
    more = outwards(*ends)
    note = f"what is gathered is read within the kernel, {_SCATTERED[1]:g} times as slowly as in order (assumed)"
    notes = (note,) if within else ("what is gathered is made a bias before, as now",)
    return replace(found, after_ns=found.after_ns + more, assumptions=(*found.assumptions, *notes))


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return what is done to scores that the fused call has no argument for, and whether it takes what was cast up."""
    if rule.saving != "attention":
        return {}
    occurrences = [np.sort(one.matrix[0]) for one in classes]
    op_row = context.facts["activities"].op_row
    eager = (eager_attention(context.lists, op_row[each].tolist()) for each in occurrences)
    return {
        "score_function": next(filter(None, (score_function(context, each) for each in occurrences)), None),
        "operands_cast_up": any(each is not None and each.cast_up for each in eager),
    }


FACTS = AdviceFacts(
    docs={
        "score_function": FactDoc(
            "what attention does to its scores that `scaled_dot_product_attention` has no argument for",
            text=True,
            values=("soft cap", "bias of queries", "other"),
        ),
        "operands_cast_up": FactDoc("queries, keys and values of attention were cast up from half precision for it"),
    },
    find=_facts,
)
