"""Waits for the device: what goes with them, in loops whose rounds need nothing of each other and elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.gap_estimates import cause_of, close, closed, of_gaps
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained
from tracemine.rows.table import BoolArray, IntArray, category, number


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate gaps without their waits; where one call can do all rounds of a loop the rounds' launches go as well."""
    rows = context.rows["gaps"]
    at_once = context.asked_at_once[number(rows, "next_row")[matrix].reshape(-1)]
    if not at_once.any():
        return close(context, rule, matrix)
    cause = cause_of(context, matrix)
    recorded = context.facts["gaps"].dur_ns[matrix].reshape(-1)
    waited = number(rows, "blocked_ns")[matrix].reshape(-1) if cause == "synchronisation" else recorded
    most = np.where(at_once, recorded, np.minimum(recorded, waited))
    saving, assumptions = closed(context, matrix, most, ((at_once, "at_once"), (~at_once, cause)))
    return of_gaps(context, matrix, saving, assumptions)


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return whether most of the gaps' time follows a loop's waits, and whether its rounds can be done at once."""
    if rule.rows != "gaps":
        return {}
    gaps = np.concatenate([one.matrix.reshape(-1) for one in classes])
    waits = category(context.rows["gaps"], "cause").among("after_wait")[gaps]
    if not waits.any():
        return {"rounds": False}
    following, idle_ns = number(context.rows["gaps"], "next_row")[gaps], context.facts["gaps"].dur_ns[gaps]
    found = {"rounds": waits, "at_once": context.asked_at_once[following]}
    return {name: 2 * int(idle_ns[chosen].sum()) > int(idle_ns.sum()) for name, chosen in found.items()}


FACTS = AdviceFacts(
    docs={
        "at_once": FactDoc(
            "most of it lies in a loop of eight rounds or more of the same operators, none of which needs another"
        ),
        "rounds": FactDoc("most of it follows waits of a loop that waits ten times or more in a step"),
    },
    find=_facts,
)
