"""What advice asks of a loop over tensors."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.labels import text_at
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.rows.table import BoolArray, category


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return what the loop does to each tensor."""
    if rule.rows == "gaps":
        return {}
    first = int(classes[0].matrix.reshape(-1)[0])
    return {"loop": text_at(category(context.rows["activities"], "sweep_kind"), first)}


FACTS = AdviceFacts(
    docs={
        "loop": FactDoc(
            "what a loop over tensors does to each, as `sweep_kind` says it",
            text=True,
            values=("zero", "norm", "average", "update"),
        )
    },
    find=_facts,
)
