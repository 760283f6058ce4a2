"""A gradient scaler that nothing needs."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracemine.calls import Call, calls_of
from tracemine.causes.cause import Cause
from tracemine.ops import lookup
from tracemine.rows.arrow import categories, named_at, rows_of
from tracemine.rows.table import Categories, Column, ColumnDoc, Columns, Flags, Rows, Sources, flags
from tracemine.timeline import Timeline

_LIBRARY: Final = frozenset({"gemm", "conv", "attention", "rnn"})
_RANGES: Final = frozenset({"float16", "float8_e4m3fn", "float8_e5m2"})  # whose gradients vanish without a scale
UNSCALES: Final = "aten::_amp_foreach_non_finite_check_and_unscale_"
_MOVES: Final = "aten::_amp_update_scale_"


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    names = categories(sources.timeline.ops["name"])
    scales = named_at(names, rows_of(sources.timeline.activities["op_row"]), UNSCALES, _MOVES)
    return {"needless_scaling": Flags(scales & (scales.any() and _needless(sources.timeline, names, activities)))}


def _needless(timeline: Timeline, names: Categories, activities: Rows) -> bool:
    """Return whether all products, convolutions and attention are recorded, and none takes a type of small range."""
    if flags(activities, "graph").any():  # a graph's kernels tell no types
        return False
    library = names.that(lambda name: (known := lookup(name)) is not None and known.op_class in _LIBRARY)
    launched = np.zeros(len(library), np.bool_)
    op_row = rows_of(timeline.activities["op_row"])
    launched[op_row[op_row >= 0]] = True
    calls, _ = calls_of(timeline).distinct(np.flatnonzero(library & launched))
    return bool(calls) and all(call.dtypes is not None and not _takes_small_range(call) for call in calls)


def _takes_small_range(call: Call) -> bool:
    return any(call.dtype(place) in _RANGES for place in range(len(call.dtypes or ())))


COLUMNS = Columns(
    docs=(
        ColumnDoc("needless_scaling", "flags", "part of what a GradScaler does to gradients (checks and unscales them, or moves its scale on), where no product, convolution or attention of the recording takes float16 or float8; not where one's inputs were not recorded, or a CUDA graph was replayed"),
    ),
    derive=_columns,
)  # fmt: skip


CAUSE = Cause(rule="scaler_needless", columns=COLUMNS, fix_at=f"{__name__}.fix:FIX")
