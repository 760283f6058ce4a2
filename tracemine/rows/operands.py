"""Operands of operators: weights that autocast copies, caches that grow by a row, widths.

Each distinct call is looked at once.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tracemine.calls import Call, Calls, calls_of
from tracemine.columns import codes, examples
from tracemine.rows.ancestors import taken
from tracemine.rows.arrow import categories, named_at, rows_of
from tracemine.rows.table import BoolArray, Categories, Column, Flags, IntArray, Numbers, Rows, number
from tracemine.timeline import Timeline

# Arguments that are weights or biases, of operators that autocast gives half-width operands, and the activation's.
_WEIGHTS: Final = {
    **dict.fromkeys(("linear", *(f"conv{n}d" for n in (1, 2, 3))), ((1, 2), 0)),
    **dict.fromkeys((f"conv_transpose{n}d" for n in (1, 2, 3)), ((1, 2), 0)),
    "addmm": ((0, 2), 1),
}
_BATCH_NORMS: Final = tuple(
    f"aten::{name}"
    for name in ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit")
)
_TRAINING: Final = 5  # the argument of these that says whether statistics are the batch's
_HALVES: Final = ("float16", "bfloat16")
_GROWS = 16  # times as long as what is appended
_MOST_ROWS = 8
_LEAST_AXES = 3
_BAGS: Final = ("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
_MODE, _WEIGHTED = 4, 6  # arguments of these: sum, mean or max; weights of each sample


def operand_columns(timeline: Timeline, activities: Rows) -> dict[str, Column]:
    """Return `width`, `weight_cast`, `appended`, `running_statistics` and `bags`.

    >>> from tracemine.timeline import Meta
    >>> from tracemine.rows.activities import activity_rows
    >>> empty = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    >>> sorted(operand_columns(empty, activity_rows(empty)))
    ['appended', 'bags', 'running_statistics', 'weight_cast', 'width']
    """
    op_row = rows_of(timeline.activities.column("op_row"))
    names, calls = categories(timeline.ops.column("name")), calls_of(timeline)
    widths = calls.spread(op_row, lambda call: (call.first_tensor[0] or (-1,))[-1], -1)
    bags = _bags(calls, activities, names, op_row)
    return {
        "width": Numbers(np.maximum(widths, 0), widths >= 0),
        "bags": Numbers(np.maximum(bags, 0), bags >= 0),
        "weight_cast": Flags(_weight_casts(timeline, names, op_row)),
        "appended": Flags(calls.spread(op_row, appended, False, np.bool_)),
        "running_statistics": Flags(calls.spread(op_row, in_evaluation, False, np.bool_)),
    }


def _bags(calls: Calls, activities: Rows, names: Categories, op_row: IntArray) -> IntArray:
    """Return a number for like bags, of each bag's kernel and the offsets computed before it; −1: none.

    Of one kind are bags of one width, type and mode, all of them weighted or none.
    """
    rows = np.flatnonzero(named_at(names, op_row, *_BAGS))
    found = np.full(len(op_row), -1, np.int64)
    if not len(rows):
        return found
    own, of = calls.distinct(op_row[rows])
    kinds = [bag_of(call) for call in own]
    code = {kind: at for at, kind in enumerate(dict.fromkeys(kinds))}
    found[rows] = np.array([*(-1 if kind is None else code[kind] for kind in kinds), -1], np.int64)[of]
    before = rows[rows > 0]
    offsets = named_at(names, op_row[before - 1], "aten::arange")
    for name in ("device", "stream", "segment"):
        place = number(activities, name, -1)
        offsets &= place[before] == place[before - 1]
    found[before[offsets] - 1] = found[before[offsets]]
    return found


def bag_of(call: Call) -> tuple[object, ...] | None:
    """Return a call's width, type, mode and whether samples have weights; None without a width.

    >>> shapes, values = ((1000, 128), (640,), (64,)), ("", "", "", "False", "1", "False", "")
    >>> bag_of(Call("aten::_embedding_bag", shapes, ("float", "long int", "long int"), None, values))
    (128, 'float32', '1', False)
    """
    table, kind = call.shape(0), call.dtype(0)
    if table is None or len(table) != 2 or kind is None:
        return None
    return table[1], kind, call.value(_MODE), bool(call.shape(_WEIGHTED))


def _weight_casts(timeline: Timeline, names: Categories, op_row: IntArray) -> BoolArray:
    """Return copies to half width that autocast makes of a product's or convolution's weight or bias.

    Autocast casts within the operator: `aten::linear` > `aten::to` > `aten::_to_copy` > `aten::copy_`.
    """
    parent, calls = rows_of(timeline.ops.column("parent_row")), calls_of(timeline)
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
    if copy.dtype(0) not in _HALVES or copy.dtype(1) != "float32":
        return False
    alike = [at for at, shape in enumerate(operands) if shape == copied[1] and around.dtype(at) == "float32"]
    places, activation = weights
    return any(at in places for at in alike) and activation not in alike


def appended(call: Call) -> bool:
    """Return whether a call is a `cat` of two tensors that appends a few rows to many.

    >>> cats = [((4, 8, 256, 64), (4, 8, 1, 64)), ((4, 8, 1, 64), (4, 8, 256, 64))]
    >>> [appended(Call("aten::cat", (members, ()))) for members in cats]
    [True, False]
    >>> appended(Call("aten::cat", (((4, 256, 8, 64), (4, 1, 8, 64)), ())))  # heads lie within a row
    True
    >>> cats = [((32, 512, 7, 7), (32, 4, 7, 7)), ((32, 512, 7, 64), (32, 1, 7, 60))]  # channels, no cache
    >>> [appended(Call("aten::cat", (members, ()))) for members in cats]
    [False, False]
    """
    members = call.members(0) if call.name == "aten::cat" else ()
    if len(members) != 2:
        return False
    many, few = members
    if len(many) != len(few) or len(many) < _LEAST_AXES:
        return False
    differ = [at for at, (a, b) in enumerate(zip(many, few, strict=True)) if a != b]
    if len(differ) != 1 or not 0 < few[differ[0]] <= _MOST_ROWS or _GROWS * few[differ[0]] > many[differ[0]]:
        return False
    behind = many[differ[0] + 1 :]
    of_heads = len(behind) == 2 and differ[0] > 0 and behind[1] % 8 == 0 and behind[0] != behind[1]
    return len(behind) == 1 or of_heads


def in_evaluation(call: Call) -> bool:
    """Return whether a call is a BatchNorm of which the record says that it is not in training.

    >>> values = ("", "", "", "", "", "False", "0.1", "1e-05")
    >>> in_evaluation(Call("aten::native_batch_norm", values=values))
    True
    """
    return call.name in _BATCH_NORMS and call.value(_TRAINING) == "False"
