"""Estimates of what closing a class of gaps would save: whatever closes them, or launches that become fewer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.labels import label_of, text_at
from tracemine.findings.recurrent import recurrent_cell
from tracemine.matching.rule import Rule
from tracemine.perfmodel import (
    COMPILED_CALL_NS,
    NOTHING,
    TRAINED_CALL_NS,
    Abstained,
    Range,
    closed_gaps,
    hidden_by_workers,
)
from tracemine.rows.table import BoolArray, IntArray, category, flags, number
from tracemine.units import count_text

_ASKED = ("synchronisation", "after_wait")
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
    rows, facts = context.rows["gaps"], context.facts["gaps"]
    cause = _cause(context, matrix)
    recorded = facts.dur_ns[matrix].reshape(-1)
    most = recorded
    if cause == "synchronisation":  # without the wait the host comes sooner by as long as it waited
        most = np.minimum(most, number(rows, "blocked_ns")[matrix].reshape(-1))
    if rule.saving == "close_break":  # a graph in one piece closes what passed between its pieces
        most = np.minimum(most, number(rows, "break_ns")[matrix].reshape(-1))
    if cause == "data_loading" and not _has_workers(context, matrix):
        saving, assumptions = hidden_by_workers(
            most, number(rows, "host_work_ns")[matrix].reshape(-1), _rest(context, matrix)
        )
        return _of_class(context, matrix, saving, assumptions)
    if cause not in _ASKED:
        return _of_class(context, matrix, *_closed(context, matrix, most, ((np.ones(len(most), np.bool_), cause),)))
    at_once = context.asked_at_once[number(rows, "next_row")[matrix].reshape(-1)]
    most = np.where(at_once, recorded, most)  # the round goes, and not its wait alone
    return _of_class(context, matrix, *_closed(context, matrix, most, ((at_once, "at_once"), (~at_once, cause))))


def _closed(
    context: ScanContext, matrix: IntArray, most: IntArray, parts: Sequence[tuple[BoolArray, str | None]]
) -> tuple[Range, tuple[str, ...]]:
    """Return what closing gaps saves, each no more than `most`, and the assumptions. parts: which have which cause."""
    alone = [np.minimum(each[matrix].reshape(-1), most) for each in context.unprofiled_gaps_ns]
    saved, told = NOTHING, dict[str, None]()
    for chosen, cause in parts:
        if chosen.any():
            least, usual, longest = (each[chosen] for each in alone)
            saving, assumptions = closed_gaps(most[chosen], cause, (least, usual, longest), context.steps.slowdown)
            saved, told = saved + saving, told | dict.fromkeys(assumptions)
    return saved, tuple(told)


def _of_class(context: ScanContext, matrix: IntArray, saving: Range, assumptions: tuple[str, ...]) -> ClassEstimate:
    facts = context.facts["gaps"]
    return ClassEstimate(
        matrix=matrix,
        measured_ns=int(facts.dur_ns[matrix].sum()),
        gpu_saving_ns=NOTHING,
        step_saving_ns=saving // max(context.accounts.devices, 1),
        assumptions=assumptions,
        # The cause follows from recorded call times, or it is called unknown.
        evidence="proven" if _cause(context, matrix) in _RECORDED_CAUSES else "adjacent",
        label=label_of(context.timeline, facts, matrix[0]),
    )


def _cause(context: ScanContext, matrix: IntArray) -> str | None:
    return text_at(category(context.rows["gaps"], "cause"), int(matrix[0, 0]))


def launch_less(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate fewer launches, or one for many.

    In training, and in a step that calls the model many times, that is of the model, and of what lies around it little.
    """
    following = number(context.rows["gaps"], "next_row")[matrix].reshape(-1)
    dur_ns = context.facts["gaps"].dur_ns
    most = dur_ns[matrix].reshape(-1)
    environment = context.environment
    if not context.training:
        at_once = 2 * int(most[context.alike[following]].sum()) > int(most.sum())
        if not environment.repeated or environment.compiled or environment.replayed or at_once:
            return close(context, rule, matrix)
    of_model = _in_model(context)
    in_model = of_model[matrix].reshape(-1)
    by_library = recurrent_cell(context, following, most) is not None
    how, call_ns, what = _compiled_how(context, by_library=by_library)
    saved, told = _closed(context, matrix, most, ((in_model, how),))
    if in_model.any() and not by_library and not environment.compiled:
        share = int(most[in_model].sum()) / max(int(dur_ns[of_model].sum()), 1)  # other gaps pay the rest
        saved, more = _without_calls(saved, call_ns, what, environment.model_calls, share)
        told += more
    others, more = _closed(context, matrix, most, ((~in_model, None),))
    return _of_class(context, matrix, saved + others, tuple(dict.fromkeys((*told, *more))))


def _compiled_how(context: ScanContext, *, by_library: bool) -> tuple[str, Range, str]:
    """Return how gaps of a model close once it is compiled, what a call of it costs then, and of what call that is."""
    if not context.training:
        return "host_bound", COMPILED_CALL_NS, ""
    replayable = not (context.environment.repeated or context.environment.blockers)
    how = "in_training" if by_library or replayable else "compiled"
    return how, TRAINED_CALL_NS[how], " in training, forward and backward pass"


def _in_model(context: ScanContext) -> BoolArray:
    """Return which gaps wait for the host in the model, forward or backward; all where its end is not known."""
    facts, rows = context.facts["activities"], context.rows["gaps"]
    following = number(rows, "next_row")
    waiting: BoolArray = category(rows, "cause").among("host_bound") & ~flags(rows, "between_steps")
    if not (facts.module.codes >= 0).any():
        return waiting
    return waiting & (facts.backward[following] | (facts.module.codes[following] >= 0))


def _without_calls(saving: Range, each: Range, what: str, calls: int, share: float) -> tuple[Range, tuple[str, ...]]:
    """Return what is left of a saving once it has paid its share of each call of what is compiled; the assumption."""
    cost = {end: round(share * calls * getattr(each, end)) for end in ("mid", "high")}
    low, mid = max(saving.low - cost["high"], 0), max(saving.mid - cost["mid"], 0)
    left = Range(min(low, mid), mid, saving.high)
    note = (
        f"a compiled model costs the host {each.mid / 1e6:g} ms a call{what} "
        f"({each.low / 1e6:g}–{each.high / 1e6:g}, measured on one host), taken off for {count_text(calls, 'call')}"
    )
    return left, (note,)


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
