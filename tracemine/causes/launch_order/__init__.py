"""Collectives that hold up what was launched behind them on other streams: they hide where streams have own queues."""

from __future__ import annotations

from tracemine.causes.cause import Cause
from tracemine.causes.communication_exposed import shorter
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained
from tracemine.rows.table import IntArray


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate collectives next to which the work behind them runs."""
    return shorter(context, matrix, 1.0, "what was launched behind it runs meanwhile")


CAUSE = Cause(rule="launch_order", estimate=estimate)
