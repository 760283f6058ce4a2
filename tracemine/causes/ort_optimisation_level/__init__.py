"""Nodes that ONNX Runtime joins at a higher level of optimisation."""

from __future__ import annotations

import numpy as np

from tracemine.calls import Call, calls_of
from tracemine.causes.cause import Cause
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.arrow import coded, rows_of, spread
from tracemine.rows.table import Column, ColumnDoc, Columns, IntArray, Rows, Sources, number


def _part(call: Call) -> tuple[str, int] | tuple[None, None]:
    """Return what a node is part of, and which.

    >>> _part(Call("onnx::Erf", values=("", "node=Erf_3", "part=Gelu#2")))
    ('Gelu', 2)
    """
    part = next((word.removeprefix("part=") for word in call.values or () if word.startswith("part=")), "")
    kind, _, number = part.partition("#")
    return (kind, int(number)) if part else (None, None)


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    calls, of = list[Call](), np.full(activities.count, -1, np.int64)
    if sources.timeline.meta.format == "onnxruntime":
        calls, of = calls_of(sources.timeline).distinct(rows_of(sources.timeline.activities["op_row"]))
    parts = [_part(call) for call in calls]
    return {"ort_part": coded([kind for kind, _ in parts], of), "ort_place": spread([at for _, at in parts], of)}


COLUMNS = Columns(
    docs=(
        ColumnDoc("ort_part", "categories", "of a node that ONNX Runtime executes: what it is a part of that a higher level of optimisation makes one node, one of `LayerNorm`, `RMSNorm`, `Gelu`, `masked softmax`, `scale and softmax`", "part of none, or the optimised model did not lie next to the profile"),
        ColumnDoc("ort_place", "numbers", "which of them in the model", "as ort_part"),
    ),
    derive=_columns,
)  # fmt: skip


_OF_LONGEST = (0.8, 1.2, 2.0)  # of the longest kernel's time: it reads and writes the tensor once, as one kernel does


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate the kernels of one such part as one kernel, by the longest of them."""
    longest = number(context.rows["activities"], "dur_ns")[matrix].max(axis=1).mean()
    after = outwards(*(float(longest) * share for share in _OF_LONGEST))
    says = "one kernel takes what the longest of them does, up to twice as long"
    return on_gpu(context, matrix, Estimate(after_ns=after, assumptions=(says,)))


CAUSE = Cause(rule="ort_optimisation_level", columns=COLUMNS, estimate=estimate)
