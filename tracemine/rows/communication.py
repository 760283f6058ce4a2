"""Columns of communication: what a collective is and sends, why nothing hides it, and what is there because of it."""

from __future__ import annotations

import math

import numpy as np

from tracemine.columns import codes, sorted_unique
from tracemine.columns import numbers as integers
from tracemine.ops.collectives import kind_of, message_bytes
from tracemine.rows.activities import COLLECTIVE
from tracemine.rows.arrow import blocks_of, categories, coded, rows_of, take
from tracemine.rows.collective_parts import caller_of, parts_of, range_around, shapes_in
from tracemine.rows.spans import Spans
from tracemine.rows.table import BoolArray, Categories, Column, IntArray, Numbers, Rows, category, number
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


_C10D, _UNKNOWN = "c10d::", "unknown"
_COMPUTING = 0.2  # of all computing is on a stream that computes
_GATED_NS = 60_000  # work that was launched before a collective ended and begins so soon after had waited for it
_BEHIND_NS, _QUEUED_NS, _UNASKED = 10_000, 20_000, 4  # behind it at once, launched so long before; fewer are chance
_SMALL_BYTES, _RUN, _BETWEEN = 1_000_000, 10, 8  # bytes, messages of a run, and light kernels between two of them
_HEAVY = ("gemm", "conv", "attention", "norm", "softmax", "rnn", "pool", "embedding")
_REASONS = ("same_stream", "last", "launched_first", "waited_for", "host")
_STREAM_WAITS, _GRAPHS = ("cudaStreamWaitEvent", "hipStreamWaitEvent"), ("cudaGraphLaunch", "hipGraphLaunch")
_SAMPLES, _SLOWER = 5, 1.1  # of one kernel, alone and next to a collective; and how much longer it takes there


def communication_columns(timeline: Timeline, activities: Rows) -> dict[str, Column]:
    """Return what is known of collectives of several ranks, and of the kernels that are there because of them."""
    sent = category(activities, "op_class").among(COLLECTIVE) & (number(activities, "group_size", null=0) != 1)
    rows = np.flatnonzero(sent)
    kind, nbytes = _messages(timeline, activities, rows)
    return {
        "collective_kind": kind,
        "message_bytes": Numbers(np.maximum(nbytes, 0), nbytes >= 0),
        "exposed_because": _reasons(timeline, activities, rows),
        "communication_part": parts_of(timeline, rows, kind, number(activities, "group_size", null=-1)),
        "unused_bytes": unused_bytes(timeline, rows, kind, nbytes),
        "small_run": _small_runs(activities, rows, kind, nbytes),
        "contention_ns": _contention(timeline, activities, rows),
    }


def _messages(timeline: Timeline, activities: Rows, rows: IntArray) -> tuple[Categories, IntArray]:
    """Return the kind of each collective, and its bytes (-1: not known)."""
    table, count = timeline.collectives, activities.count
    nbytes, kinds, of = np.full(count, -1, np.int64), [_UNKNOWN] * len(rows), np.full(count, -1, np.int64)
    if not len(rows):
        return coded([], of), nbytes
    record = np.full(count, -1, np.int64)
    at = integers(table["activity_row"], -1)
    known = np.flatnonzero(at >= 0)[::-1]
    record[at[known]] = known  # the first of several
    called = take(categories(timeline.ops["name"]), caller_of(timeline, rows))
    names, kernels = category(activities, "collective"), category(activities, "name")
    elements = [integers(table[name], -1) for name in ("elements_in", "elements_out", "group_size")]
    dtype, recorded = categories(table["dtype"]), categories(table["name"])
    for place, row in enumerate(rows.tolist()):
        own = int(record[row])
        said = _text(recorded, own) or _text(names, row) or (_text(called, place) or "").removeprefix(_C10D)
        kinds[place] = kind_of(said or None, _text(kernels, row)) or _UNKNOWN
        if own >= 0:
            given, got, size = (int(each[own]) for each in elements)
            nbytes[row] = message_bytes(kinds[place], given, got, size if size >= 0 else None, _text(dtype, own))
    of[rows] = np.arange(len(rows))
    return coded(kinds, of), nbytes


def _text(names: Categories, row: int) -> str | None:
    code = -1 if row < 0 else int(names.codes[row])
    return None if code < 0 else names.values[code]


def _reasons(timeline: Timeline, activities: Rows, rows: IntArray) -> Categories:
    """Return why at least half of each collective runs alone."""
    reason = np.full(activities.count, -1, np.int64)
    if not len(rows):
        return coded(_REASONS, reason)
    start, dur, device, stream, step = (
        number(activities, name, null=-1) for name in ("start_ns", "dur_ns", "device", "stream", "segment")
    )
    end, launched = start + dur, _launched(timeline, start)
    is_sent = np.zeros(activities.count, np.bool_)
    is_sent[rows] = True
    for ordinal in sorted_unique(device[rows]):
        own = np.flatnonzero(device == ordinal)
        mine, computing = own[is_sent[own]], own[~is_sent[own]]
        mine = mine[2 * number(activities, "exposed_ns")[mine] >= np.maximum(dur[mine], 1)]
        next_one = np.append(computing, -1)[np.searchsorted(start[computing], start[mine], "right")]
        begun, ahead = start[next_one], launched[next_one]
        queued = np.where(begun < end[mine], begun - ahead >= _GATED_NS, ahead < end[mine])
        gated = (next_one >= 0) & queued & (begun - end[mine] < _GATED_NS)
        unasked = gated & (begun - end[mine] < _BEHIND_NS) & (end[mine] - ahead >= _QUEUED_NS)
        unasked &= (begun >= end[mine]) & _no_wait_between(timeline, launched[mine], ahead, next_one)
        unasked &= unasked.sum() >= _UNASKED
        last = _is_last(codes(stream[own[is_sent[own]]], step[own[is_sent[own]]]))[np.isin(own[is_sent[own]], mine)]
        spent = np.bincount(codes(stream[own]), weights=np.where(is_sent[own], 0, dur[own]))
        busiest = sorted_unique(stream[own])[spent >= _COMPUTING * max(spent.sum(), 1)]
        reason[mine] = np.select([np.isin(stream[mine], busiest), last, unasked, gated], [0, 1, 2, 3], 4)
    return coded(_REASONS, reason)


def _no_wait_between(timeline: Timeline, since: IntArray, until: IntArray, rows: IntArray) -> BoolArray:
    """Return which rows, launched at `until`, no stream was made to wait for since. False where such calls, or the
    row's launch, are not recorded, and of graphs: what waits within them is not.
    """
    names, begin = categories(timeline.api["name"]), integers(timeline.api["start_ns"])
    waits = np.sort(begin[names.that(lambda name: name.startswith(_STREAM_WAITS))])
    launch = rows_of(timeline.activities["launch_row"])[rows]
    graph = np.append(names.that(lambda name: name.startswith(_GRAPHS)), True)[launch]
    asked = np.searchsorted(waits, since, "right") != np.searchsorted(waits, until, "right")
    none: BoolArray = ~asked & (len(waits) > 0) & (launch >= 0) & ~graph & (until > since)
    return none


def _launched(timeline: Timeline, start: IntArray) -> IntArray:
    """Return when each activity was launched; its start where that is not recorded."""
    launch = rows_of(timeline.activities["launch_row"])
    return np.where(launch >= 0, np.append(integers(timeline.api["start_ns"]), 0)[launch], start)


def _is_last(key: IntArray) -> BoolArray:
    """Return which entries have no later one of their key.

    >>> _is_last(np.array([0, 1, 0])).tolist()
    [False, True, True]
    """
    last = np.zeros(len(key), np.bool_)
    last[len(key) - 1 - np.unique(key[::-1], return_index=True)[1]] = True
    return last


def _small_runs(activities: Rows, rows: IntArray, kind: Categories, nbytes: IntArray) -> Numbers:
    """Return a number for the small messages of one kind and group between two of which nothing long is computed."""
    run = np.full(activities.count, -1, np.int64)
    small = rows[(nbytes[rows] >= 0) & (nbytes[rows] < _SMALL_BYTES)]
    if len(small) >= _RUN:
        heavy = np.cumsum(category(activities, "op_class").among(*_HEAVY))
        is_light = np.ones(activities.count, np.bool_)
        is_light[rows] = False
        light = np.cumsum(is_light)
        own = (number(activities, name, null=-1)[small] for name in ("device", "stream", "segment", "group_size"))
        key = codes(*own, kind.codes[small].astype(np.int64))
        order = np.argsort(key, kind="stable")
        small, key = small[order], key[order]
        apart = (np.diff(key) != 0) | (np.diff(heavy[small]) > 0) | (np.diff(light[small]) > _BETWEEN)
        number_of = np.cumsum(np.append(False, apart))
        long = np.bincount(number_of) >= _RUN
        run[small[long[number_of]]] = number_of[long[number_of]]
    return Numbers(np.maximum(run, 0), run >= 0)


def _contention(timeline: Timeline, activities: Rows, rows: IntArray) -> Numbers:
    """Return by how much kernels take longer next to a collective than alone: same name, grid and all shapes."""
    excess, known = np.zeros(activities.count, np.int64), np.zeros(activities.count, np.bool_)
    shapes = take(categories(timeline.ops["input_shapes"]), rows_of(timeline.activities["op_row"]))
    comparable = (shapes.codes >= 0) & category(activities, "kind").among("kernel")
    comparable[rows] = False
    chosen = np.flatnonzero(comparable)
    if not len(rows) or not len(chosen):
        return Numbers(excess, known)
    start, dur, device = (number(activities, name, null=-1) for name in ("start_ns", "dur_ns", "device"))
    own, name = device[chosen], category(activities, "name").codes[chosen].astype(np.int64)
    key = codes(own, name, blocks_of(timeline.activities)[chosen], shapes.codes[chosen].astype(np.int64))
    covered = np.zeros(len(chosen), np.int64)
    for ordinal in sorted_unique(own):
        here, sent = own == ordinal, rows[device[rows] == ordinal]
        begin = start[chosen[here]]
        covered[here] = Spans.of(start[sent], start[sent] + dur[sent]).within(begin, begin + dur[chosen[here]])
    beside, alone = 2 * covered >= dur[chosen], covered == 0
    both = np.bincount(key, beside), np.bincount(key, alone)
    for number_of in np.flatnonzero((both[0] >= _SAMPLES) & (both[1] >= _SAMPLES)).tolist():
        of = key == number_of
        usual = float(np.median(dur[chosen[of & alone]]))
        slow = chosen[of & beside]
        if float(np.median(dur[slow])) >= _SLOWER * usual:
            excess[slow], known[slow] = np.maximum(dur[slow] - int(usual), 0), True
    return Numbers(excess, known)
