"""Small messages that are sent one after another: what one of the sum saves."""

from __future__ import annotations

import numpy as np

from tracemine.causes.cause import Cause
from tracemine.causes.communication_exposed import shorter
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained
from tracemine.rows.table import IntArray, number


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate all messages of a run as one: it takes the latency of one of them."""
    run = number(context.rows["activities"], "small_run", -1)
    joined = float(np.median(np.bincount(run[run >= 0])[run[matrix.reshape(-1)]]))
    return shorter(context, matrix, 1 - 1 / joined, f"one message of {joined:g} takes the latency of one of them")


CAUSE = Cause(rule="small_messages", estimate=estimate)
