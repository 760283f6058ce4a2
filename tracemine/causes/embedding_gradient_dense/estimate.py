"""Gradients of the rows alone that were looked up: what that saves.

Modelled, with what sparse gradients cost as measured once: 16 tables of 100,000 rows, whose dense gradients and updates
took 1.8 ms, took 10 ms longer a step with `sparse=True` and SparseAdam (H200, torch 2.11): 0.7 ms a table.
"""

from __future__ import annotations

from typing import Final

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import IntArray, number

_TABLE_NS: Final = (400_000, 700_000, 1_200_000)  # sorting, making unique and updating the rows of one


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate sparse gradients and updates, where that is less than what runs now even at the high end."""
    rows, members = context.rows["activities"], matrix[0]
    mean_ns = context.facts["activities"].dur_ns[matrix].mean(axis=0)
    tables, percent = int(number(rows, "dense_tables")[members[0]]), number(rows, "dense_percent")[members]
    stays_ns = float((mean_ns * (100 - percent) / 100).sum())
    after = outwards(*(stays_ns + tables * each for each in _TABLE_NS))
    if after.high >= mean_ns.sum():
        return Abstained("nothing_to_win")
    text = f"modelled: a sparse gradient and its update take {_TABLE_NS[1] / 1e6:g} ms a table, most of it the host's"
    return on_gpu(context, matrix, Estimate(after_ns=after, assumptions=(text,)))
