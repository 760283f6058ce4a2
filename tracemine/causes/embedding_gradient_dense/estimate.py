"""Gradients of the rows alone that were looked up: what that saves.

Modelled, with what sparse gradients cost as measured once: 16 tables of 100,000 rows, whose dense gradients and updates
took 1.8 ms, took 10 ms longer a step with `sparse=True` and SparseAdam (H200, torch 2.11): 0.7 ms a table. Plain SGD
adds the rows to the table: nothing is sorted, nor made unique.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import BoolArray, IntArray, number

_TABLE_NS: Final = (400_000, 700_000, 1_200_000)  # sorting, making unique and updating the rows of one
_ADDED_NS: Final = (15_000, 40_000, 120_000)  # adding them


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate sparse gradients and updates, where that is less than what runs now even at the high end."""
    rows, members = context.rows["activities"], matrix[0]
    mean_ns = context.facts["activities"].dur_ns[matrix].mean(axis=0)
    tables, percent = int(number(rows, "dense_tables")[members[0]]), number(rows, "dense_percent")[members]
    stays_ns = float((mean_ns * (100 - percent) / 100).sum())
    table_ns = _ADDED_NS if _added(context, members) else _TABLE_NS
    after = outwards(*(stays_ns + tables * each for each in table_ns))
    if after.high >= mean_ns.sum():
        return Abstained("nothing_to_win")
    text = f"modelled: a sparse gradient and its update take {table_ns[1] / 1e6:g} ms a table, most of it the host's"
    return on_gpu(context, matrix, Estimate(after_ns=after, assumptions=(text,)))


def _added(context: ScanContext, rows: IntArray) -> bool:
    """Return whether all that the optimizer does is to add gradients to tables: SGD without momentum or decay."""
    facts = context.facts["activities"]
    rows = rows[facts.optimizer.codes[rows] >= 0]
    return bool(len(rows)) and bool(facts.op.among("aten::_foreach_add_", "aten::add_")[rows].all())


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return whether updates add gradients alone."""
    if rule.id != "embedding_gradient_dense":
        return {}
    return {"only_added": _added(context, np.concatenate([one.matrix.reshape(-1) for one in classes]))}


FACTS = AdviceFacts(
    docs={"only_added": FactDoc("the optimizer adds gradients to tables, and does nothing else with them")}, find=_facts
)
