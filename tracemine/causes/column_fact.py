"""A fact for advice that a column of activities says already."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.labels import text_at
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.rows.table import BoolArray, category


def column_fact(name: str, says: str, column: str, values: tuple[str, ...]) -> AdviceFacts:
    """Return the fact that is what the column has at a finding's first activity: one of `values`."""

    def find(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
        if rule.rows == "gaps":
            return {}
        first = int(classes[0].matrix.reshape(-1)[0])
        return {name: text_at(category(context.rows["activities"], column), first)}

    return AdviceFacts(docs={name: FactDoc(f"{says}, as `{column}` says it", text=True, values=values)}, find=find)
