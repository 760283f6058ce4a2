"""Estimates of what closing a class of gaps would save."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.labels import label_of, text_at
from tracemine.findings.light import waits_ns
from tracemine.matching.rule import Rule
from tracemine.perfmodel import NOTHING, Abstained, Range, closed_gaps, hidden_by_workers
from tracemine.rows.table import BoolArray, IntArray, category, number

_WITH_WORKERS = "_MultiProcessingDataLoaderIter"
_RECORDED_CAUSES = frozenset(
    {
        "launch_latency",
        "host_bound",
        "synchronisation",
        "after_wait",
        "allocator",
        "compilation",
        "data_loading",
        "graph_launch",
    }
)


def close(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate gaps that are closed, whatever closes them."""
    rows, facts = context.rows["gaps"], context.facts["gaps"]
    cause = cause_of(context, matrix)
    most = facts.dur_ns[matrix].reshape(-1)
    if cause == "synchronisation":  # without the wait the host comes sooner by as long as it waited
        most = np.minimum(most, blocked_ns(context, matrix))
    if rule.saving == "close_break":  # a graph in one piece closes what passed between its pieces
        most = np.minimum(most, number(rows, "break_ns")[matrix].reshape(-1))
    if cause == "data_loading" and not _has_workers(context, matrix):
        saving, assumptions = hidden_by_workers(
            most, number(rows, "host_work_ns")[matrix].reshape(-1), _rest(context, matrix)
        )
    else:
        saving, assumptions = closed(context, matrix, most, ((np.ones(len(most), np.bool_), cause),))
    return of_gaps(context, matrix, saving, assumptions)


def idle_before_ns(context: ScanContext, matrix: IntArray) -> float:
    """Return how long the device is idle before the activities of a match, unprofiled, mean."""
    inside = np.zeros(context.rows["activities"].count + 1, np.bool_)
    inside[matrix] = True
    before = inside[number(context.rows["gaps"], "next_row", null=-1)]
    return float(context.unprofiled_gaps_ns[1][before].sum()) / len(matrix)


def blocked_ns(context: ScanContext, matrix: IntArray) -> IntArray:
    """Return for how long the host was blocked before each gap: in the light window, where there is one."""
    rows = context.rows["gaps"]
    waited = waits_ns(context.timeline, number(rows, "sync_row", null=-1), number(rows, "blocked_ns"))
    return waited[matrix].reshape(-1)


def closed(
    context: ScanContext,
    matrix: IntArray,
    most: IntArray,
    parts: Sequence[tuple[BoolArray, str | None]],
    freed_ns: Sequence[IntArray] = (),
) -> tuple[Range, tuple[str, ...]]:
    """Return what closing gaps saves, each no more than `most`, and the assumptions. parts: which have which cause.
    freed_ns: how much of each goes at least and usually, where that is known better.
    """
    alone = [np.minimum(each[matrix].reshape(-1), most) for each in context.unprofiled_gaps_ns]
    alone[: len(freed_ns)] = [np.minimum(*each) for each in zip(alone, freed_ns, strict=False)]
    saved, told = NOTHING, dict[str, None]()
    for chosen, cause in parts:
        if chosen.any():
            least, usual, longest = (each[chosen] for each in alone)
            saving, assumptions = closed_gaps(most[chosen], cause, (least, usual, longest), context.steps.slowdown)
            saved, told = saved + saving, told | dict.fromkeys(assumptions)
    return saved, tuple(told)


def of_gaps(context: ScanContext, matrix: IntArray, saving: Range, assumptions: tuple[str, ...]) -> ClassEstimate:
    """Return a class of gaps with its saving of the step's time."""
    facts = context.facts["gaps"]
    return ClassEstimate(
        matrix=matrix,
        measured_ns=int(facts.dur_ns[matrix].sum()),
        gpu_saving_ns=NOTHING,
        step_saving_ns=saving // max(context.accounts.devices, 1),
        assumptions=assumptions,
        # The cause follows from recorded call times, or it is called unknown.
        evidence="proven" if cause_of(context, matrix) in _RECORDED_CAUSES else "adjacent",
        label=label_of(context.timeline, facts, matrix[0]),
    )


def cause_of(context: ScanContext, matrix: IntArray) -> str | None:
    return text_at(category(context.rows["gaps"], "cause"), int(matrix[0, 0]))


def _has_workers(context: ScanContext, matrix: IntArray) -> bool:
    """Return whether the loop that a gap waits for has workers already: how much faster more are is not known."""
    op = category(context.rows["gaps"], "op")
    return _WITH_WORKERS in (text_at(op, int(matrix[0, 0])) or "")


def _rest(context: ScanContext, matrix: IntArray) -> IntArray:
    """Return, for each gap, how long the step around it takes without it: up to the next such gap."""
    rows = context.rows["gaps"]
    begin, dur = number(rows, "start_ns")[matrix[:, 0]], number(rows, "dur_ns")[matrix].sum(axis=1)
    if len(begin) < 2:
        rest: IntArray = number(rows, "busy_before_ns")[matrix].sum(axis=1)
    else:
        rest = np.maximum(int(np.median(np.diff(begin))) - dur, 0)
    return rest
