"""Gradients that a reducer sums over the ranks and that no optimizer step reads: of parameters that nothing used."""

from __future__ import annotations

import math

import numpy as np

from tracemine.columns import numbers as integers
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.collective_parts import range_around, shapes_in
from tracemine.rows.spans import Spans
from tracemine.rows.table import Categories, IntArray, Numbers
from tracemine.timeline import Timeline

# The hooks of DistributedDataParallel run where a gradient is accumulated.
_ACCUMULATED, _LEVELS = ("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",), 6
_STEPS = "Optimizer.step"
_LEAST = 0.05  # of the elements that are summed: less is padding, or a buffer of counters
# An optimizer whose state is cut over the ranks reads a part of all gradients, and gathers or sends the rest after it.
_SHARES = ("all_gather", "reduce_scatter", "broadcast")
_MOST_SHARED = 0.01


def unused_bytes(timeline: Timeline, rows: IntArray, kind: Categories, nbytes: IntArray) -> Numbers:
    """Return how many bytes of each sum of gradients belong to parameters that no optimizer step reads.

    Each sum of a trace is taken to hold as large a share of them. rows: collectives among the activities. kind, nbytes:
    of all activities.
    """
    count = timeline.activities.num_rows
    unused, none = np.zeros(count, np.int64), Numbers(np.zeros(count, np.int64), np.zeros(count, np.bool_))
    sums = rows[kind.among("all_reduce")[rows] & (nbytes[rows] > 0)]
    sums = sums[range_around(timeline, rows_of(timeline.activities["op_row"])[sums], _ACCUMULATED, _LEVELS) >= 0]
    shared = int(np.maximum(nbytes[rows[kind.among(*_SHARES)[rows]]], 0).sum())
    if not len(sums) or shared > _MOST_SHARED * int(nbytes[sums].sum()):
        return none
    table = timeline.collectives
    of = np.full(count, -1, np.int64)
    of[integers(table["activity_row"], -1)] = integers(table["elements_in"], -1)
    summed, read = int(np.maximum(of[sums], 0).sum()), _read(timeline)
    if not 0 < read <= (1 - _LEAST) * summed:
        return none
    unused[sums] = (nbytes[sums] * (1 - read / summed)).astype(np.int64)
    return Numbers(unused, unused > 0)


def _read(timeline: Timeline) -> int:
    """Return how many elements of parameters the optimizer's steps read, at most; 0 where their shapes are not known.

    Each parameter is the first tensor, or in the first list, of an operator, and of one operator at most once a step.
    """
    names, text = categories(timeline.ops["name"]), categories(timeline.ops["input_shapes"])
    begin = integers(timeline.ops["start_ns"])
    steps = np.flatnonzero(names.that(lambda name: name.startswith(_STEPS)))
    within = Spans.of(begin[steps], begin[steps] + integers(timeline.ops["dur_ns"])[steps])
    inside = np.flatnonzero((within.within(begin, begin + 1) > 0) & names.that(lambda name: name.startswith("aten::")))
    elements = [_first(text.values[code]) if code >= 0 else 0 for code in text.codes[inside].tolist()]
    if not len(inside) or 0 in {n for n, name in zip(elements, _named(names, inside), strict=True) if _of_lists(name)}:
        return 0
    return int(np.bincount(names.codes[inside], weights=elements).max())


def _named(names: Categories, rows: IntArray) -> list[str]:
    return [names.values[code] for code in names.codes[rows].tolist()]


def _of_lists(name: str) -> bool:
    return name.startswith(("aten::_foreach_", "aten::_fused_"))


def _first(text: str) -> int:
    """Return how many elements the first tensor of recorded inputs has, or its first list of tensors; 0: not known.

    >>> _first("[[[2,3],[4]],[[2,3],[4]]]"), _first("[[5,6],[]]"), _first("[[],[]]"), _first("[[")
    (10, 30, 0, 0)
    """
    return sum(map(math.prod, shapes_in(text, 1)))
