"""A norm folded into the layer before it, or one kernel for the norm and what follows: which of both saves what."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.flow import Evidence
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import BoolArray, IntArray, category, flags


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate norms whose layer adds a bias already as folded by hand: what follows stays. Of others folding leaves
    the addition of a bias, so that one kernel for all is what counts; folding then is the worst end.
    """
    assert rule.left is not None  # noqa: S101 - as the rule was read
    norm, biased = _parts(context, matrix)
    spent = context.facts["activities"].dur_ns[matrix].mean(axis=0)
    norm_ns, other_ns = float(spent[norm].sum()), float(spent[~norm].sum())
    least, usual, most = (0.0, 0.0, rule.left[1]) if biased else rule.left
    fused, evidence = context.savings[rule.saving](context, rule, matrix), Evidence.PROVEN
    best_ns = usual_ns = folded_ns = other_ns + usual * norm_ns
    if not isinstance(fused, Abstained) and fused.fused_ns is not None:
        best_ns, evidence = fused.fused_ns.low / len(matrix), Evidence[fused.evidence.upper()]
        usual_ns = folded_ns if biased else min(fused.fused_ns.mid / len(matrix), folded_ns)
    after_ns = outwards(min(best_ns, other_ns + least * norm_ns), usual_ns, other_ns + most * norm_ns)
    notes = (
        f"folded by hand, {usual:.0%} of the norm's time stays as the addition of a bias, and what follows it as it is",
        "one kernel for what follows as well needs a compiler: it is the "
        + ("low end" if usual_ns == folded_ns else "middle, and folding by hand the high end"),
    )
    return on_gpu(context, matrix, Estimate(after_ns=after_ns, assumptions=notes), evidence)


def _parts(context: ScanContext, matrix: IntArray) -> tuple[BoolArray, bool]:
    """Return which of a match's activities are the norm's, copies of its statistics included; and whether a bias is
    added before it.
    """
    rows, members = context.rows["activities"], matrix[0]
    of_norm = flags(rows, "running_statistics")[members]
    before = members < members[of_norm].min()
    bias = before & category(rows, "operation").among("add")[members]
    return of_norm | (before & ~bias), bool(bias.any())


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return whether most of the norms' layers add a bias."""
    biased = sum(one.measured_ns for one in classes if _parts(context, one.matrix)[1])
    return {"biased": 2 * biased > sum(one.measured_ns for one in classes)}


FACTS = AdviceFacts(
    docs={"biased": FactDoc("a bias is added before most of the norms, by a kernel of its own")}, find=_facts
)
