"""Estimates of what a class of matches would save, one for each kind of saving that several causes share."""

from __future__ import annotations

import math

from msgspec.structs import replace

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import Estimator, ScanContext
from tracemine.findings.gap_estimates import close
from tracemine.findings.labels import by_operator, label_of, text_at
from tracemine.flow import Evidence
from tracemine.fusion import Groups
from tracemine.matching.rule import Rule
from tracemine.perfmodel import (
    NOTHING,
    Abstained,
    Estimate,
    Neighbour,
    Range,
    Traffic,
    Unfused,
    at_its_rate,
    fused_run,
    one_kernel,
    removed,
)
from tracemine.rows.library import recorded_call
from tracemine.rows.table import FloatArray, IntArray, category, number


def _fuse(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    if matrix.shape[1] < 2:
        return Abstained("nothing_to_win")
    groups, members = context.groups, matrix[0]
    group = -1 if groups is None else int(groups.activity_group[members[0]])
    mean_ns = context.facts["activities"].dur_ns[matrix].mean(axis=0)
    if groups is None or group < 0:
        return on_gpu(
            context, matrix, fused_run(_neighbours(context, members, mean_ns), context.curves), Evidence.ADJACENT
        )
    if context.loops[group]:
        return Abstained("benchmark_loop")
    if groups.kernel[group] < 0:  # its bytes are not known
        estimate = fused_run(_neighbours(context, members, mean_ns), context.curves, legal=True)
    else:
        estimate = _one_kernel(context, groups, group, members, mean_ns)
    return on_gpu(context, matrix, estimate, Evidence(int(groups.evidence[group])))


def _one_kernel(
    context: ScanContext, groups: Groups, group: int, members: IntArray, durations_ns: FloatArray
) -> Estimate | Abstained:
    """Estimate a fusion group, from the mean durations of its activities in all instances."""
    own = slice(int(groups.begin[group]), int(groups.begin[group + 1]))
    nodes = groups.node[own]
    spent = dict.fromkeys(nodes.tolist(), 0.0)
    for node, dur in zip(groups.activity_node[members].tolist(), durations_ns.tolist(), strict=True):
        spent[node] += dur
    estimate = one_kernel(
        groups.kernels[groups.kernel[group]],
        [
            Unfused(reads=int(groups.node_reads[node]), writes=int(groups.node_writes[node]), dur_ns=dur)
            for node, dur in spent.items()
        ],
        context.curves,
        sure=groups.evidence[group] != Evidence.ADJACENT,
        in_model=context.has_products,
        product_bytes=int(groups.product_bytes[group]),
        more=(int(groups.more_reads[group]), int(groups.more_writes[group])),
    )
    if isinstance(estimate, Abstained):
        return estimate
    flops = int(groups.flops[group])
    return replace(
        estimate,
        traffic_bytes=Traffic(before=int(groups.bytes_before[group]), after=int(groups.bytes_after[group])),
        intermediate_bytes=int(groups.intermediate_bytes[group]),
        flops=None if flops < 0 else flops,
    )


def remove(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate work that is not done any more, but for the share of it that the rule says stays."""
    assert rule.left is not None  # noqa: S101 - as the rule was read
    durations = context.facts["activities"].dur_ns[matrix]
    evidence = Evidence.PROVEN
    if rule.evidence is not None:
        recorded = text_at(category(context.rows["activities"], rule.evidence), int(matrix[0, 0]))
        evidence = Evidence[(recorded or "adjacent").upper()]
    return on_gpu(context, matrix, removed(float(durations.sum(axis=1).mean()), rule.left), evidence)


def _reach(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate identical calls of a library, each of them whole: what another rule has a part of is that rule's."""
    rows, durations = context.rows["activities"], context.facts["activities"].dur_ns[matrix]
    first = matrix[:, 0]
    if (durations.sum(axis=1) != number(rows, "call_dur_ns")[first]).any():
        return Abstained("claimed_by_another_rule")
    call = recorded_call(context.timeline, int(context.facts["activities"].op_row[first[0]]))
    cause = text_at(category(rows, "call_cause"), int(first[0])) or ""
    estimate = at_its_rate(call, cause, float(durations.sum(axis=1).mean()), context.rates)
    return on_gpu(context, matrix, estimate)


def on_gpu(
    context: ScanContext,
    matrix: IntArray,
    estimate: Estimate | Abstained,
    evidence: Evidence = Evidence.PROVEN,
    measured_ns: int | None = None,
) -> ClassEstimate | Abstained:
    """Return a class with its saving of GPU time. What the step gains is known when every rule has claimed.

    measured_ns: what it costs, where that is not all of its time.
    """
    if isinstance(estimate, Abstained):
        return estimate
    measured = int(context.facts["activities"].dur_ns[matrix].sum()) if measured_ns is None else measured_ns
    count = len(matrix)
    after = (estimate.after_ns * count).at_most(measured)
    saving = Range(measured - after.high, measured - after.mid, measured - after.low)
    traffic_bytes = estimate.traffic_bytes
    return ClassEstimate(
        matrix=matrix,
        measured_ns=measured,
        fused_ns=after,
        gpu_saving_ns=saving,
        step_saving_ns=NOTHING,
        traffic_bytes=None
        if traffic_bytes is None
        else Traffic(before=traffic_bytes.before * count, after=traffic_bytes.after * count),
        intermediate_bytes=estimate.intermediate_bytes,
        flops=None if estimate.flops is None else estimate.flops * count,
        assumptions=estimate.assumptions,
        evidence=evidence.name.lower(),
        label=label_of(context.timeline, context.facts["activities"], matrix[0]),
    )


ESTIMATES: dict[str, Estimator] = {
    "fuse": _fuse,
    "remove": remove,
    "reach_rate": _reach,
    "close_gap": close,
    "close_break": close,
}


def _neighbours(context: ScanContext, members: IntArray, durations_ns: FloatArray) -> list[Neighbour]:
    """Return the operators of one match, neighbours that one operator launched taken together."""
    facts, bound = context.facts["activities"], category(context.rows["activities"], "bound")
    return [
        Neighbour(
            dur_ns=math.ceil(durations_ns[part].sum()),  # a part of a nanosecond is no saving
            compute=any(text_at(bound, row) == "compute" for row in members[part]),
        )
        for part in by_operator(facts, members)
    ]
