"""A norm in evaluation behind a convolution that could do its work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tracemine.calls import Call, calls_of
from tracemine.causes.cause import Cause
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.flow import Evidence
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import BoolArray, Column, ColumnDoc, Columns, Flags, IntArray, Rows, Sources, category, flags

_BATCH_NORMS: Final = tuple(
    f"aten::{name}"
    for name in ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit")
)
_TRAINING: Final = 5  # the argument of these that says whether statistics are the batch's


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    op_row = rows_of(sources.timeline.activities["op_row"])
    return {"running_statistics": Flags(calls_of(sources.timeline).spread(op_row, in_evaluation, False, np.bool_))}


def in_evaluation(call: Call) -> bool:
    """Return whether a call is a BatchNorm of which the record says that it is not in training.

    >>> values = ("", "", "", "", "", "False", "0.1", "1e-05")
    >>> in_evaluation(Call("aten::native_batch_norm", values=values))
    True
    """
    return call.name in _BATCH_NORMS and call.value(_TRAINING) == "False"


COLUMNS = Columns(
    docs=(
        ColumnDoc("running_statistics", "flags", "a BatchNorm that was recorded with `training=False`: it normalises by its running statistics"),
    ),
    derive=_columns,
)  # fmt: skip


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


CAUSE = Cause(
    rule="batch_norm_evaluated", columns=COLUMNS, estimate=estimate, facts=FACTS, fix_at=f"{__name__}.fix:FIX"
)
