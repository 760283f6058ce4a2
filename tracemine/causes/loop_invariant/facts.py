"""What advice asks of work that gives the same in each step."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.causes.loop_invariant.columns import KINDS
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.labels import text_at
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.rows.table import BoolArray, category


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return which kind of work it is."""
    if rule.rows == "gaps":
        return {}
    first = int(classes[0].matrix.reshape(-1)[0])
    return {"invariant": text_at(category(context.rows["activities"], "invariant_kind"), first)}


FACTS = AdviceFacts(
    docs={
        "invariant": FactDoc(
            "what work gives that is the same in every step, as `invariant_kind` says it", text=True, values=KINDS
        )
    },
    find=_facts,
)
