"""Columns of nodes that ONNX Runtime joins at a higher level of optimisation."""

from __future__ import annotations

import numpy as np

from tracemine.calls import Call, calls_of
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import Categories, Column, ColumnDoc, Columns, Numbers, Rows, Sources

_PART = "part="


def _part(call: Call) -> str:
    """Return what a node is part of, and which; "": nothing.

    >>> _part(Call("onnx::Erf", values=("", "node=Erf_3", "part=Gelu#2")))
    'Gelu#2'
    """
    return next((word.removeprefix(_PART) for word in call.values or () if word.startswith(_PART)), "")


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    parts = np.full(activities.count, "", object)
    if sources.timeline.meta.format == "onnxruntime":
        parts = calls_of(sources.timeline).spread(rows_of(sources.timeline.activities["op_row"]), _part, "", object)
    kinds = tuple(sorted({part.partition("#")[0] for part in parts if part}))
    code = np.array([kinds.index(part.partition("#")[0]) if part else -1 for part in parts], np.int32)
    place = np.array([int(part.partition("#")[2]) if part else -1 for part in parts], np.int64)
    return {"ort_part": Categories(code, kinds), "ort_place": Numbers(place, code >= 0)}


COLUMNS = Columns(
    docs=(
        ColumnDoc("ort_part", "categories", "of a node that ONNX Runtime executes: what it is a part of that a higher level of optimisation makes one node, one of `LayerNorm`, `RMSNorm`, `Gelu`, `masked softmax`, `scale and softmax`", "part of none, or the optimised model did not lie next to the profile"),
        ColumnDoc("ort_place", "numbers", "which of them in the model", "as ort_part"),
    ),
    derive=_columns,
)  # fmt: skip
