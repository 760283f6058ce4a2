"""What advice asks of a loop in Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracemine.causes.python_loop.kinds import KINDS
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.rows.table import BoolArray, category, number


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return what the loop goes over in which most of the time is."""
    rows = np.concatenate([one.matrix.reshape(-1) for one in classes])
    spent = context.facts[rule.rows].dur_ns[rows]
    if rule.rows == "gaps":
        rows = number(context.rows["gaps"], "next_row")[rows]
    over = category(context.rows["activities"], "loop_over")
    by_kind = np.bincount(over.codes[rows] + 1, weights=spent, minlength=len(over.values) + 1)
    most = int(by_kind.argmax()) - 1
    return {"loop_over": over.values[most] if most >= 0 and 2 * by_kind[most + 1] > by_kind.sum() else None}


FACTS = AdviceFacts(
    docs={"loop_over": FactDoc("what the loop goes over that most of it lies in", text=True, values=KINDS)}, find=_facts
)
