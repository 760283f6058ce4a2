"""Steps of optimizers, by the annotation that torch.optim writes: one number a step."""

from __future__ import annotations

import numpy as np

from tracemine.patterns import deferred
from tracemine.rows.ancestors import nearest, taken
from tracemine.rows.arrow import categories, mapped, rows_of, take
from tracemine.rows.table import BoolArray, Column, IntArray, Numbers
from tracemine.timeline import Timeline

_STEP = deferred(r"Optimizer\.step#(.+)\.step")
_ZEROING = deferred(r"Optimizer\.zero_grad#(.+)\.zero_grad")


def optimizer_of(annotation: str) -> str | None:
    """Return the optimizer's class of an annotation that names its step.

    >>> optimizer_of("Optimizer.step#AdamW.step"), optimizer_of("Optimizer.zero_grad#AdamW.zero_grad")
    ('AdamW', None)
    """
    found = _STEP.fullmatch(annotation)
    return found[1] if found else None


def update_columns(timeline: Timeline) -> dict[str, Column]:
    """Return the columns `optimizer` and `update`: of steps inside each other the innermost.

    >>> from tracemine.timeline import Meta
    >>> sorted(update_columns(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))))
    ['optimizer', 'update']
    """
    optimizer = mapped(categories(timeline.ops["name"]), optimizer_of)
    update = _around(timeline, optimizer.codes >= 0)
    return {"optimizer": take(optimizer, update), "update": Numbers(np.maximum(update, 0), update >= 0)}


def zero_grads(timeline: Timeline) -> IntArray:
    """Return the call of an optimizer's `zero_grad` that launched each activity, a row of `ops`; −1: none."""
    return _around(timeline, categories(timeline.ops["name"]).that(_ZEROING.fullmatch))


def _around(timeline: Timeline, marked: BoolArray) -> IntArray:
    within = nearest(rows_of(timeline.ops["parent_row"]), marked)
    return taken(within, rows_of(timeline.activities["op_row"]))
