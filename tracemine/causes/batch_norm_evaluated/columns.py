"""Norms that use their running statistics."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracemine.calls import Call, calls_of
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import Column, ColumnDoc, Columns, Flags, Rows, Sources

_BATCH_NORMS: Final = tuple(
    f"aten::{name}"
    for name in ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit")
)
_TRAINING: Final = 5  # the argument of these that says whether statistics are the batch's


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    op_row = rows_of(sources.timeline.activities["op_row"])
    return {"running_statistics": Flags(calls_of(sources.timeline).spread(op_row, in_evaluation, False, np.bool_))}


def in_evaluation(call: Call) -> bool:
    """Return whether a call is a BatchNorm of which the record says that it is not in training.

    >>> values = ("", "", "", "", "", "False", "0.1", "1e-05")
    >>> in_evaluation(Call("aten::native_batch_norm", values=values))
    True
    """
    return call.name in _BATCH_NORMS and call.value(_TRAINING) == "False"


COLUMNS = Columns(
    docs=(
        ColumnDoc("running_statistics", "flags", "a BatchNorm that was recorded with `training=False`: it normalises by its running statistics"),
    ),
    derive=_columns,
)  # fmt: skip
