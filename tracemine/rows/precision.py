"""Types that a recording computes in: whether float64 comes in by a conversion, whether anything is float16.

Each distinct call is looked at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from tracemine.columns import sorted_unique
from tracemine.ops import dtype, lookup
from tracemine.rows.arrow import categories, named_at, rows_of
from tracemine.rows.codes import distinct
from tracemine.rows.signature import decoded_inputs
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
    ops = timeline.ops
    columns = [categories(ops[name]) for name in ("name", "input_shapes", "input_dtypes")]
    wide = np.array([*("double" in text for text in columns[2].values), False], np.bool_)[columns[2].codes]
    kinds = np.array([*(_class_of(name) in (_MIXING | _OF_NETWORKS) for name in columns[0].values), False], np.bool_)
    rows = np.flatnonzero(wide & kinds[columns[0].codes])
    calls, _ = distinct(*(Categories(column.codes[rows], column.values) for column in columns))
    return any(_comes_in(*call) for call in calls)


def _comes_in(name: str, shapes: str | None, types: str | None) -> bool:
    """Return whether a call converts large tensors to float64 or from it, or is a network's layer in it.

    >>> _comes_in("aten::copy_", "[[64,64],[64,64],[]]", '["double","float","Scalar"]')
    True
    >>> _comes_in("aten::copy_", "[[],[],[]]", '["double","float","Scalar"]')  # a scale
    False
    >>> _comes_in("aten::add", "[[64,64],[64,64],[]]", '["double","double","Scalar"]')
    False
    """
    taken = list(_large(shapes, types))
    return "float64" in taken and (_class_of(name) in _OF_NETWORKS or not _SMALLER.isdisjoint(taken))


def _large(shapes: str | None, types: str | None) -> Iterable[str]:
    """Yield the types of the tensors of a call that have more than a few elements."""
    inputs = decoded_inputs(shapes, types, None, None)
    sizes, kinds = (each if isinstance(each, list) else [] for each in (inputs or ((), ()))[:2])
    for shape, kind in zip(sizes, kinds, strict=False):
        known = dtype(kind) if isinstance(kind, str) else None
        if known is not None and _elements(shape) >= _FEW:
            yield known


def _elements(shape: Any) -> int:
    fits = isinstance(shape, list) and bool(shape) and all(isinstance(size, int) and size >= 0 for size in shape)
    return prod(shape) if fits else 0


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
    types = categories(timeline.ops["input_dtypes"])
    library = np.array([*(_class_of(name) in _LIBRARY for name in names.values), False], np.bool_)[names.codes]
    launched = np.zeros(len(library), np.bool_)
    op_row = rows_of(timeline.activities["op_row"])
    launched[op_row[op_row >= 0]] = True
    calls = types.codes[library & launched]
    return bool(len(calls)) and bool((calls >= 0).all()) and not _takes(types.values, sorted_unique(calls), _RANGES)


def _takes(texts: Sequence[str], codes: Iterable[int], wanted: frozenset[str]) -> bool:
    return any(known in wanted for code in codes for known in _types(texts[int(code)]))


def _types(text: str) -> list[str | None]:
    inputs = decoded_inputs("[]", text, None, None)
    kinds = inputs[1] if inputs is not None and isinstance(inputs[1], list) else []
    return [dtype(kind) if isinstance(kind, str) else None for kind in kinds]
