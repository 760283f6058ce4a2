"""What a recurrence computes, for the text that says what to call instead."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.causes.recurrence_unfused.cells import KINDS
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.labels import text_at
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.rows.table import BoolArray, category


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return what the recurrence computes."""
    if rule.id != "recurrence_unfused":
        return {}
    first = int(classes[0].matrix.reshape(-1)[0])
    return {"recurrence": text_at(category(context.rows["activities"], "recurrence_kind"), first)}


FACTS = AdviceFacts(
    docs={"recurrence": FactDoc("what a loop computes as `recurrence_kind` says it", text=True, values=KINDS)},
    find=_facts,
)
