"""Find the longest run of equal steps, and copy the dataflow of one of them to most of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from tracemine.columns import from_numbers, numbers, sorted_unique, string_ids, texts, with_columns
from tracemine.flow.order import Order
from tracemine.flow.period import NotAlike, Numbered, Period, spread_rows
from tracemine.flow.record import BoolArray, Edges, Flow, IntArray, Nodes, Reads, Writes
from tracemine.ops import lookup
from tracemine.timeline import Timeline

# Steps of a run whose dataflow is inferred. So many at its begin: after four or five, a step mostly finds what the one
# before found. Else more than the interchangeable tensors that are remembered (pools.py), after which it does.
_FIRST = (5, 12)
_LAST = 2  # what follows these differs
_LEAST = 2  # steps that are copied: for fewer it is not worth while
_CALL = ("name", "input_shapes", "input_dtypes", "input_strides", "concrete_inputs")
_ACTIVITY = ("kind", "name", "copy_kind")
_Record = TypeVar("_Record", Reads, Writes, Edges)


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
            yield Period(Numbered(begin, copied, copies), *(row.reshape(copies + 1, -1) for row in rows))


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
    holding: BoolArray = np.array([*map(holds, names), False], np.bool_)[ids]
    return holding


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
    same_size = np.append(False, size[1:] == size[:-1])
    at = np.arange(begin[-1])
    step = np.repeat(np.arange(len(size)), size)
    back = np.where(same_size[step], at - size[step], at)
    differs = np.zeros(len(at), np.bool_)
    for column in columns:
        differs |= column != column[back]
    same_size[step[differs]] = False
    return same_size


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


def with_copies(short: Flow, timeline: Timeline, kept: Order, of_order: Period) -> Flow:
    """Return the dataflow of all steps from that of the steps that are kept.

    timeline: what was recorded. kept, of_order: as `without_copies` gives them. Raises NotAlike.
    """
    positions = of_order.nodes
    nodes = Numbered.of(positions.step(kept.position[short.nodes.op_row]), positions)
    period = replace(of_order, nodes=nodes)
    table = short.timeline.tensors
    of_step = positions.step(kept.position[numbers(table.column("op_row"))])
    tensors = Numbered.of(of_step, nodes)
    storage = numbers(table.column("storage_id"), -1)
    of_node = np.concatenate((short.reads.node, short.writes.node))
    of_buffer = np.concatenate((short.reads.buffer, short.writes.buffer))
    reads, writes, edges = map(period.by_node, (short.reads.node, short.writes.node, short.edges.consumer))
    kinds = {
        **dict.fromkeys(("node", "producer", "consumer", "gone_node"), nodes),
        "buffer": Numbered.by_birth(of_buffer, nodes.step(of_node), nodes),
        "tensor_row": tensors,
        "read": reads,
        "write": writes,
    }
    of_all = _all_nodes(short.nodes, period)
    activity_node = np.full(timeline.activities.num_rows, -1, np.int64)
    activity_node[of_all.activity] = np.repeat(np.arange(len(of_all)), np.diff(of_all.activity_begin))
    order_before, order_after = _pairs(short.order_before, short.order_after, nodes)
    perhaps_before, perhaps_after = _pairs(short.perhaps_before, short.perhaps_after, nodes, guessed=True)
    storage = tensors.counted(storage, Numbered.by_birth(storage, of_step, nodes))
    return Flow(
        timeline=_all_tensors(short.timeline, timeline, period, tensors, storage),
        nodes=of_all,
        reads=_spread(short.reads, reads, kinds),
        writes=_spread(short.writes, writes, kinds),
        edges=_spread(short.edges, edges, kinds),
        order_before=order_before,
        order_after=order_after,
        activity_node=activity_node,
        perhaps_before=perhaps_before,
        perhaps_after=perhaps_after,
        inferred_from=timeline,
        shortened=short,
        period=period,
    )


def _spread(record: _Record, entries: Numbered, kinds: dict[str, Numbered]) -> _Record:
    """Return a record of columns for all steps."""
    columns = {name: getattr(record, name) for name in record.__struct_fields__}
    of_all: dict[str, Any] = {
        name: entries.counted(column, kinds[name]) if name in kinds else entries.repeated(column)
        for name, column in columns.items()
    }
    return replace(record, **of_all)


def _all_nodes(short: Nodes, period: Period) -> Nodes:
    nodes = period.nodes
    counts = np.diff(short.activity_begin)
    of_activities = period.by_node(np.repeat(np.arange(len(short)), counts))
    head, own, before, tail = nodes.parts(short.step_row)
    ahead = own - before
    if not ((ahead == 1) | ((ahead == 0) & (own < 0))).all():
        raise NotAlike
    turn = np.arange(nodes.copies + 1)[:, None]
    return Nodes(
        op_row=spread_rows(period.op_rows, short.op_row, nodes),
        step_row=np.concatenate((head, (own + turn * ahead).reshape(-1), tail)),
        known=nodes.repeated(short.known),
        activity=spread_rows(period.activity_rows, short.activity, of_activities),
        activity_begin=np.append(0, np.cumsum(nodes.repeated(counts))),
    )


def _pairs(before: IntArray, after: IntArray, nodes: Numbered, *, guessed: bool = False) -> tuple[IntArray, IntArray]:
    """Return pairs of nodes for all steps, in order.

    Steps that are kept keep theirs. A copy has those of the copied step and of the one before it: of guesses there may
    be more at first, as fewer tensors are known. Guesses can alternate from step to step, so steps right behind the
    copies that are as long have those of the copies as well. What reaches further back than the step before is not
    copied: one kernel never spans steps, so nothing lies in between that it could do.
    """
    step, beyond = nodes.step(after), nodes.period * nodes.copies
    near = before >= nodes.begin[np.maximum(step - 1, 0)]
    head, tail = step <= nodes.copied, step > nodes.copied
    own = near & (step == nodes.copied)
    ahead = near & (step == nodes.copied - 1)
    width = int(nodes.begin[-1]) + beyond + 1
    behind = np.where(before[tail] >= nodes.begin[nodes.copied - 1], beyond, 0)
    of_step = np.concatenate((_both(before, after, own, 0, width), _both(before, after, ahead, nodes.period, width)))
    as_long = np.append(np.diff(nodes.begin[nodes.copied + 1 :]) == nodes.period, False)
    more = int(np.argmin(as_long)) if guessed else 0  # steps behind the copies, up to the first of another length
    turn = np.arange(nodes.copies + 1 + more)[:, None] * nodes.period
    both = (
        _both(before, after, head, 0, width),
        (of_step + turn * (width + 1)).reshape(-1),
        (before[tail] + behind) * width + after[tail] + beyond,
    )
    pairs = sorted_unique(np.concatenate(both))
    return pairs // width, pairs % width


def _both(before: IntArray, after: IntArray, which: BoolArray, moved: int, width: int) -> IntArray:
    """Return some pairs as single numbers, with their nodes moved on."""
    return (before[which] + moved) * width + after[which] + moved


def _all_tensors(
    inferred: Timeline, timeline: Timeline, period: Period, entries: Numbered, storage: IntArray
) -> Timeline:
    """Return what was recorded with the tensors of all steps, and the schemas of their operators."""
    table = inferred.tensors
    first, last = int(entries.begin[entries.copied]), entries.end
    op_row = spread_rows(period.op_rows, numbers(table.column("op_row")), entries)
    # The step's entries stand in memory once, however many steps have them.
    own = table.slice(first, last - first)
    table = pa.concat_tables([table.slice(0, first), *[own] * (entries.copies + 1), table.slice(last)])
    ids = from_numbers(storage, pa.int64())
    table = with_columns(table, {"op_row": from_numbers(op_row, pa.int64()), "tensor_id": ids, "storage_id": ids})
    code, schemas = string_ids(inferred.ops.column("op_schema"))
    code[period.op_rows] = code[period.op_rows[0]]
    return replace(timeline, ops=with_columns(timeline.ops, {"op_schema": texts(code, schemas)}), tensors=table)
