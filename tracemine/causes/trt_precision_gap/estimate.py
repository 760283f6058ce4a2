"""A region whose tensors stay narrow: what its layers save, by the engine's own narrow products and by bytes moved."""

from __future__ import annotations

from math import inf

from tracemine.causes.trt_precision_gap.engine import EngineLayer, TrtEngine
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import IntArray

Ends = tuple[float, float, float]  # low, middle, high, in nanoseconds

_CONVERSION_STAYS = 0.2  # of a conversion's time at most: what reads its result reads a tensor all the same
_WIDE_ENOUGH = 0.999  # of the work, from which on a product does no less
_SAYS = (
    "conversions go, and products write as narrow as they read: priced by the engine's own narrow products of as much "
    "work, and by bytes where it has none"
)


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate regions of one form, all of their layers together."""
    engine = TrtEngine.of(context.timeline)
    by_activity = {layer.activity: layer for layer in engine.layers}
    saved = [_saved_ns(by_activity[row], engine) for row in matrix.reshape(-1).tolist()]
    low, mid, high = (sum(ends) / len(matrix) for ends in zip(*saved, strict=True))
    spent = float(context.facts["activities"].dur_ns[matrix].sum()) / len(matrix)
    after = outwards(max(spent - high, 0.0), max(spent - mid, 0.0), max(spent - low, 0.0))
    return on_gpu(context, matrix, Estimate(after_ns=after, assumptions=(_SAYS,)))


def _saved_ns(layer: EngineLayer, engine: TrtEngine) -> Ends:
    """Return what a layer of a wide region saves when all in it is narrow."""
    if layer.is_product:
        return _of_product(layer, engine)
    if layer.kind in ("Quantize", "Dequantize", "Reformat", "Shuffle"):
        return (layer.ns * (1 - _CONVERSION_STAYS), layer.ns, layer.ns)
    wide, narrow = layer.nbytes(), layer.nbytes(1)
    share = 1 - narrow / wide if wide else 0.0
    # Limited by memory; a product may take in a pooling, or what is computed element by element.
    return (layer.ns * share / 2, layer.ns * (1 + share) / 2, float(layer.ns)) if share else (0.0, 0.0, 0.0)


def _of_product(layer: EngineLayer, engine: TrtEngine) -> Ends:
    """Return what a product saves by writing narrow elements.

    Between what narrow products of the engine take that do as much, and what those do that also sum as deep: for
    few elements the depth decides. Without such products by bytes: at the engine's best rate, and at the layer's.
    """
    larger = [peer for peer in engine.narrow_products if layer.work and peer.work >= _WIDE_ENOUGH * layer.work]
    if not larger:
        wide, narrow = layer.nbytes(), layer.nbytes(1)
        fastest = (wide - narrow) / engine.bytes_per_ns
        slowest = max(layer.ns * (1 - narrow / wide), fastest) if wide else 0.0
        return fastest / 2, (fastest + slowest) / 2, slowest
    most = _beyond(layer, larger, engine.bytes_per_ns)
    least = _beyond(layer, [peer for peer in larger if peer.depth >= layer.depth], engine.bytes_per_ns)
    return least, (least + most) / 2, most


def _beyond(layer: EngineLayer, narrow: list[EngineLayer], rate: float) -> float:
    """Return how much longer a product takes than the fastest of these would with its bytes; 0 without any."""
    own = layer.nbytes(1)
    return max(layer.ns - min((peer.ns + max(own - peer.nbytes(), 0) / rate for peer in narrow), default=inf), 0.0)
