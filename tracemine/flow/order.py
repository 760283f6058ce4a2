"""The order in which operators of all threads begin and end, and which of them count as one node."""

from __future__ import annotations

import itertools

import numpy as np
from msgspec import Struct

from tracemine.columns import MISSING, codes, examples, numbers, sorted_unique, string_ids
from tracemine.flow.record import BoolArray, IntArray
from tracemine.timeline import Timeline

_ROUNDS = 64  # of threads that are connected by others: what is further apart counts as parts of its own
_LEVELS = 10_000  # of operators inside each other; Python itself ends at 1000


class Order(Struct, frozen=True):
    """One entry an operator (annotations are not among them), by part, and by the order in which they begin."""

    row: IntArray  # row of `ops`
    parent: IntArray  # position of the operator around it, −1: none
    level: IntArray  # so many are around it
    leave: IntArray  # it ends before the operator at this position begins, and after the one before that began
    end: IntArray  # nanoseconds
    leaf: BoolArray  # no operator is inside it
    joined: BoolArray  # the execution trace has it
    position: IntArray  # of each row of `ops`, −1 for annotations
    part: IntArray  # operators of one part stand together, and share tensors with no other

    def inherited(self, own: IntArray) -> IntArray:
        """Return for each operator the value of the outermost one around it, or its own, that is not negative."""
        found = own.copy()
        for level in self._levels():
            above = found[self.parent[level]]
            found[level] = np.where(above >= 0, above, found[level])
        return found

    def _levels(self) -> list[IntArray]:
        """Return positions a level, from those with one operator around them inwards."""
        by_level = np.argsort(self.level, kind="stable")
        begins = np.searchsorted(self.level[by_level], np.arange(1, int(self.level.max(initial=0)) + 2))
        return [by_level[a:b] for a, b in itertools.pairwise(begins.tolist())]


def order_of(timeline: Timeline) -> Order:
    """Begin by the execution trace's ids, which count over all threads; an operator that it lacks stands where its time
    puts it. An operator ends when the next one of its thread begins that is not inside it, and before any of another
    thread that begins after its end.
    """
    ops = timeline.ops
    kinds, kind_names = string_ids(ops.column("kind"))
    is_op = kinds == (kind_names.index("op") if "op" in kind_names else -2)
    node = numbers(ops.column("execution_node_id"))
    start, dur = numbers(ops.column("start_ns")), numbers(ops.column("dur_ns"))
    rows = np.flatnonzero(is_op)
    part = np.zeros(len(rows), np.int64)
    known = np.where(node[rows] == MISSING, -1, node[rows])
    if (known >= 0).any():
        rank = np.where(known >= 0, known, np.maximum.accumulate(known))
        rows = rows[np.lexsort((rows, known < 0, rank))]
    elif len(of := _of_parts(timeline, rows)):
        apart = np.argsort(of, kind="stable")
        rows, part = rows[apart], of[apart]
    position = np.full(len(is_op) + 1, -1, np.int64)
    position[rows] = np.arange(len(rows))
    parent = position[_around(numbers(ops.column("parent_row"), -1), is_op)[rows]]
    parent[parent >= np.arange(len(rows))] = -1  # ids and times disagree: better no nesting than a wrong one
    level = _levels_of(parent)
    last, leaf = _last_inside(parent, level)
    end = (start + dur)[rows]
    thread = codes(numbers(ops.column("pid"))[rows], numbers(ops.column("tid"))[rows])
    return Order(
        row=rows,
        parent=parent,
        level=level,
        leave=_leave(*_one_after_another(start[rows], end, part), thread, last),
        end=end,
        leaf=leaf,
        joined=node[rows] != MISSING,
        position=position[:-1],
        part=part,
    )


def _of_parts(timeline: Timeline, rows: IntArray) -> IntArray:
    """Return the part of each operator; nothing where all are of one. What launches nothing is of the first part of its
    process."""
    part = parts(timeline)[rows]
    if len(sorted_unique(part[part >= 0])) < 2:
        return np.zeros(0, np.int64)
    process = codes(numbers(timeline.ops.column("pid"))[rows])
    first = np.full(int(process.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, process[part >= 0], part[part >= 0])
    return np.where(part >= 0, part, first[process])


def _one_after_another(start: IntArray, end: IntArray, part: IntArray) -> tuple[IntArray, IntArray]:
    """Return the latest start up to each operator, and the ends: of several parts moved behind those before, so that
    times of different parts do not compare."""
    if not len(part) or part[0] == part[-1]:
        return (np.maximum.accumulate(start) if len(start) else start), end
    rank = codes(np.concatenate((start, end)))
    moved = codes(part) * (int(rank.max()) + 1)
    return np.maximum.accumulate(rank[: len(start)] + moved), rank[len(start) :] + moved


def _around(parent_row: IntArray, is_op: BoolArray) -> IntArray:
    """Return the nearest operator around each row, annotations left out; the last row, len(is_op), is none."""
    none = len(is_op)
    around = np.append(np.where(parent_row < 0, none, parent_row), none)
    passed = np.append(~is_op, False)
    for _ in range(none.bit_length() + 1):  # each time twice as far: what is still passed over then goes in a circle
        if not passed[around].any():
            break
        around = np.where(passed[around], around[around], around)
    return np.where(passed[around], none, around)[:-1]


def _levels_of(parent: IntArray) -> IntArray:
    level = np.zeros(len(parent), np.int64)
    above = parent
    for _ in range(_LEVELS):
        inside = above >= 0
        if not inside.any():
            break
        level += inside
        above = np.where(inside, parent[above], -1)
    return level


def _last_inside(parent: IntArray, level: IntArray) -> tuple[IntArray, BoolArray]:
    """Return the last operator inside each, or itself; and whether there is none."""
    last = np.arange(len(parent))
    for depth in range(int(level.max(initial=0)), 0, -1):
        here = np.flatnonzero(level == depth)
        np.maximum.at(last, parent[here], last[here])
    leaf = np.ones(len(parent), np.bool_)
    leaf[parent[parent >= 0]] = False
    return last, leaf


def _leave(begun: IntArray, end: IntArray, thread: IntArray, last: IntArray) -> IntArray:
    """Return where each range is left. begun: the latest start up to each position."""
    count = len(end)
    by_time = np.searchsorted(begun, end, "left")
    own = np.full(count, count)
    for number in range(int(thread.max(initial=-1)) + 1):
        here = np.flatnonzero(thread == number)
        after = np.searchsorted(here, last[here], "right")
        own[here] = np.append(here, count)[after]
    leave: IntArray = np.maximum(np.minimum(by_time, own), last + 1)
    return leave


def parts(timeline: Timeline) -> IntArray:
    """Return for each row of `ops` the number of its part: operators of different parts can share no tensors. −1 for
    annotations, and on threads whose operators launch nothing.

    Threads are of one part that launch on one device, as a forward and a backward pass do, or that a third connects.
    """
    ops, activities = timeline.ops, timeline.activities
    kind, kinds = string_ids(ops.column("kind"))
    is_op = kind == (kinds.index("op") if "op" in kinds else -2)
    pid, tid = (numbers(ops.column(name)) for name in ("pid", "tid"))
    thread = codes(pid, tid)
    owner = numbers(activities.column("op_row"), -1)
    launched = owner >= 0
    of_thread = thread[owner[launched]]
    device = codes(pid[owner[launched]], numbers(activities.column("device"))[launched])
    pairs = examples(codes(of_thread, device))
    of_thread, device = of_thread[pairs], device[pairs]
    part = np.arange(int(thread.max(initial=-1)) + 1)
    for _ in range(_ROUNDS if len(device) else 0):
        least = np.full(int(device.max()) + 1, len(part))
        np.minimum.at(least, device, part[of_thread])
        before = part.copy()
        np.minimum.at(part, of_thread, least[device])
        if bool((part == before).all()):
            break
    launches = np.zeros(len(part), np.bool_)
    launches[of_thread] = True
    return np.where(is_op & launches[thread], part[thread], -1) if len(thread) else thread
