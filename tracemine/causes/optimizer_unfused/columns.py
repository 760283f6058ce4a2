"""How an optimizer's step is done: fused already, over lists, a parameter at a time."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracemine.rows.arrow import coded
from tracemine.rows.docs import NO_UPDATE
from tracemine.rows.table import BoolArray, Column, ColumnDoc, Columns, IntArray, Rows, Sources, category, flags, number
from tracemine.rows.updates import written_out

STYLES: Final = ("fused", "compiled", "other", "lists", "loop", "own")
_FUSED, _COMPILED, _OTHER, _LISTS, _LOOP, _OWN = range(len(STYLES))
# What an update is made of that one kernel a list of parameters can do. Norms of whole layers need a pass of their own.
_POINTWISE: Final = ("pointwise", "foreach", "copy", "fill")
_HOST_BYTES = 4096  # copied between host and device in a step: more is a state that lies on the host


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    own = written_out(sources.timeline)
    return {"update_style": coded(STYLES, _styles(activities, number(activities, "update", -1), own))}


def _styles(activities: Rows, update: IntArray, own: BoolArray) -> IntArray:
    """Return how the step that each activity belongs to is done; −1: it belongs to none. own: those that code of the
    program's own launched.
    """
    inside = np.flatnonzero(update >= 0)
    _, of = np.unique(update[inside], return_inverse=True)
    if not len(inside):
        return np.full(len(update), -1, np.int64)
    op_class, moved = category(activities, "op_class"), number(activities, "bytes_moved", -1)
    copies = category(activities, "copy_kind").among("HtoD", "DtoH") & (moved > _HOST_BYTES)
    fused = op_class.among("optimizer") | flags(activities, "handwritten")
    compiled = flags(activities, "compiled") | flags(activities, "generated") | flags(activities, "graph")
    other = copies | ~(op_class.among(*_POINTWISE) | fused | compiled)
    lists = np.where(op_class.among("foreach"), 2, -2) * number(activities, "dur_ns", -1) + 1

    def any_of(flags: BoolArray) -> BoolArray:
        return np.bincount(of, flags[inside]) > 0

    style = np.where(np.bincount(of, lists[inside]) > 0, _LISTS, np.where(any_of(~own), _LOOP, _OWN))
    for has, name in ((other, _OTHER), (compiled, _COMPILED), (fused, _FUSED)):
        style[any_of(has)] = name
    found = np.full(len(update), -1, np.int64)
    found[inside] = style[of]
    return found


COLUMNS = Columns(
    docs=(
        ColumnDoc("update_style", "categories", "how that step is done: `fused` (a fused optimizer's kernels, or another library's), `compiled` (by torch.compile, or replayed from a CUDA graph), `other` (something else than pointwise operators, copies and fills is part of it: products, norms, collectives, sparse rows, a state on the host), `lists` (most of its time in `_foreach_*`), `loop` (a parameter at a time), `own` (likewise, by code of the program's own)", NO_UPDATE),
    ),
    derive=_columns,
)  # fmt: skip
