"""A weight that is dequantised for a product of few rows."""

from __future__ import annotations

from typing import Final

from tracemine.causes.cause import Cause
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import IntArray, category, number

_WIDE_BYTES: Final = 2  # an element of the dequantised weight, as far as it is in half precision
_SLOWER: Final = (1.25, 1.6, 2.2)  # than the codes are read at the memory's bandwidth: of 16 shapes on an H200


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate a product that reads codes: their bytes, at the rates that a generated kernel had."""
    rows, facts = context.rows["activities"], context.facts["activities"]
    cast = category(rows, "op_class").among("copy")[matrix[0]]
    written = int(number(rows, "bytes_written", null=-1)[matrix[0, cast]].max(initial=-1))
    if written <= 0 or context.curves is None:
        return Abstained("rate_unknown")
    measured_ns = float(facts.dur_ns[matrix].mean(axis=0).sum())
    read_ns = context.curves.memory_ns(written // _WIDE_BYTES, 0, 0.0)
    low, mid, high = (min(factor * read_ns, measured_ns) for factor in _SLOWER)
    text = "modelled: the codes are read once, at 0.45 to 0.8 of the memory's bandwidth"
    return on_gpu(context, matrix, Estimate(after_ns=outwards(low, mid, high), assumptions=(text,)))


CAUSE = Cause(rule="dequantised_product", estimate=estimate)
