"""A region whose tensors stay narrow: without its conversions, and with less to move."""

from __future__ import annotations

from tracemine.causes.trt_precision_gap.engine import TrtEngine
from tracemine.causes.trt_precision_gap.prices import Prices
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import IntArray

_SAYS = (
    "conversions go, and products write as narrow as they read: priced by the engine's own narrow products of as much "
    "work, and by bytes where it has none"
)


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate regions of one form, all of their layers together."""
    engine = TrtEngine.of(context.timeline)
    prices = Prices(engine)
    by_activity = {layer.activity: layer for layer in engine.layers}
    saved = [prices.saved_ns(by_activity[row]) for row in matrix.reshape(-1).tolist()]
    low, mid, high = (sum(ends) / len(matrix) for ends in zip(*saved, strict=True))
    spent = float(context.facts["activities"].dur_ns[matrix].sum()) / len(matrix)
    after = outwards(max(spent - high, 0.0), max(spent - mid, 0.0), max(spent - low, 0.0))
    return on_gpu(context, matrix, Estimate(after_ns=after, assumptions=(_SAYS,)))
