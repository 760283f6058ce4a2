"""Copy the dataflow of one step to the steps equal to it."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from tracemine.columns import from_numbers, numbers, sorted_unique, string_ids, texts, with_columns
from tracemine.flow.order import Order
from tracemine.flow.period import NotAlike, Numbered, Period, spread_rows
from tracemine.flow.record import BoolArray, Edges, Flow, IntArray, Nodes, Reads, Writes
from tracemine.timeline import Timeline

_Record = TypeVar("_Record", Reads, Writes, Edges)


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
