"""From a timeline's tensors to who reads what which other wrote."""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from tracemine.columns import numbers, string_ids
from tracemine.flow.effects import NO_EFFECTS, effects
from tracemine.flow.hazards import orders
from tracemine.flow.inferred import inferred
from tracemine.flow.inferred.perhaps import perhaps
from tracemine.flow.nvtx_optimizers import optimizers_told
from tracemine.flow.order import Order, order_of
from tracemine.flow.record import Array, BoolArray, Edges, Evidence, Flow, IntArray, Nodes, Reads, Writes
from tracemine.flow.tensors import Tensors
from tracemine.flow.writers import LastWriters
from tracemine.ops import is_view, lookup
from tracemine.timeline import Timeline

# What happens to a storage, in this order where one operator does several of them.
_READ, _ALLOCATE, _MAYBE_WRITE, _WRITE = range(4)


def flow(timeline: Timeline) -> Flow:
    """Who reads what which other wrote: proven by the storages that an execution trace names, or else inferred from
    shapes, dtypes, strides and order, where these were recorded. Each read says which.

    A node reads when its operator begins and writes when it ends; what is inside counts as part of it. A write replaces
    what it covers, byte by byte; a tensor with strides counts as everything between its first and its last element,
    which may name a writer too many, never one too few.

    >>> from tracemine.timeline import Meta
    >>> empty = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    >>> len(flow(empty).nodes)
    0
    """
    collecting = gc.isenabled()
    gc.disable()  # an object a tensor: the collector would walk them again and again, and find nothing
    try:
        return _flow(timeline)
    finally:
        if collecting:
            gc.enable()


def _flow(timeline: Timeline) -> Flow:
    order = order_of(timeline)
    if not len(order.row):
        timeline = replace(timeline, tensors=None)  # tensors of no operator
    evidence = np.full(timeline.tensors.num_rows, Evidence.PROVEN, np.int8)
    recorded = len(evidence) > 0
    if recorded:
        told = optimizers_told(timeline, order)
        timeline, order = told.timeline, told.order
        evidence = np.where(told.guessed, Evidence.CONSISTENT, Evidence.PROVEN).astype(np.int8)
    else:
        found = inferred(timeline, order)
        timeline, order = found.timeline, found.order
        evidence = np.where(found.consistent, Evidence.CONSISTENT, Evidence.ADJACENT).astype(np.int8)
    tensors = Tensors.of(timeline, order)
    nodes, activity_node, member = _nodes(timeline, order, tensors)
    calls = _Calls.of(timeline, order, tensors, member, nodes)
    reads, writes, edges = _walk(_happenings(order, tensors, calls, nodes), tensors, nodes, calls, evidence)
    if not recorded:
        made = tensors.storage[tensors.is_output & ~calls.aliased]  # `empty` makes one, and `copy_` writes it
        made_here = np.isin(tensors.storage[writes.tensor_row], made)
        writes = replace(writes, made=made_here, gone_node=_gone_when_read(writes, edges, made_here))
    writes = replace(writes, live_out=_live_out(nodes, writes.node, writes.gone_node))
    silent = np.zeros(len(nodes), np.bool_)
    silent[calls.member[calls.silent]] = True
    silent &= calls.silent[calls.op] | ~calls.says[calls.op]  # an operator with a schema speaks for those inside it
    before, after = orders(reads, writes, silent)
    guessed = {}
    if not recorded:
        may = perhaps(found.guesses, timeline, order, nodes, reads, writes)
        guessed = {"perhaps_before": may.before, "perhaps_after": may.after}
        guessed |= {"guessed_storage": may.storage, "guessed_reader": may.reader}
    return Flow(
        timeline=timeline,
        nodes=nodes,
        reads=reads,
        writes=writes,
        edges=edges,
        order_before=before,
        order_after=after,
        activity_node=activity_node,
        **guessed,
    )


def _nodes(timeline: Timeline, order: Order, tensors: Tensors) -> tuple[Nodes, IntArray, IntArray]:
    """The nodes, the node of each activity, and of each operator that launched some (−1: it launched none)."""
    op_row = numbers(timeline.activities.column("op_row"), -1)
    # Where nobody is known to read or to write, there are no nodes.
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
    # Of what has neither a schema nor a tensor (a kernel that TorchScript generated) nobody says what it reads either.
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
    """Which operators have a schema: recorded, or in the operator table where none is, as of NVTX."""
    recorded = string_ids(timeline.ops.column("op_schema"))[0] >= 0
    if recorded.any():
        return recorded
    name, names = string_ids(timeline.ops.column("name"))
    return np.array([*(lookup(text) is not None for text in names), False])[name]


@dataclass(frozen=True, slots=True)
class _Calls:
    """What the operators do to their tensors: one entry an operator, then one a tensor."""

    op: IntArray  # of each node, its operator's position
    member: IntArray  # its node, where it launched something
    says: BoolArray  # it has a schema
    shares: BoolArray  # what it gives in a storage that it took is written: collectives, and what has no schema
    closed: BoolArray  # the operator table has it: all that it reads it takes as arguments
    silent: (
        BoolArray  # it has neither a schema nor outputs, or another library's marks nothing: nobody says what it writes
    )
    allocates: BoolArray  # a new storage among its outputs is new memory, and no content of an operator inside it
    mutated: BoolArray  # tensors: an input that is written
    overwritten: BoolArray  # tensors: an input whose old content is not read
    aliased: BoolArray  # tensors: an output whose storage is an input's

    @staticmethod
    def of(timeline: Timeline, order: Order, tensors: Tensors, member: IntArray, nodes: Nodes) -> _Calls:
        schema, schemas = string_ids(timeline.ops.column("op_schema"))
        schema = schema[order.row]
        of_schema = [*(effects(text) for text in schemas), NO_EFFECTS]
        name, op_names = string_ids(timeline.ops.column("name"))
        name = name[order.row]
        views = np.array([*(is_view(text) for text in op_names), False])[name]
        closed = np.array([*(lookup(text) is not None for text in op_names), False])[name]
        says, launches = schema >= 0, member >= 0
        mute = np.array([one.mute for one in of_schema])[schema]
        shares = ~says | np.array([one.shares for one in of_schema])[schema]
        gives = np.zeros(len(schema), np.bool_)
        gives[tensors.op[tensors.is_output & (tensors.op >= 0)]] = True
        inputs, outputs = ~tensors.is_output & (tensors.op >= 0), tensors.is_output & (tensors.op >= 0)
        mutated, overwritten = (
            inputs & _at_positions(schema, tensors, [getattr(one, which) for one in of_schema])
            for which in ("mutates", "overwrites")
        )
        switched = inputs & mutated & _at_positions(schema, tensors, [one.switched for one in of_schema])
        switches = [one.switch for one in of_schema]
        mutated &= ~(switched & _switched_off(timeline, order, tensors, switched, schema, switches))
        key = tensors.op * (int(tensors.storage.max(initial=0)) + 1) + tensors.storage
        return _Calls(
            op=order.position[nodes.op_row],
            member=member,
            says=says,
            shares=shares,
            closed=closed & says,
            silent=launches & (~says | mute) & ~gives,
            allocates=np.where(launches, says & ~shares, order.leaf & order.joined & ~views),
            mutated=mutated,
            overwritten=overwritten,
            aliased=outputs & np.isin(key, key[inputs]),
        )


def _at_positions(schema: IntArray, tensors: Tensors, positions: list[frozenset[int]]) -> BoolArray:
    """For each tensor whether its position is among those of its operator's schema."""
    width = max((max(one, default=0) for one in positions), default=0) + 2
    table = np.zeros((len(positions), width), np.bool_)
    for row, one in enumerate(positions):
        table[row, list(one)] = True
    found: BoolArray = table[schema[tensors.op], np.minimum(tensors.position, width - 1)]
    return found


def _switched_off(
    timeline: Timeline,
    order: Order,
    tensors: Tensors,
    switched: BoolArray,
    schema: IntArray,
    switches: list[int | None],
) -> BoolArray:
    """For each tensor whether its operator was told, by a recorded argument, to leave it alone."""
    off = np.zeros(len(tensors.op), np.bool_)
    given, texts = string_ids(timeline.ops.column("concrete_inputs"))
    told: dict[tuple[int, int], bool] = {}
    for row in np.flatnonzero(switched).tolist():
        op = int(tensors.op[row])
        switch, text = switches[schema[op]], int(given[order.row[op]])
        if switch is not None and text >= 0:
            if (text, switch) not in told:
                told[text, switch] = _input(texts[text], switch) == "False"
            off[row] = told[text, switch]
    return off


def _input(text: str, position: int) -> object:
    """The text of one recorded argument; None where there is none."""
    try:
        inputs = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    return inputs[position] if isinstance(inputs, list) and position < len(inputs) else None


@dataclass(frozen=True, slots=True)
class _Happenings:
    """What happens to storages, in order: each to one row of `tensors`."""

    what: IntArray
    row: IntArray
    node: IntArray  # that does it; of an allocation the next one to begin
    inner: BoolArray  # an operator inside the node's own does it


def _happenings(order: Order, tensors: Tensors, calls: _Calls, nodes: Nodes) -> _Happenings:
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
    elsewhere = ~calls.closed[outer] & ~np.isin(outer * width + tensors.storage, key[here]) if len(outer) else inner
    reads = worker & inputs & ~calls.overwritten & (~inner | elsewhere)

    fresh = outputs & ~calls.aliased
    allocated = np.flatnonzero(fresh & calls.allocates[op])
    allocated = allocated[np.sort(np.unique(key[allocated], return_index=True)[1])]
    written_keys = key[here & calls.mutated]
    gives_back = outputs & calls.aliased & (calls.shares[op] | np.isin(key, written_keys))
    written = worker & (fresh | gives_back)
    same = _equal_to_output(tensors, key, here & calls.mutated & worker, written)
    written |= worker & calls.mutated & ~same
    maybe = worker & inputs & calls.silent[op]

    rows = [np.flatnonzero(reads), allocated, np.flatnonzero(maybe), np.flatnonzero(written)]
    row = np.concatenate(rows)
    what = np.repeat(np.arange(4), [len(r) for r in rows])
    moment = np.where(what == _READ, begins[op[row]], ends[op[row]])
    in_order = np.lexsort((row, what, moment))
    row, what, moment = row[in_order], what[in_order], moment[in_order]
    upcoming = np.searchsorted(begins[calls.op], moment)
    return _Happenings(what, row, np.where(what == _ALLOCATE, upcoming, node[row]), inner[row])


def _equal_to_output(tensors: Tensors, key: IntArray, mutated: BoolArray, written: BoolArray) -> BoolArray:
    """For each mutated input whether an output of the operator names the same bytes."""
    found = np.zeros(len(key), np.bool_)
    outputs = set(
        zip(key[written].tolist(), tensors.begin[written].tolist(), tensors.end[written].tolist(), strict=True)
    )
    rows = np.flatnonzero(mutated)
    places = zip(key[rows].tolist(), tensors.begin[rows].tolist(), tensors.end[rows].tolist(), strict=True)
    found[rows] = [place in outputs for place in places]
    return found


def _walk(
    happenings: _Happenings, tensors: Tensors, nodes: Nodes, calls: _Calls, evidence: Array
) -> tuple[Reads, Writes, Edges]:
    writers = LastWriters()
    row, what = happenings.row, happenings.what
    # An operator that writes what it takes need not read it: where nothing was written yet, it does not.
    need_not = calls.mutated[row] | (calls.silent[tensors.op[row]] if len(row) else False)
    layout = np.full(len(row), -1)
    writing = np.flatnonzero((what == _WRITE) | (what == _MAYBE_WRITE))
    layout[writing] = tensors.layouts(row[writing])
    read_at: list[int] = []
    read_buffer: list[int] = []
    read_source: list[int] = []
    read_edges: list[int] = []
    edge_write: list[int] = []
    write_at: list[int] = []
    write_node: list[int] = []
    write_buffer: list[int] = []
    write_made: list[bool] = []
    columns = (
        *(what, happenings.node, tensors.storage[row], tensors.begin[row], tensors.end[row]),
        *(layout, need_not, happenings.inner),
    )
    steps = zip(*(column.tolist() for column in columns), strict=True)
    for at, (act, node, storage, begin, end, strided, may_skip, inner) in enumerate(steps):
        if act == _READ:
            if may_skip and writers.is_empty(storage, begin, end):
                continue
            source, found = writers.read(storage, begin, end)
            others = [write for write in found if write_node[write] != node]
            if inner and found and not others:
                continue
            read_at.append(at)
            read_buffer.append(writers.buffer(storage))
            read_source.append(source)
            read_edges.append(len(others))
            edge_write += others
        elif act == _ALLOCATE:
            writers.allocate(storage, node)
        elif act == _MAYBE_WRITE and not writers.is_empty(storage, begin, end):
            writers.maybe_written(storage)
        else:
            writers.node = node
            write_at.append(at)
            write_node.append(node)
            write_buffer.append(writers.buffer(storage))
            write_made.append(writers.is_made(storage))
            writers.write(storage, begin, end, strided)

    reads = np.array(read_at, np.int64)
    reads_order = np.argsort(happenings.node[reads], kind="stable")
    counts = np.array(read_edges, np.int64)
    edge_read = np.empty(len(reads), np.int64)
    edge_read[reads_order] = np.arange(len(reads))
    edge_read = np.repeat(edge_read, counts)
    written = np.array(write_at, np.int64)
    # What operators inside a node write for themselves alone is nobody else's matter.
    kept = ~happenings.inner[written]
    kept[np.array(edge_write, np.int64)] = True
    number = np.cumsum(kept) - 1
    edge_order = np.argsort(edge_read, kind="stable")
    edge_read, edge_from = edge_read[edge_order], number[np.array(edge_write, np.int64)[edge_order]]
    reads, written = reads[reads_order], written[kept]
    read = Reads(
        node=happenings.node[reads],
        tensor_row=row[reads],
        buffer=np.array(read_buffer, np.int64)[reads_order],
        begin_byte=tensors.begin[row[reads]],
        end_byte=tensors.end[row[reads]],
        bytes=tensors.bytes[row[reads]],
        source=np.array(read_source, np.int8)[reads_order],
        evidence=evidence[row[reads]],
    )
    buffer = np.array(write_buffer, np.int64)[kept]
    node = happenings.node[written]
    write = Writes(
        node=node,
        tensor_row=row[written],
        buffer=buffer,
        begin_byte=tensors.begin[row[written]],
        end_byte=tensors.end[row[written]],
        bytes=tensors.bytes[row[written]],
        fresh=tensors.is_output[row[written]] & ~calls.aliased[row[written]],
        made=np.array(write_made, np.bool_)[kept],
        gone_node=np.array(writers.gone, np.int64)[kept],
        live_out=np.zeros(len(node), np.bool_),
    )
    overlap = np.minimum(read.end_byte[edge_read], write.end_byte[edge_from])
    overlap -= np.maximum(read.begin_byte[edge_read], write.begin_byte[edge_from])
    edges = Edges(
        write=edge_from,
        read=edge_read,
        producer=write.node[edge_from],
        consumer=read.node[edge_read],
        bytes=np.minimum(overlap, np.minimum(read.bytes[edge_read], write.bytes[edge_from])),
    )
    return read, write, edges


def _gone_when_read(writes: Writes, edges: Edges, made: BoolArray) -> IntArray:
    """The first node that no longer finds each write, where nobody recorded when memory was used again.

    What was made during the recording (`made`, of each write) is taken to be gone once the last node that reads it has;
    what nobody reads stays, and so does what is written into tensors from outside.
    """
    last = np.full(len(writes), -1)
    np.maximum.at(last, edges.write, edges.consumer)
    gone: IntArray = np.where((writes.gone_node < 0) & (last >= 0) & made, last + 1, writes.gone_node)
    return gone


def _live_out(nodes: Nodes, node: IntArray, gone: IntArray) -> BoolArray:
    """For each write whether it is still there once the nodes of its step have run."""
    step = np.maximum.accumulate(nodes.step_row) if len(nodes) else nodes.step_row
    end_of_step = np.searchsorted(step, step, "right")
    return (gone < 0) | (gone >= end_of_step[node]) if len(node) else np.zeros(0, np.bool_)
