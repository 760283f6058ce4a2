"""What advice asks of logits."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.causes.logits_written.columns import USES
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.labels import text_at
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.rows.table import BoolArray, category


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return what the logits are for."""
    if rule.rows == "gaps":
        return {}
    first = int(classes[0].matrix.reshape(-1)[0])
    return {"logits_for": text_at(category(context.rows["activities"], "logits_use"), first)}


FACTS = AdviceFacts(
    docs={"logits_for": FactDoc("what logits are for, as `logits_use` says it", text=True, values=USES)}, find=_facts
)
