"""A layer norm whose kernel is slow for its rows."""

from __future__ import annotations

from math import prod

import msgspec

from tracemine.calls import Call, calls_of
from tracemine.causes.cause import Cause
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.labels import text_at
from tracemine.fusion.kernel import FusedKernel
from tracemine.fusion.roles import steps_of
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, norm_of_its_own
from tracemine.rows.table import IntArray, category, number

_NORMALISED = 1  # the argument that says which axes are normalised


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate a layer norm as one kernel made for its rows; Abstained where that is not clearly faster."""
    rows, members = context.rows["activities"], matrix[0]
    measured_ns = float(context.facts["activities"].dur_ns[matrix].sum(axis=1).mean())
    reads, writes = (int(number(rows, name, null=-1)[members].max()) for name in ("bytes_read", "bytes_written"))
    kernel = _kernel(context, int(members[0]), reads, writes)
    if kernel is None:
        return Abstained("bytes_unknown")
    return on_gpu(context, matrix, norm_of_its_own(kernel, measured_ns, context.curves, in_model=context.has_products))


def _kernel(context: ScanContext, member: int, reads: int, writes: int) -> FusedKernel | None:
    """Return the kernel that normalises the rows of this one, None where they were not recorded."""
    op_row = int(context.facts["activities"].op_row[member])
    operator = text_at(category(context.rows["activities"], "op"), member)
    if op_row < 0 or operator is None or min(reads, writes) <= 0:
        return None
    call = calls_of(context.timeline).at(op_row)
    length = 0 if call is None else _length(call)
    sizes = next(iter(context.lists.calls(context.facts["activities"].op_row[[member]], [""])), None)
    elements = sizes.sizes[0][0] if sizes is not None and sizes.sizes and sizes.sizes[0] else 0
    if not length or elements % length or elements < length:
        return None
    return FusedKernel(
        reads=(reads,),
        writes=(writes,),
        rows=elements // length,
        length=length,
        item_bytes=max(round(writes / elements), 1),
        steps=steps_of(operator),
    )


def _length(call: Call) -> int:
    """Return the elements of a row, 0 where which axes are normalised was not recorded.

    >>> _length(Call("aten::native_layer_norm", values=("", "[64, 128]"))), _length(Call("aten::native_layer_norm"))
    (8192, 0)
    """
    try:
        axes = msgspec.json.decode(call.value(_NORMALISED), type=list[int])
    except msgspec.DecodeError:
        return 0
    return prod(axes) if all(0 < axis < 1 << 40 for axis in axes) and axes else 0


CAUSE = Cause(rule="layer_norm_slow", savings={"norm": estimate})
