"""Weights that are cast to half width in each step: by autocast within their operator, or by the program itself.

Each distinct call is looked at once.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tracemine.calls import Call, calls_of
from tracemine.causes.weight_cast.hand_casts import HALVES, hand_casts
from tracemine.columns import codes, examples
from tracemine.rows.ancestors import taken
from tracemine.rows.arrow import categories, named_at, rows_of
from tracemine.rows.table import BoolArray, Column, ColumnDoc, Columns, Flags, Rows, Sources
from tracemine.timeline import Timeline

# Arguments that are weights or biases, of operators that autocast gives half-width operands, and the activation's.
_WEIGHTS: Final = {
    **dict.fromkeys(("linear", *(f"conv{n}d" for n in (1, 2, 3))), ((1, 2), 0)),
    **dict.fromkeys((f"conv_transpose{n}d" for n in (1, 2, 3)), ((1, 2), 0)),
    "addmm": ((0, 2), 1),
}


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    timeline = sources.timeline
    return {"weight_cast": Flags(_within_operators(timeline) | hand_casts(timeline, activities))}


def _within_operators(timeline: Timeline) -> BoolArray:
    """Return copies to half width that autocast makes of a product's or convolution's weight or bias.

    Autocast casts within the operator: `aten::linear` > `aten::to` > `aten::_to_copy` > `aten::copy_`.
    """
    names, op_row = categories(timeline.ops["name"]), rows_of(timeline.activities["op_row"])
    parent, calls = rows_of(timeline.ops["parent_row"]), calls_of(timeline)
    found = np.zeros(len(op_row), np.bool_)
    rows = np.flatnonzero(named_at(names, op_row, "aten::copy_"))
    at = op_row[rows]
    for name in ("aten::_to_copy", "aten::to"):
        at = taken(parent, at)
        inside = named_at(names, at, name)
        rows, at = rows[inside], at[inside]
    outer = taken(parent, at)
    rows, outer = rows[outer >= 0], outer[outer >= 0]
    if not len(rows):
        return found
    (around, of_around), (copies, of_copy) = calls.distinct(outer), calls.distinct(op_row[rows])
    pair = codes(of_around, of_copy)
    one = examples(pair)
    pairs = zip(of_around[one].tolist(), of_copy[one].tolist(), strict=True)
    found[rows] = np.array([weight_cast(around[a], copies[b]) for a, b in pairs], np.bool_)[pair]
    return found


def weight_cast(around: Call, copy: Call) -> bool:
    """Return whether a copy within an operator takes a weight or bias to half width, and surely not the input.

    >>> linear = Call("aten::linear", ((8, 64), (32, 64), (32,)), ("float", "float", "float"))
    >>> weight_cast(linear, Call("aten::copy_", ((32, 64), (32, 64), ()), ("c10::Half", "float", "Scalar")))
    True
    >>> weight_cast(linear, Call("aten::copy_", ((8, 64), (8, 64), ()), ("c10::Half", "float", "Scalar")))
    False
    """
    weights = _WEIGHTS.get(around.name.removeprefix("aten::"))
    operands, copied = around.shapes or (), copy.shapes or ()
    if weights is None or len(copied) < 2 or len(operands) > len(around.dtypes or ()):
        return False
    if copy.dtype(0) not in HALVES or copy.dtype(1) != "float32":
        return False
    alike = [at for at, shape in enumerate(operands) if shape == copied[1] and around.dtype(at) == "float32"]
    places, activation = weights
    return any(at in places for at in alike) and activation not in alike


COLUMNS = Columns(
    docs=(
        ColumnDoc("weight_cast", "flags", "a copy from float32 to half width that autocast makes of a weight or bias, within `linear`, `addmm` or a convolution: recognised by the argument whose shape it has, and not where the input has the same; or one that the program makes in every step of what is there before, or what an optimizer wrote, for the weight of a product or convolution"),
    ),
    derive=_columns,
)  # fmt: skip
