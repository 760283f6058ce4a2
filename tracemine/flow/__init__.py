"""Find def-use edges: operators as nodes, tensors as edges between them, with their evidence.

flow(timeline)         → Flow: nodes, what they read and write, edges, live-outs, and what must keep its order
may_read(flow)         → what nodes may read of which it is a guess what they read
activity_edges(flow)   → the table edges.parquet: the same between activities
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from tracemine.collector import paused
from tracemine.columns import codes, from_numbers, is_among, numbers, rows_that, sorted_unique, string_ids, texts
from tracemine.flow.equal_steps import periods, with_copies, without_copies
from tracemine.flow.inferred import inferred
from tracemine.flow.inferred.perhaps import perhaps
from tracemine.flow.nvtx_optimizers import optimizers_told
from tracemine.flow.order import Order, order_of
from tracemine.flow.period import NotAlike
from tracemine.flow.reads_writes import ALLOCATE, READ, Happenings, OperatorEffects, reads_and_writes
from tracemine.flow.record import BoolArray, Edges, Evidence, Flow, IntArray, MayRead, Nodes, Reads, Source, Writes
from tracemine.flow.tensors import Tensors
from tracemine.ops import lookup
from tracemine.timeline import EDGES, Timeline

_EVIDENCE = [evidence.name.lower() for evidence in Evidence]


def activity_edges(flow: Flow) -> pa.Table:
    """Return edges as `edges.parquet` holds them: from the last activity of a tensor's producer to the first of its
    consumer. Which of an operator's own activities did it is not recorded.

    >>> from tracemine.flow import flow
    >>> from tracemine.timeline import Meta, Timeline
    >>> activity_edges(flow(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto")))).num_rows
    0
    """
    edges, nodes = flow.edges, flow.nodes
    producer = nodes.activity[nodes.activity_begin[1:][edges.producer] - 1]
    consumer = nodes.activity[nodes.activity_begin[edges.consumer]]
    order = np.lexsort((np.arange(len(producer)), producer, consumer))
    # Rows of inferred tensors are in no table that is stored.
    inferred = bool((flow.reads.evidence < Evidence.PROVEN).any())
    rows_of = flow.writes.tensor_row[edges.write], flow.reads.tensor_row[edges.read]
    # Without dtypes a tensor's elements are counted, and its bytes are unknown.
    unsized = bool(flow.timeline.tensors["itemsize_bytes"].null_count)
    columns = [
        *(from_numbers(values[order], pa.int64()) for values in (producer, consumer)),
        pa.nulls(len(order), pa.int64()) if unsized else from_numbers(edges.bytes[order], pa.int64()),
        texts(flow.reads.evidence[edges.read][order], _EVIDENCE),
        from_numbers(flow.reads.buffer[edges.read][order], pa.int64()),
        *(pa.nulls(len(rows), pa.int64()) if inferred else from_numbers(rows[order], pa.int64()) for rows in rows_of),
    ]
    return pa.Table.from_arrays(columns, schema=EDGES.schema)


_NO_READS: MayRead = np.zeros(0, np.int64), np.zeros(0, np.int64)


def flow(timeline: Timeline, *, copy_steps: bool = True) -> Flow:
    """Return the dataflow of a timeline: proven by the storages that an execution trace names, or else inferred from
    shapes, dtypes, strides and order, where these were recorded. Each read says which.

    A node reads when its operator begins and writes when it ends; what is inside counts as part of it. A write replaces
    what it covers, byte by byte; a tensor with strides counts as everything between its first and its last element,
    which may name a writer too many, never one too few.

    Of many steps in a row that run the same operators the dataflow of some is inferred and copied to the others;
    copy_steps: whether that is allowed.

    >>> from tracemine.timeline import Meta
    >>> empty = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    >>> len(flow(empty).nodes)
    0
    """
    with paused():  # an object a tensor
        return _flow(timeline, copy_steps=copy_steps)[0]


def may_read(found: Flow) -> MayRead:
    """Return what nodes may read of which it is a guess what they read: inferred again, as a flow does not keep it."""
    if found.inferred_from is None:
        return _NO_READS
    with paused():
        return _flow(found.inferred_from, readers=True, copy_steps=False)[1]


def _flow(given: Timeline, *, readers: bool = False, copy_steps: bool) -> tuple[Flow, MayRead]:
    """Return the dataflow; readers: also what nodes may read."""
    order = order_of(given)
    if not len(order.row):
        given = replace(given, tensors=None)  # tensors of no operator
    for period in periods(given, order) if copy_steps and not given.tensors.num_rows else ():
        kept, of_kept = without_copies(order, period)
        with suppress(NotAlike):
            return with_copies(_of_order(given, kept)[0], given, kept, of_kept), _NO_READS
    return _of_order(given, order, readers=readers)


def _of_order(given: Timeline, order: Order, *, readers: bool = False) -> tuple[Flow, MayRead]:
    """Return the same of the operators in an order."""
    timeline = given
    evidence = np.full(timeline.tensors.num_rows, Evidence.PROVEN, np.int8)
    recorded = len(evidence) > 0
    if recorded:
        timeline, order, guessed = optimizers_told(timeline, order)
        evidence = np.where(guessed, Evidence.CONSISTENT, Evidence.PROVEN).astype(np.int8)
    else:
        timeline, order, consistent, guesses = inferred(timeline, order)
        evidence = np.where(consistent, Evidence.CONSISTENT, Evidence.ADJACENT).astype(np.int8)
    tensors = Tensors.of(timeline, order)
    nodes, activity_node, member = _nodes(timeline, order, tensors)
    calls = OperatorEffects.of(timeline, order, tensors, member, nodes)
    reads, writes, edges = reads_and_writes(_happenings(order, tensors, calls, nodes), tensors, nodes, calls, evidence)
    if not recorded:
        made = tensors.storage[tensors.is_output & ~calls.aliased]  # `empty` makes one, and `copy_` writes it
        made_here = np.isin(tensors.storage[writes.tensor_row], made)
        writes = replace(writes, made=made_here, gone_node=_gone_when_read(writes, edges, made_here))
    node_part = order.part[order.position[nodes.op_row]]
    writes = replace(writes, live_out=_live_out(nodes, node_part, writes.node, writes.gone_node))
    silent = np.zeros(len(nodes), np.bool_)
    silent[calls.member[calls.silent]] = True
    silent &= calls.silent[calls.op] | ~calls.says[calls.op]  # an operator with a schema speaks for those inside it
    before, after = orders(reads, writes, silent)
    perhaps_before = perhaps_after = np.zeros(0, np.int64)
    read = _NO_READS
    if not recorded:
        perhaps_before, perhaps_after, read = perhaps(guesses, timeline, order, nodes, reads, writes, readers=readers)
    built = Flow(
        timeline=timeline,
        nodes=nodes,
        reads=reads,
        writes=writes,
        edges=edges,
        order_before=before,
        order_after=after,
        activity_node=activity_node,
        perhaps_before=perhaps_before,
        perhaps_after=perhaps_after,
        inferred_from=None if recorded else given,
    )
    return built, read


def _nodes(timeline: Timeline, order: Order, tensors: Tensors) -> tuple[Nodes, IntArray, IntArray]:
    """Return the nodes, the node of each activity, and of each operator that launched some (−1: it launched none)."""
    op_row = numbers(timeline.activities.column("op_row"), -1)
    # Where no operator is known to read or to write, there are no nodes.
    owner = np.append(order.position, -1)[op_row] if timeline.tensors.num_rows else np.full(len(op_row), -1)
    launches = np.zeros(len(order.row), np.bool_)
    launches[owner[owner >= 0]] = True
    has_schema = _speaks(timeline)[order.row]
    # An operator with a schema speaks for all that is inside it; one without (backward nodes, Python functions) says
    # too little for that.
    outermost = order.inherited(np.where(launches & has_schema, np.arange(len(launches)), -1))
    stands_for = np.where(outermost >= 0, outermost, np.arange(len(launches)))
    ops, node_of = np.unique(stands_for[launches], return_inverse=True)
    member = np.full(len(launches) + 1, -1, np.int64)
    member[:-1][launches] = node_of
    activity_node = member[owner]
    owned = np.flatnonzero(activity_node >= 0)
    activity = owned[np.argsort(activity_node[owned], kind="stable")]
    begin = np.searchsorted(activity_node[activity], np.arange(len(ops) + 1))
    step_row = numbers(timeline.activities.column("step_row"), -1)
    # Of what has neither a schema nor a tensor (a kernel that TorchScript generated) what it reads is unknown too.
    says = np.append(has_schema, False)
    says[tensors.op] = True
    nodes = Nodes(
        op_row=order.row[ops],
        step_row=step_row[activity[begin[:-1]]],
        known=order.joined[ops] & says[ops],
        activity=activity,
        activity_begin=begin,
    )
    return nodes, activity_node, member[:-1]


def _speaks(timeline: Timeline) -> BoolArray:
    """Return which operators have a schema: recorded, or in the operator table where none is, as of NVTX."""
    recorded = string_ids(timeline.ops.column("op_schema"))[0] >= 0
    if recorded.any():
        return recorded
    return rows_that(timeline.ops.column("name"), lambda text: lookup(text) is not None)


def _happenings(order: Order, tensors: Tensors, calls: OperatorEffects, nodes: Nodes) -> Happenings:
    count = len(order.row)
    # Operators end before the one at `leave` begins: those inside first, and of two threads the one that ended first.
    leaving = np.lexsort((-np.arange(count), order.end, order.leave))
    ends = np.empty(count, np.int64)
    ends[leaving] = np.arange(count) + order.leave[leaving]
    begins = np.arange(count) + np.searchsorted(order.leave[leaving], np.arange(count), "right")

    op, width = tensors.op, int(tensors.storage.max(initial=0)) + 1
    here = tensors.usable & (op >= 0)
    node = np.where(op >= 0, calls.member[op], -1)
    worker = here & (node >= 0)
    outer = calls.op[node] if len(calls.op) else node
    inner = worker & (op != outer)
    inputs, outputs = here & ~tensors.is_output, here & tensors.is_output
    key = op * width + tensors.storage
    # What is read inside an operator of the table is its own arguments, or made inside it. Of others that is not sure,
    # as some hold tensors of their own; but what the outer operator has taken or gives counts once.
    elsewhere = ~calls.closed[outer] & ~is_among(outer * width + tensors.storage, key[here]) if len(outer) else inner
    reads = worker & inputs & ~calls.overwritten & (~inner | elsewhere)

    fresh = outputs & ~calls.aliased
    allocated = np.flatnonzero(fresh & calls.allocates[op])
    allocated = allocated[np.sort(np.unique(key[allocated], return_index=True)[1])]
    written_keys = key[here & calls.mutated]
    gives_back = outputs & calls.aliased & (calls.shares[op] | is_among(key, written_keys))
    written = worker & (fresh | gives_back)
    same = _equal_to_output(tensors, key, here & calls.mutated & worker, written)
    written |= worker & calls.mutated & ~same
    maybe = worker & inputs & calls.silent[op]

    rows = [np.flatnonzero(reads), allocated, np.flatnonzero(maybe), np.flatnonzero(written)]
    row = np.concatenate(rows)
    what = np.repeat(np.arange(4), [len(r) for r in rows])
    moment = np.where(what == READ, begins[op[row]], ends[op[row]])
    in_order = np.lexsort((row, what, moment))
    row, what, moment = row[in_order], what[in_order], moment[in_order]
    upcoming = np.searchsorted(begins[calls.op], moment)
    return Happenings(what, row, np.where(what == ALLOCATE, upcoming, node[row]), inner[row])


def _equal_to_output(tensors: Tensors, key: IntArray, mutated: BoolArray, written: BoolArray) -> BoolArray:
    """Return for each mutated input whether an output of the operator names the same bytes."""
    found = np.zeros(len(key), np.bool_)
    outputs = set(
        zip(key[written].tolist(), tensors.begin[written].tolist(), tensors.end[written].tolist(), strict=True)
    )
    rows = np.flatnonzero(mutated)
    places = zip(key[rows].tolist(), tensors.begin[rows].tolist(), tensors.end[rows].tolist(), strict=True)
    found[rows] = [place in outputs for place in places]
    return found


def _gone_when_read(writes: Writes, edges: Edges, made: BoolArray) -> IntArray:
    """Return the first node that no longer finds each write, where it is not recorded when memory was used again.

    What was made during the recording (`made`, of each write) is taken to be gone once the last node that reads it has;
    what has no consumer stays, and so does what is written into tensors from outside.
    """
    last = np.full(len(writes), -1)
    np.maximum.at(last, edges.write, edges.consumer)
    gone: IntArray = np.where((writes.gone_node < 0) & (last >= 0) & made, last + 1, writes.gone_node)
    return gone


def _live_out(nodes: Nodes, part: IntArray, node: IntArray, gone: IntArray) -> BoolArray:
    """Return for each write whether it is still there once the nodes of its step have run."""
    step = codes(part) * (int(nodes.step_row.max(initial=0)) + 2) + nodes.step_row  # grows from part to part
    step = np.maximum.accumulate(step) if len(nodes) else step
    end_of_step = np.searchsorted(step, step, "right")
    return (gone < 0) | (gone >= end_of_step[node]) if len(node) else np.zeros(0, np.bool_)


def orders(reads: Reads, writes: Writes, silent: BoolArray) -> tuple[IntArray, IntArray]:
    """Return pairs of nodes, the earlier and the later, of which the later writes what the earlier reads or writes.

    silent: nodes that do not say what they write: perhaps all that they read.

    What overlaps in a buffer, also by way of a third access, is taken for one place; of each place every write comes
    after all that stands between it and the write before. So there are about as many pairs as accesses.
    """
    node = np.concatenate((reads.node, writes.node))
    is_write = np.append(silent[reads.node], np.ones(len(writes.node), np.bool_))
    place = _places(
        np.concatenate((reads.buffer, writes.buffer)),
        np.concatenate((reads.begin_byte, writes.begin_byte)),
        np.concatenate((reads.end_byte, writes.end_byte)),
    )
    order = np.lexsort((is_write, node, place))
    node, is_write, place = node[order], is_write[order], place[order]
    count = len(node)
    at = np.arange(count)
    if not count:
        return at, at
    before = np.append(-1, np.maximum.accumulate(np.where(is_write, at, -1))[:-1])  # the last write in front of each
    after = np.minimum.accumulate(np.where(is_write, at, count)[::-1])[::-1]  # the first one from each on
    writes_at, reads_at = np.flatnonzero(is_write), np.flatnonzero(~is_write)
    earlier = np.concatenate((before[writes_at], reads_at))
    later = np.concatenate((writes_at, after[reads_at]))
    there = (earlier >= 0) & (later < count)
    earlier, later = earlier[there], later[there]
    holds = (place[earlier] == place[later]) & (node[earlier] != node[later])
    width = int(node.max()) + 1
    found = sorted_unique(node[earlier[holds]] * width + node[later[holds]])
    return found // width, found % width


def _places(buffer: IntArray, begin: IntArray, end: IntArray) -> IntArray:
    """Return a number for each access, the same where bytes overlap."""
    bounds = codes(np.concatenate((begin, end)))
    first, last = bounds[: len(begin)], bounds[len(begin) :]
    order = np.lexsort((first, buffer))
    # Ends counted on from buffer to buffer, so that none reaches into the next one.
    shift = buffer[order] * (int(bounds.max(initial=0)) + 1)
    reached = np.maximum.accumulate(last[order] + shift) if len(order) else order
    new = np.append(True, first[order][1:] + shift[1:] >= reached[:-1])[: len(order)]
    places = np.empty(len(order), np.int64)
    places[order] = np.cumsum(new)
    return places


__all__ = ["Evidence", "Flow", "Source", "activity_edges", "flow", "may_read"]
