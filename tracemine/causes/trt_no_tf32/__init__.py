"""A product of FP32 whose channels fill no vector, where the engine's others are computed in TF32."""

from __future__ import annotations

from statistics import median

from tracemine.causes.cause import Cause
from tracemine.causes.trt_precision_gap import TrtEngine
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import IntArray

_SLOWER = (1.0, 1.5, 3.0)  # than the engine's products of TF32, for the channels that are padding


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate products at the rate of those that are computed in TF32, no faster than their bytes are moved."""
    engine = TrtEngine.of(context.timeline)
    rates = [
        peer.work / peer.ns
        for peer in engine.layers
        if peer.is_product and peer.ns and "tf32" in peer.facts.get("tactic", "")
    ]
    layer = next(peer for peer in engine.layers if peer.activity == int(matrix[0, 0]))
    if not layer.work or not median(rates):
        return Abstained("bytes_unknown")
    least = max(layer.work / median(rates), layer.nbytes() / engine.bytes_per_ns)
    low, mid, high = (min(least * times, layer.ns) for times in _SLOWER)
    says = "as fast as the engine's products of TF32, or up to three times as slow"
    return on_gpu(context, matrix, Estimate(after_ns=outwards(low, mid, high), assumptions=(says,)))


CAUSE = Cause(rule="trt_no_tf32", estimate=estimate)
