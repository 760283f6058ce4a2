"""Products of what was quantised, computed at full width."""

from __future__ import annotations

from typing import Final

from tracemine.calls import calls_of
from tracemine.causes.cause import Cause
from tracemine.causes.inference_in_float32 import of_type
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.library import recorded_call
from tracemine.rows.table import IntArray, category, number

_NARROW: Final = {"int8": "int8", "float8_e4m3fn": "fp8"}
_USUAL = 0.65  # of the product's time: what one of 8 bits takes as a rule
_SUM_BYTES, _WIDE_BYTES = 4, 2  # an element of what int8 sums in, and of half precision


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate equal products with what dequantises their operands, and what rounds their result."""
    rows, facts = context.rows["activities"], context.facts["activities"]
    kind = category(rows, "op_class").among("gemm", "conv")[matrix[0]]
    products, around = matrix[:, kind], matrix[:, ~kind]
    sources = [_source(context, int(row)) for row in around[0].tolist()]
    narrow = {source for source in sources if source in _NARROW}
    call = recorded_call(context.timeline, int(facts.op_row[products[0, 0]]))
    if len(narrow) != 1 or call is None or context.rates is None or context.curves is None:
        return Abstained("rate_unknown")
    if sum(source in _NARROW for source in sources) == 1 and not _mostly_narrow(context):
        return Abstained("nothing_to_win")
    measured_ns = float(facts.dur_ns[matrix].mean(axis=0).sum())
    product_ns = float(facts.dur_ns[products].mean(axis=0).sum())
    usual = context.rates.ns(call.operation, _NARROW[narrow.pop()], call.flops, call.nbytes // 2)
    written = int(number(rows, "bytes_written", null=-1)[products[0]].max())
    if usual is None or written < 0:
        return Abstained("rate_unknown")
    elements = written / _WIDE_BYTES
    scaled_ns = context.curves.memory_ns(_SUM_BYTES * elements, _WIDE_BYTES * elements, 0.0)
    low, mid = min(usual.low, product_ns), min(max(usual.mid, _USUAL * product_ns), product_ns)
    text = "modelled: low end: scales in the product's own kernel; middle: two thirds of it, and one pass behind it"
    after = outwards(min(low, measured_ns), min(mid + scaled_ns, measured_ns), measured_ns)
    return on_gpu(context, matrix, Estimate(after_ns=after, assumptions=(text,)))


def _mostly_narrow(context: ScanContext) -> bool:
    """Return whether most operations of products are of 8 bits."""
    return of_type(context, *_NARROW) > of_type(context, "float16", "bfloat16", "float32")


def _source(context: ScanContext, row: int) -> str | None:
    """Return the type of what a copy, or a dequantisation, reads."""
    call = calls_of(context.timeline).at(int(context.facts["activities"].op_row[row]))
    return None if call is None else call.dtype(1 if call.name == "aten::copy_" else 0)


CAUSE = Cause(rule="quantised_product_widened", estimate=estimate, fix_at=f"{__name__}.fix:FIX")
