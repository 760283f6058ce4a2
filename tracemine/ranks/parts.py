"""What a rank's collectives are there for, where that tells what of them need not be, and the host's calls with them.

statistics: of SyncBatchNorm. buffers: which DistributedDataParallel sends before the forward pass. sliced: an
all-reduce of which one slice is read. again: an all-gather of an input like that of the one before it, between which
nothing runs but readers of what was gathered. regathered: parameters of a module that the step has gathered before.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec import Struct

from tracemine.columns import numbers
from tracemine.ranks.collectives import Collectives
from tracemine.rows.ancestors import taken
from tracemine.rows.arrow import categories, coded, rows_of
from tracemine.rows.collective_parts import PARTS, Shape, caller_of, parts_of, range_around, shapes_in
from tracemine.rows.spans import Spans
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline

NAMES = ("statistics", "buffers", "sliced", "again", "regathered")
_NORMS = ("SyncBatchNorm", "SyncBatchNormBackward")
_NORM_LEFT_NS = 30_000  # a batch norm of the rank's own batch is one call
_GATHER, _PASSES = "FSDP::all_gather (", ("FSDP::pre_forward", "FSDP::pre_backward")
_CHOSEN = 2  # gathers of a module in a step: once for each pass
_DEPTH = 4  # ranges above a call


class CollectiveParts(Struct, frozen=True):
    """What each collective is there for, a place in NAMES or -1, and spans of host calls that go with those."""

    code: IntArray
    calls: dict[str, Spans]
    left_ns: dict[str, int]  # of each such call what stays
    sends: Spans  # the operators of `c10d`


def collective_parts(timeline: Timeline, sent: Collectives, step: IntArray, computes: BoolArray) -> CollectiveParts:
    """Return what collectives are there for. step, computes: of each, its step and whether its stream computes."""
    rows, count = sent.activity, timeline.activities.num_rows
    code = np.full(len(rows), -1, np.int64)
    if not len(rows):
        return CollectiveParts(code, {}, {}, Spans.of(code, code))
    of, size = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    of[rows] = np.arange(len(rows))
    size[rows] = [sent.group_of(i).size or -1 for i in range(len(rows))]
    part = parts_of(timeline, rows, coded(sent.kind, of), size)
    of_row = np.array([NAMES.index(name) if name in NAMES else -1 for name in PARTS] + [-1])
    code = of_row[part.codes[rows]]
    caller = caller_of(timeline, rows)
    for mark in (_gathered_again(timeline, sent, computes), _regathered(timeline, caller, step)):
        code = np.where((code < 0) & (mark >= 0), mark, code)
    calls = {name: _calls(timeline, caller[code == at], name) for at, name in enumerate(NAMES) if (code == at).any()}
    if "buffers" in calls:
        copies = np.flatnonzero(part.among("buffers", "buffer_copy"))
        calls["buffers"] = _around_buffers(timeline, copies)
    sends = _spans(timeline, np.unique(caller[caller >= 0]))
    return CollectiveParts(code, calls, {"statistics": _NORM_LEFT_NS}, sends)


def _spans(timeline: Timeline, ops: IntArray) -> Spans:
    begin = numbers(timeline.ops.column("start_ns"))[ops]
    return Spans.of(begin, begin + numbers(timeline.ops.column("dur_ns"))[ops])


def _calls(timeline: Timeline, caller: IntArray, name: str) -> Spans:
    """Return the host's calls that send collectives of one part: of a norm and of FSDP with all around."""
    names, parent = categories(timeline.ops["name"]), rows_of(timeline.ops["parent_row"])
    caller = np.unique(caller[caller >= 0])
    if name == "statistics":
        norm = taken(parent, caller)
        caller = np.unique(np.where(np.append(names.among(*_NORMS), False)[norm], norm, caller))
    elif name == "regathered":
        caller = range_around(timeline, caller, _PASSES, _DEPTH)
    return _spans(timeline, np.unique(caller[caller >= 0]))


def _around_buffers(timeline: Timeline, rows: IntArray) -> Spans:
    """Return from the first to the last operator of what is flattened, sent and copied, in each forward pass."""
    parent, op = rows_of(timeline.ops["parent_row"]), rows_of(timeline.activities["op_row"])[rows]
    forward = categories(timeline.ops["name"]).among("DistributedDataParallel.forward")
    at, child = op, op
    for _ in range(_DEPTH):
        inside = np.append(forward, False)[taken(parent, child)]
        child = np.where(inside, child, taken(parent, child))
        at = np.where(inside, child, at)
    begin = numbers(timeline.ops.column("start_ns"))
    end = begin + numbers(timeline.ops.column("dur_ns"))
    whose = taken(parent, at)
    ends = [(at[whose == one], one) for one in np.unique(whose[whose >= 0]).tolist()]
    return Spans.of(
        np.array([begin[rows].min() for rows, _ in ends], np.int64),
        np.array([end[rows].max() for rows, _ in ends], np.int64),
    )


def _regathered(timeline: Timeline, caller: IntArray, step: IntArray) -> IntArray:
    """Return which all-gathers fetch parameters that the step has gathered more often than once for each pass.

    Of those the ones of the backward pass, else all but the first: where nothing marks steps it cannot be said.
    """
    found = np.full(len(caller), -1, np.int64)
    around = range_around(timeline, caller, (_GATHER,), _DEPTH)
    chosen = np.flatnonzero((around >= 0) & (step >= 0))
    if not len(chosen) or not timeline.steps.num_rows:
        return found
    names = categories(timeline.ops["name"])
    key = list(zip(step[chosen].tolist(), names.codes[around[chosen]].tolist(), strict=True))
    count, seen = Counter(key), Counter[tuple[int, int]]()
    backward = range_around(timeline, around[chosen], _PASSES[1:], _DEPTH) >= 0
    of_backward = {one for one, is_back in zip(key, backward.tolist(), strict=True) if is_back}
    for at, one, is_back in zip(chosen.tolist(), key, backward.tolist(), strict=True):
        seen[one] += 1
        if count[one] > _CHOSEN and (is_back if one in of_backward else seen[one] > 1):
            found[at] = NAMES.index("regathered")
    return found


def _gathered_again(timeline: Timeline, sent: Collectives, computes: BoolArray) -> IntArray:
    """Return which all-gathers have the input shape of the one before them on their stream, where all that runs
    between the two reads a tensor of the gathered shape: if nothing wrote the input, they gather it again.
    """
    found = np.full(len(sent), -1, np.int64)
    chosen = np.flatnonzero(computes & np.array([kind == "all_gather" for kind in sent.kind], np.bool_))
    read, stream = _Read(timeline), numbers(timeline.activities.column("stream"), null=-1)
    for first, second in zip(chosen[:-1].tolist(), chosen[1:].tolist(), strict=True):
        rows = sent.activity[[first, second]]
        given = read.by(int(rows[0]))
        alike = sent.group[first] == sent.group[second] and stream[rows[0]] == stream[rows[1]]
        if alike and len(given) == 1 and given == read.by(int(rows[1])):
            own = given[0]
            whole = (own[0] * (sent.group_of(first).size or 1), *own[1:])
            between = np.arange(rows[0] + 1, rows[1])
            between = between[stream[between] == stream[rows[0]]]
            if len(between) and not np.isin(between, sent.activity).any() and read.alone(between, whole, own):
                found[second] = NAMES.index("again")
    return found


class _Read:
    """The recorded shapes of what each activity's operator reads."""

    def __init__(self, timeline: Timeline) -> None:
        self.texts, self.op = categories(timeline.ops["input_shapes"]), rows_of(timeline.activities["op_row"])

    def by(self, row: int) -> list[Shape]:
        """Return the shapes that an activity's operator reads; none where they are not recorded."""
        code = int(self.texts.codes[self.op[row]]) if self.op[row] >= 0 else -1
        return shapes_in(self.texts.values[code]) if code >= 0 else []

    def alone(self, rows: IntArray, whole: Shape, other: Shape) -> bool:
        """Return whether each of some activities reads a tensor of one shape, and none of another."""
        every = [self.by(row) for row in rows.tolist()]
        return all(whole in each and other not in each for each in every)
