"""Fewer launches, or one for many: what that saves of the gaps between kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracemine.causes.launch_gap.recurrent import recurrent_cell
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.gap_estimates import close, of_gaps
from tracemine.matching.advice import Fact
from tracemine.matching.rule import Rule
from tracemine.perfmodel import NOTHING, TRAINED_CALL_NS, Abstained, Range, closed_gaps
from tracemine.rows.table import BoolArray, IntArray, category, flags, number
from tracemine.rows.turns import independent_turns
from tracemine.units import count_text


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate fewer launches, or one for many. In training that is of the model, and of what lies around it little."""
    if not context.training:
        return close(context, rule, matrix)
    following = number(context.rows["gaps"], "next_row")
    of_model = _in_model(context)
    in_model, following = of_model[matrix].reshape(-1), following[matrix].reshape(-1)
    dur_ns = context.facts["gaps"].dur_ns
    most = dur_ns[matrix].reshape(-1)
    gaps = [np.minimum(each[matrix].reshape(-1), most) for each in context.unprofiled_gaps_ns]
    environment = context.environment
    replayable = not (environment.repeated or environment.blockers)
    by_library = recurrent_cell(context, following, most) is not None
    how = "in_training" if by_library or replayable else "compiled"
    saved, told = NOTHING, dict[str, None]()
    for chosen, cause in ((in_model, how), (~in_model, None)):
        if chosen.any():
            least, usual, longest = (each[chosen] for each in gaps)
            saving, assumptions = closed_gaps(most[chosen], cause, (least, usual, longest), context.steps.slowdown)
            if cause and not by_library and not environment.compiled:
                share = int(most[chosen].sum()) / max(int(dur_ns[of_model].sum()), 1)  # other gaps pay the rest
                saving, more = _without_calls(saving, TRAINED_CALL_NS[how], environment.model_calls, share)
                assumptions += more
            saved, told = saved + saving, told | dict.fromkeys(assumptions)
    return of_gaps(context, matrix, saved, tuple(told))


def _in_model(context: ScanContext) -> BoolArray:
    """Return which gaps wait for the host in the model, forward or backward; all where its end is not known."""
    facts, rows = context.facts["activities"], context.rows["gaps"]
    following = number(rows, "next_row")
    waiting: BoolArray = category(rows, "cause").among("host_bound") & ~flags(rows, "between_steps")
    if not (facts.module.codes >= 0).any():
        return waiting
    return waiting & (facts.backward[following] | (facts.module.codes[following] >= 0))


def _without_calls(saving: Range, each: Range, calls: int, share: float) -> tuple[Range, tuple[str, ...]]:
    """Return what is left of a saving once it has paid its share of each call of what is compiled; the assumption."""
    cost = {end: round(share * calls * getattr(each, end)) for end in ("mid", "high")}
    low, mid = max(saving.low - cost["high"], 0), max(saving.mid - cost["mid"], 0)
    left = Range(min(low, mid), mid, saving.high)
    note = (
        f"a compiled model costs the host {each.mid / 1e6:g} ms a call in training, forward and backward pass "
        f"({each.low / 1e6:g}–{each.high / 1e6:g}, measured on one host), taken off for {count_text(calls, 'call')}"
    )
    return left, (note,)


def facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return whose recurrent cell most of the gaps' time is of, and whether it is a loop's over independent parts."""
    if rule.saving != "launch_less":
        return {}
    gaps = np.concatenate([one.matrix.reshape(-1) for one in classes])
    following, idle_ns = number(context.rows["gaps"], "next_row")[gaps], context.facts["gaps"].dur_ns[gaps]
    independent = independent_turns(context.timeline, context.rows["activities"])[following]
    return {
        "recurrent": recurrent_cell(context, following, idle_ns),
        "alike": 2 * int(idle_ns[independent].sum()) > int(idle_ns.sum()),
    }
