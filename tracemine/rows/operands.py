"""Operands of operators: weights that autocast copies, caches that grow by a row, widths.

Each distinct text is read once.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from tracemine.ops import dtype
from tracemine.rows.ancestors import taken
from tracemine.rows.arrow import categories, named_at, rows_of, take
from tracemine.rows.codes import distinct
from tracemine.rows.table import BoolArray, Categories, Column, Flags, IntArray, Numbers, Rows, number
from tracemine.timeline import Timeline

# Arguments that are weights or biases, of operators that autocast gives half-width operands, and the activation's.
_WEIGHTS: Final = {
    **dict.fromkeys(("linear", *(f"conv{n}d" for n in (1, 2, 3))), ((1, 2), 0)),
    **dict.fromkeys((f"conv_transpose{n}d" for n in (1, 2, 3)), ((1, 2), 0)),
    "addmm": ((0, 2), 1),
}
_BATCH_NORMS: Final = ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit")
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
    names, shapes = (categories(timeline.ops.column(name)) for name in ("name", "input_shapes"))
    shape = activities.columns["shape"]
    assert isinstance(shape, Categories)  # noqa: S101 - the row set's documented kind
    widths = np.array([*(_last(text) for text in shape.values), -1], np.int64)[shape.codes]
    cats = named_at(names, op_row, "aten::cat")
    appends = np.array([*(appended(text) for text in shapes.values), False], np.bool_)
    own = take(shapes, op_row).codes
    norms = named_at(names, op_row, *(f"aten::{name}" for name in _BATCH_NORMS))
    given = categories(timeline.ops.column("concrete_inputs"))
    evaluated = np.array([*(in_evaluation(text) for text in given.values), False], np.bool_)
    bags = _bags(timeline, activities, names, shapes, op_row)
    return {
        "width": Numbers(np.maximum(widths, 0), widths >= 0),
        "bags": Numbers(np.maximum(bags, 0), bags >= 0),
        "weight_cast": Flags(_weight_casts(timeline, names, shapes, op_row)),
        "appended": Flags(cats & appends[own]),
        "running_statistics": Flags(norms & evaluated[take(given, op_row).codes]),
    }


def _bags(timeline: Timeline, activities: Rows, names: Categories, shapes: Categories, op_row: IntArray) -> IntArray:
    """Return a number for like bags, of each bag's kernel and the offsets computed before it; −1: none.

    Alike are bags of one width, type and mode, all of them weighted or none.
    """
    rows = np.flatnonzero(named_at(names, op_row, *_BAGS))
    found = np.full(len(op_row), -1, np.int64)
    if not len(rows):
        return found
    own = [take(categories(timeline.ops.column(name)), op_row[rows]) for name in _CALLED]
    combinations, of = distinct(take(shapes, op_row[rows]), *own)
    kinds = [bag_of(*each) for each in combinations]
    code = {kind: at for at, kind in enumerate(dict.fromkeys(kinds))}
    found[rows] = np.array([*(-1 if kind is None else code[kind] for kind in kinds), -1], np.int64)[of]
    before = rows[rows > 0]
    offsets = named_at(names, op_row[before - 1], "aten::arange")
    for name in ("device", "stream", "segment"):
        place = number(activities, name, -1)
        offsets &= place[before] == place[before - 1]
    found[before[offsets] - 1] = found[before[offsets]]
    return found


_CALLED: Final = ("input_dtypes", "concrete_inputs")


def bag_of(shapes: str | None, types: str | None, concrete: str | None) -> tuple[object, ...] | None:
    """Return a call's width, type, mode and whether samples have weights; None without an integer width.

    >>> concrete = '["","","","False","1","False",""]'
    >>> bag_of("[[1000,128],[640],[64],[],[],[],[]]", '["float","long int","long int"]', concrete)
    (128, 'float32', '1', False)
    """
    table, *others = _decoded(shapes) or [None]
    kinds, given = _decoded(types), _decoded(concrete)
    kind = dtype(str(kinds[0])) if kinds else None
    if not isinstance(table, list) or len(table) != 2 or not isinstance(table[1], int) or kind is None:
        return None
    return (
        table[1],
        kind,
        str(given[_MODE]) if len(given) > _MODE else None,
        len(others) >= _WEIGHTED and bool(others[_WEIGHTED - 1]),
    )


def _weight_casts(timeline: Timeline, names: Categories, shapes: Categories, op_row: IntArray) -> BoolArray:
    """Return copies to half width that autocast makes of a product's or convolution's weight or bias.

    Autocast casts within the operator: `aten::linear` > `aten::to` > `aten::_to_copy` > `aten::copy_`.
    """
    parent, types = rows_of(timeline.ops.column("parent_row")), categories(timeline.ops.column("input_dtypes"))
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
    own = op_row[rows]
    columns, calls = (names, shapes, types, shapes, types), (outer, outer, outer, own, own)
    combinations, of = distinct(*(take(column, call) for column, call in zip(columns, calls, strict=True)))
    found[rows] = np.array([*(weight_cast(*one) for one in combinations), False], np.bool_)[of]
    return found


def weight_cast(
    name: str | None, shapes: str | None, types: str | None, copy_shapes: str | None, copy_types: str | None
) -> bool:
    """Return whether a copy within an operator takes a weight or bias to half width, and surely not the input.

    >>> linear = "aten::linear", "[[8,64],[32,64],[32]]", '["float","float","float"]'
    >>> weight_cast(*linear, "[[32,64],[32,64],[]]", '["c10::Half","float","Scalar"]')
    True
    >>> weight_cast(*linear, "[[8,64],[8,64],[]]", '["c10::Half","float","Scalar"]')
    False
    """
    weights = _WEIGHTS.get((name or "").removeprefix("aten::"))
    operands, kinds, copied, copy_kinds = map(_decoded, (shapes, types, copy_shapes, copy_types))
    if weights is None or len(copied) < 2 or len(copy_kinds) < 2 or len(operands) > len(kinds):
        return False
    to, what = (dtype(str(kind)) for kind in copy_kinds[:2])
    if to not in _HALVES or what != "float32":
        return False
    alike = [at for at, shape in enumerate(operands) if shape == copied[1] and dtype(str(kinds[at])) == "float32"]
    places, activation = weights
    return any(at in places for at in alike) and activation not in alike


def appended(text: str) -> bool:
    """Return whether a `cat` of two tensors appends a few rows to many, by the recorded shapes.

    >>> appended("[[[4,8,256,64],[4,8,1,64]],[]]"), appended("[[[4,8,1,64],[4,8,256,64]],[]]")
    (True, False)
    >>> appended("[[[4,256,8,64],[4,1,8,64]],[]]")  # heads lie within a row
    True
    >>> appended("[[[32,512,7,7],[32,4,7,7]],[]]"), appended("[[[32,512,7,64],[32,1,7,60]],[]]")  # channels, no cache
    (False, False)
    """
    operands = _decoded(text)
    members = operands[0] if operands else None
    if not isinstance(members, list) or len(members) != 2 or not all(isinstance(each, list) for each in members):
        return False
    many, few = members
    if len(many) != len(few) or len(many) < _LEAST_AXES or not all(isinstance(n, int) for n in (*many, *few)):
        return False
    differ = [at for at, (a, b) in enumerate(zip(many, few, strict=True)) if a != b]
    if len(differ) != 1 or not 0 < few[differ[0]] <= _MOST_ROWS or _GROWS * few[differ[0]] > many[differ[0]]:
        return False
    behind = many[differ[0] + 1 :]
    of_heads = len(behind) == 2 and differ[0] > 0 and behind[1] % 8 == 0 and behind[0] != behind[1]
    return len(behind) == 1 or of_heads


def in_evaluation(text: str) -> bool:
    """Return whether a BatchNorm's recorded arguments say that it is not in training.

    >>> in_evaluation('["","","","","","False","0.1","1e-05"]'), in_evaluation('["","","","","","True","0.1","1e-05"]')
    (True, False)
    """
    given = _decoded(text)
    return len(given) > _TRAINING and given[_TRAINING] == "False"


def _last(shape: str) -> int:
    sizes = _decoded(shape)
    return sizes[-1] if sizes and isinstance(sizes[-1], int) and 0 <= sizes[-1] < 1 << 40 else -1


def _decoded(text: str | None) -> list[object]:
    try:
        found = msgspec.json.decode(text or "[]")
    except (msgspec.DecodeError, RecursionError):
        return []
    return found if isinstance(found, list) else []
