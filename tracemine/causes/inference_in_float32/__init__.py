"""Products, convolutions and attention in float32 where half precision would do: a whole model, run without gradients.

Modelled: what calls of half the bytes reach in half precision, with what was measured once as the middle. A residual
network of 3x3 convolutions took 1.61 ms in bfloat16 where it took 2.30 in TF32, both in channels_last (H200).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from tracemine.causes.cause import Cause
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.rule import Rule
from tracemine.ops.infer.library import LibraryCall
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.library_rates import peak_of
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.library import recorded_call
from tracemine.rows.table import BoolArray, IntArray, category, flags, number

_LEAST: Final = 1.3  # times as long as in half precision: less is the model's own error
_MIDDLE: Final = {"attention": 0.4}  # of its time; fused kernels of attention take half precision alone
_USUAL: Final = 0.65
_FEW: Final = 0.05  # of the operations in float32: so many in half precision, and the type was chosen call by call


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate a model's calls in half precision, where nothing is trained and all of them are float32."""
    half, wide = (of_type(context, *types) for types in (("float16", "bfloat16"), ("float32",)))
    if context.training or half > _FEW * wide:
        return Abstained("nothing_to_win")
    return on_gpu(context, matrix, in_half(context, matrix, context.facts["activities"].dur_ns >= 0))


def of_type(context: ScanContext, *types: str) -> int:
    """Return the operations of libraries' calls on tensors of these types."""
    rows = context.rows["activities"]
    chosen = category(rows, "dtype").among(*types) & ~flags(rows, "auxiliary")
    return int(number(rows, "call_flops")[chosen].astype(np.float64).sum())


def in_half(context: ScanContext, matrix: IntArray, stays: BoolArray) -> Estimate | Abstained:
    """Estimate identical calls in half precision. stays: what is computed then too; the rest of them is not."""
    facts = context.facts["activities"]
    kept = stays[matrix[0]]
    measured_ns = float(facts.dur_ns[matrix[:, kept]].mean(axis=0).sum())
    calls = {int(row): recorded_call(context.timeline, int(row)) for row in set(facts.op_row[matrix[0][kept]].tolist())}
    usual = [
        None
        if call is None or context.rates is None
        else context.rates.ns(call.operation, "half", call.flops, call.nbytes // 2)
        for call in calls.values()
    ]
    known = [each for each in usual if each is not None]
    if not known or len(known) < len(usual):
        return Abstained("rate_unknown")
    if measured_ns < _LEAST * sum(each.mid for each in known):
        return _by_arithmetic(context, calls.values(), measured_ns)
    share = max(_MIDDLE.get(call.operation, _USUAL) for call in calls.values() if call is not None)
    low, mid = sum(each.low for each in known), max(sum(each.mid for each in known), share * measured_ns)
    text = (
        "modelled: low end: as calls in half precision usually take; middle: two thirds (attention two fifths) of now"
    )
    return Estimate(after_ns=outwards(min(low, mid), mid, measured_ns), assumptions=(text,))


def _by_arithmetic(
    context: ScanContext, calls: Iterable[LibraryCall | None], measured_ns: float
) -> Estimate | Abstained:
    """Estimate calls that do more than such calls in half precision usually do: what is usual says nothing of them.

    Half precision takes half of the time that TF32's arithmetic takes at its peak; all else is taken to last as long.
    """
    peaks = [None if context.rates is None else peak_of(context.rates.device, each) for each in ("tf32", "half")]
    flops = sum(call.flops for call in calls if call is not None)
    now, then = (1e9 * flops / peak if peak else 0.0 for peak in peaks)
    after = measured_ns - (now - then)
    if not 0 < then < now <= measured_ns or measured_ns < _LEAST * after:
        return Abstained("at_its_rate")
    text = "modelled: low end: the data sheet's rate of half precision; middle: its arithmetic alone takes half as long"
    return Estimate(after_ns=outwards(then, after, measured_ns), assumptions=(text,))


CAUSE = Cause(
    rule="inference_in_float32",
    estimate=estimate,
    ways={"ways": ("half",), "assumes": ("results are right as half precision rounds, not equal to eager's",)},
)
