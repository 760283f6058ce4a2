"""Types that a recording computes in: whether float64 comes in by a conversion, whether anything is float16.

Each distinct call is looked at once.
"""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from tracemine.calls import DTYPES, Call, calls_of
from tracemine.ops import lookup
from tracemine.rows.arrow import categories, named_at, rows_of
from tracemine.rows.table import BoolArray, Categories, Column, Flags, Rows, category, flags
from tracemine.timeline import Timeline

_SMALLER: Final = frozenset({"float32", "float16", "bfloat16"})
_FEW: Final = 1024  # elements: what is smaller is a count, a scale or a sum
# What is part of a network and of nothing else: float64 is not asked for there.
_OF_NETWORKS: Final = frozenset({"norm", "softmax", "embedding", "attention", "conv"})
_MIXING: Final = frozenset({"copy", "pointwise"})
_LIBRARY: Final = frozenset({"gemm", "conv", "attention", "rnn"})
_RANGES: Final = frozenset({"float16", "float8_e4m3fn", "float8_e5m2"})  # whose gradients vanish without a scale
_ASKED: Final = "aten::_local_scalar_dense"  # whether anything was infinite
_SCALED: Final = ("aten::_amp_foreach_non_finite_check_and_unscale_", "aten::_amp_update_scale_")


def float64_comes_in(timeline: Timeline) -> bool:
    """Return whether something turns into float64 in this recording, or back, or a network's own layers compute in it.

    Where nothing does, inputs, weights and results are float64: the program asked for it.
    """
    calls = calls_of(timeline)
    wide = (number for number in range(len(calls)) if "double" in (calls.text(number, DTYPES) or ""))
    return any(_comes_in(calls[number]) for number in wide)


def _comes_in(call: Call) -> bool:
    """Return whether a call converts large tensors to float64 or from it, or is a network's layer in it.

    >>> types = ("double", "float", "Scalar")
    >>> [_comes_in(Call("aten::copy_", (shape, shape, ()), types)) for shape in ((64, 64), ())]
    [True, False]
    >>> _comes_in(Call("aten::add", ((64, 64), (64, 64), ()), ("double", "double", "Scalar")))
    False
    """
    kind = _class_of(call.name)
    if kind not in _MIXING | _OF_NETWORKS:
        return False
    taken = [call.dtype(place) for place in range(len(call.shapes or ())) if prod(call.shape(place) or (0,)) >= _FEW]
    return "float64" in taken and (kind in _OF_NETWORKS or not _SMALLER.isdisjoint(taken))


def _class_of(name: str) -> str | None:
    operator = lookup(name)
    return None if operator is None else operator.op_class


def scaling_columns(timeline: Timeline, activities: Rows) -> dict[str, Column]:
    """Return `needless_scaling` and `unscaled_apart`.

    >>> from tracemine.timeline import Meta
    >>> from tracemine.rows.activities import activity_rows
    >>> empty = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    >>> sorted(scaling_columns(empty, activity_rows(empty)))
    ['needless_scaling', 'unscaled_apart']
    """
    names = categories(timeline.ops["name"])
    op_row = rows_of(timeline.activities["op_row"])
    unscales, moves = (named_at(names, op_row, name) for name in _SCALED)
    scales = unscales | moves
    needless = scales & (scales.any() and _needless(timeline, names, activities))
    apart = unscales & ~needless
    if apart.any():
        apart &= _right_before_updates(activities, apart | named_at(names, op_row, _ASKED))
    return {"needless_scaling": Flags(needless), "unscaled_apart": Flags(apart)}


def _right_before_updates(activities: Rows, passed: BoolArray) -> BoolArray:
    """Return whether the next activity that is not `passed` is of an optimizer's step over lists or in a loop."""
    rows = np.where(passed, len(passed), np.arange(len(passed)))
    behind = np.minimum.accumulate(rows[::-1])[::-1]  # the next at or behind each
    style = category(activities, "update_style")
    apart = [code for code, name in enumerate(style.values) if name in ("lists", "loop")]
    updates = np.append(np.isin(style.codes, apart), False)
    found: BoolArray = updates[behind]
    return found


def _needless(timeline: Timeline, names: Categories, activities: Rows) -> bool:
    """Return whether all products, convolutions and attention are recorded, and none takes a type of small range."""
    if flags(activities, "graph").any():  # a graph's kernels tell no types
        return False
    library = names.that(lambda name: _class_of(name) in _LIBRARY)
    launched = np.zeros(len(library), np.bool_)
    op_row = rows_of(timeline.activities["op_row"])
    launched[op_row[op_row >= 0]] = True
    calls, _ = calls_of(timeline).distinct(np.flatnonzero(library & launched))
    return bool(calls) and all(call.dtypes is not None and not _takes_small_range(call) for call in calls)


def _takes_small_range(call: Call) -> bool:
    return any(call.dtype(place) in _RANGES for place in range(len(call.dtypes or ())))
