"""Find the longest run of equal steps: the dataflow of one of them is copied to most of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from tracemine.columns import numbers, string_ids
from tracemine.flow.order import Order
from tracemine.flow.period import Numbered, Period
from tracemine.flow.record import BoolArray, IntArray
from tracemine.ops import lookup
from tracemine.timeline import Timeline

# Steps of a run whose dataflow is inferred. So many at its begin: after four or five, a step mostly finds what the one
# before found. Else more than the interchangeable tensors that are remembered (pools.py), after which it does.
_FIRST = (5, 12)
_LAST = 2  # what follows these differs
_LEAST = 2  # steps that are copied: for fewer it is not worth while
_CALL = ("name", "input_shapes", "input_dtypes", "input_strides", "concrete_inputs")
_ACTIVITY = ("kind", "name", "copy_kind")


def without_copies(order: Order, period: Period) -> tuple[Order, Period]:
    """Return the order, and the period, without the steps that are copies."""
    positions = period.nodes
    begin, copied, copies = positions.begin, positions.copied, positions.copies
    first, last = positions.end, int(begin[copied + 1 + copies])
    gap = last - first
    keep = np.ones(len(order.row), np.bool_)
    keep[first:last] = False
    position = np.full(len(order.position), -1, np.int64)
    position[order.row[keep]] = np.arange(len(keep) - gap)
    parent, leave = order.parent[keep], order.leave[keep]
    kept = Order(
        row=order.row[keep],
        parent=np.where(parent >= last, parent - gap, parent),
        level=order.level[keep],
        leave=np.where(leave >= last, leave - gap, np.minimum(leave, first)),
        end=order.end[keep],
        leaf=order.leaf[keep],
        joined=order.joined[keep],
        position=position,
        part=order.part[keep],
    )
    begin = np.concatenate((begin[: copied + 2], begin[copied + 2 + copies :] - gap))
    return kept, replace(period, nodes=Numbered(begin, copied, copies))


def periods(timeline: Timeline, order: Order) -> Iterator[Period]:
    """Yield the longest run of equal steps, with few steps in front of the copies, then with more; nothing where there
    is none, or inferring all costs as little. Its `nodes` are positions of the Order.

    Steps are equal if they run the same operators with the same arguments, inside each other in the same order, on the
    same threads, and launch the same activities. Numbers among the arguments of what is computed element by element do
    not count: an optimizer's change with each step.
    """
    starts = numbers(timeline.steps.column("start_ns"))
    if len(starts) < min(_FIRST) + _LEAST + _LAST or timeline.memory.num_rows or (np.diff(starts) < 0).any():
        return
    step = np.searchsorted(starts, numbers(timeline.ops.column("start_ns"))[order.row], "right")
    if (np.diff(step) < 0).any():
        return
    steps = np.arange(len(starts) + 2)
    begin = np.searchsorted(step, steps)
    activity, of_step, launched = _activities(timeline, order, step, begin)
    activity_begin = np.searchsorted(of_step, steps)
    same = _as_before(_operators(timeline, order, step, begin), begin) & _as_before(launched, activity_begin)
    same &= np.diff(begin) > 0
    same[of_step[numbers(timeline.activities.column("step_row"), -1)[activity] < 0]] = False  # a kernel may span steps
    first, count = _longest(same)
    for inferred in _FIRST:
        copies = count - inferred - _LAST
        if copies >= _LEAST:
            copied = first + inferred - 1
            ends = [copied, copied + copies + 1]
            rows = order.row[slice(*begin[ends])], activity[slice(*activity_begin[ends])]
            yield Period(Numbered(begin, copied, copies), *(each.reshape(copies + 1, -1) for each in rows))


def _operators(timeline: Timeline, order: Order, step: IntArray, begin: IntArray) -> list[IntArray]:
    """Return columns by operator: where all are equal, two do the same at the same place of their steps."""
    ops, row, at = timeline.ops, order.row, np.arange(len(order.row))
    columns = {name: string_ids(ops.column(name)) for name in _CALL}
    ids = {name: column[row] for name, (column, _) in columns.items()}
    pointwise = _of_names(columns["name"], _is_pointwise)[row]
    ids["concrete_inputs"] = np.where(pointwise, -2, ids["concrete_inputs"])
    sequence = numbers(ops.column("sequence_number"), -1)[row]
    least = np.full(len(begin), np.iinfo(np.int64).max)
    np.minimum.at(least, step[sequence >= 0], sequence[sequence >= 0])
    sequence = np.where(sequence >= 0, sequence - least[step], -1)  # counted from the smallest of the step
    outside = np.where(order.parent < 0, 0, -1)
    inside = np.where(order.parent >= begin[step], at - order.parent, outside)
    threads = (numbers(ops.column(name), -1)[row] for name in ("pid", "tid"))
    return [*ids.values(), *threads, sequence, inside, np.minimum(order.leave, begin[step + 1]) - at]


def _of_names(column: tuple[IntArray, tuple[str, ...]], holds: Callable[[str], bool]) -> BoolArray:
    ids, names = column
    found: BoolArray = np.array([*map(holds, names), False], np.bool_)[ids]
    return found


def _is_pointwise(name: str) -> bool:
    operator = lookup(name)
    return operator is not None and operator.op_class == "pointwise"


def _activities(
    timeline: Timeline, order: Order, step: IntArray, begin: IntArray
) -> tuple[IntArray, IntArray, list[IntArray]]:
    """Return the activities that operators launched, step by step, the step of each, and columns: where all are equal,
    two do the same for the same operator of their steps."""
    table = timeline.activities
    owner = np.append(order.position, -1)[numbers(table.column("op_row"), -1)]
    rows = np.flatnonzero(owner >= 0)
    rows = rows[np.argsort(step[owner[rows]], kind="stable")]
    of_step = step[owner[rows]]
    texts = (string_ids(table.column(name))[0][rows] for name in _ACTIVITY)
    where = (numbers(table.column(name), -1)[rows] for name in ("device", "stream"))
    ahead = of_step - numbers(table.column("step_row"), -1)[rows]
    return rows, of_step, [*texts, *where, owner[rows] - begin[of_step], ahead]


def _as_before(columns: Sequence[IntArray], begin: IntArray) -> BoolArray:
    """Return for each step whether its entries are those of the one before, in all columns."""
    size = np.diff(begin)
    found = np.append(False, size[1:] == size[:-1])
    at = np.arange(begin[-1])
    step = np.repeat(np.arange(len(size)), size)
    back = np.where(found[step], at - size[step], at)
    differs = np.zeros(len(at), np.bool_)
    for column in columns:
        differs |= column != column[back]
    found[step[differs]] = False
    return found


def _longest(same: BoolArray) -> tuple[int, int]:
    """Return the first step of the longest run of steps that are as the one before, and how many they are.

    >>> _longest(np.array([False, False, True, True, False]))
    (1, 3)
    """
    edges = np.diff(np.concatenate(([0], same.astype(np.int8), [0])))
    begins, ends = np.flatnonzero(edges > 0), np.flatnonzero(edges < 0)
    if not len(begins):
        return 0, 0
    longest = int(np.argmax(ends - begins))
    return int(begins[longest]) - 1, int(ends[longest] - begins[longest]) + 1
