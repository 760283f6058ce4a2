"""Buffers that each forward pass begins with sending: what is left without."""

from __future__ import annotations

import numpy as np

from tracemine.causes.cause import Cause
from tracemine.causes.communication_exposed import transfers_ns
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.communication import of_communication
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import IntArray, number


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate a forward pass without: its copies go, and of the broadcast what is transfer; at most all of it."""
    sent = of_communication(context)[matrix]
    spent = np.where(sent, number(context.rows["activities"], "exposed_ns")[matrix], context.accounts.dur_ns[matrix])
    exposed = float(np.where(sent, spent, 0).sum(axis=1).mean())
    transfer = float(transfers_ns(context, matrix[sent]).sum()) / len(matrix)
    found = Estimate(
        after_ns=outwards(0, exposed - transfer, exposed),
        assumptions=(
            "without the broadcast its copies are not launched; low end: all of the broadcast is waiting for rank 0, "
            "which is then waited for elsewhere; high end: all of it goes",
        ),
    )
    return on_gpu(context, matrix, found, measured_ns=int(spent.sum()))


CAUSE = Cause(rule="buffers_broadcast", estimate=estimate)
