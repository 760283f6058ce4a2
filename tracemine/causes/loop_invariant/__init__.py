"""Work that gives the same in each step.

columns.py   work that gives the same in every step
fix.py       the calls, once before the step
"""

from __future__ import annotations

from msgspec.structs import replace

from tracemine.causes.cause import Cause
from tracemine.causes.column_fact import column_fact
from tracemine.causes.loop_invariant.columns import COLUMNS, KINDS
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import remove
from tracemine.flow import Evidence
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained
from tracemine.rows.table import IntArray

_TAKEN_AS_SAME = "numbers that were not recorded, and tensors from before the recording, stay as they are (assumed)"


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate work that is done once, before the steps."""
    found = remove(context, rule, matrix)
    if isinstance(found, Abstained) or found.evidence == Evidence.PROVEN.name.lower():
        return found
    return replace(found, assumptions=(*found.assumptions, _TAKEN_AS_SAME))


_FACTS = column_fact("invariant", "what work gives that is the same in every step", "invariant_kind", KINDS)
CAUSE = Cause(rule="loop_invariant", columns=COLUMNS, facts=_FACTS, estimate=estimate, fix_at=f"{__name__}.fix:FIX")
