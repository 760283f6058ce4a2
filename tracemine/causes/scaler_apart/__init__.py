"""Gradients unscaled in a pass of their own."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracemine.causes.cause import Cause
from tracemine.causes.scaler_needless import UNSCALES
from tracemine.rows.arrow import categories, named_at, rows_of
from tracemine.rows.table import BoolArray, Column, ColumnDoc, Columns, Flags, Rows, Sources, category, flags

_ASKED: Final = "aten::_local_scalar_dense"  # whether anything was infinite


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    names, op_row = categories(sources.timeline.ops["name"]), rows_of(sources.timeline.activities["op_row"])
    apart = named_at(names, op_row, UNSCALES) & ~flags(activities, "needless_scaling")
    if apart.any():
        apart &= _right_before_updates(activities, apart | named_at(names, op_row, _ASKED))
    return {"unscaled_apart": Flags(apart)}


def _right_before_updates(activities: Rows, passed: BoolArray) -> BoolArray:
    """Return whether the next activity that is not `passed` is of an optimizer's step over lists or in a loop."""
    rows = np.where(passed, len(passed), np.arange(len(passed)))
    behind = np.minimum.accumulate(rows[::-1])[::-1]  # the next at or behind each
    style = category(activities, "update_style")
    apart = [code for code, name in enumerate(style.values) if name in ("lists", "loop")]
    updates = np.append(np.isin(style.codes, apart), False)
    found: BoolArray = updates[behind]
    return found


COLUMNS = Columns(
    docs=(
        ColumnDoc("unscaled_apart", "flags", "checks gradients for infinities and unscales them right before the step of an optimizer over lists or in a loop, where something takes float16 or float8; a fused one does it in its own pass"),
    ),
    derive=_columns,
    needs=("needless_scaling", "update_style"),
)  # fmt: skip


CAUSE = Cause(rule="scaler_apart", columns=COLUMNS)
