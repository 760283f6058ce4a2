"""Go through what reads and writes tensors, in order of time: which write each read reads."""

from __future__ import annotations

import msgspec
import numpy as np

from tracemine.calls import calls_of
from tracemine.columns import Array, is_among, string_ids
from tracemine.flow.effects import NO_EFFECTS, effects
from tracemine.flow.order import Order
from tracemine.flow.record import BoolArray, Edges, IntArray, Nodes, Reads, Writes
from tracemine.flow.tensors import Tensors
from tracemine.flow.writers import LastWriters
from tracemine.ops import is_view, lookup
from tracemine.timeline import Timeline

READ, ALLOCATE, MAYBE_WRITE, WRITE = range(4)


def _at_positions(schema: IntArray, tensors: Tensors, positions: list[frozenset[int]]) -> BoolArray:
    """Return for each tensor whether its position is among those of its operator's schema."""
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
    """Return for each tensor whether a recorded argument made its operator leave it alone."""
    off = np.zeros(len(tensors.op), np.bool_)
    calls = calls_of(timeline)
    for row in np.flatnonzero(switched).tolist():
        op = int(tensors.op[row])
        switch, call = switches[schema[op]], calls.at(order.row[op])
        off[row] = switch is not None and call is not None and call.value(switch) == "False"
    return off


class OperatorEffects(msgspec.Struct, frozen=True):
    """What the operators do to their tensors: one entry an operator, then one a tensor."""

    op: IntArray  # of each node, its operator's position
    member: IntArray  # its node, where it launched something
    says: BoolArray  # it has a schema
    shares: BoolArray  # what it gives in a storage that it took is written: collectives, and what has no schema
    closed: BoolArray  # the operator table has it: all that it reads it takes as arguments
    silent: (
        BoolArray  # it has neither a schema nor outputs, or another library's marks nothing: what it writes is unknown
    )
    allocates: BoolArray  # a new storage among its outputs is new memory, and no content of an operator inside it
    mutated: BoolArray  # tensors: an input that is written
    overwritten: BoolArray  # tensors: an input whose old content is not read
    aliased: BoolArray  # tensors: an output whose storage is an input's

    @staticmethod
    def of(timeline: Timeline, order: Order, tensors: Tensors, member: IntArray, nodes: Nodes) -> OperatorEffects:
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
        return OperatorEffects(
            op=order.position[nodes.op_row],
            member=member,
            says=says,
            shares=shares,
            closed=closed & says,
            silent=launches & (~says | mute) & ~gives,
            allocates=np.where(launches, says & ~shares, order.leaf & order.joined & ~views),
            mutated=mutated,
            overwritten=overwritten,
            aliased=outputs & is_among(key, key[inputs]),
        )


class Happenings(msgspec.Struct, frozen=True):
    """What happens to storages, in order: each to one row of `tensors`."""

    what: IntArray
    row: IntArray
    node: IntArray  # that does it; of an allocation the next one to begin
    inner: BoolArray  # an operator inside the node's own does it


class _Log:
    """What each read and each write came to, in order of time."""

    def __init__(self) -> None:
        self.read_at: list[int] = []
        self.read_buffer: list[int] = []
        self.read_source: list[int] = []
        self.read_edges: list[int] = []  # how many writes each read reads
        self.edge_write: list[int] = []
        self.write_at: list[int] = []
        self.write_node: list[int] = []
        self.write_buffer: list[int] = []
        self.write_made: list[bool] = []


def reads_and_writes(
    happenings: Happenings, tensors: Tensors, nodes: Nodes, calls: OperatorEffects, evidence: Array
) -> tuple[Reads, Writes, Edges]:
    writers = LastWriters()
    log = _logged(happenings, tensors, calls, writers)
    row = happenings.row
    reads = np.array(log.read_at, np.int64)
    reads_order = np.argsort(happenings.node[reads], kind="stable")
    edge_read = np.empty(len(reads), np.int64)
    edge_read[reads_order] = np.arange(len(reads))
    edge_read = np.repeat(edge_read, np.array(log.read_edges, np.int64))
    edge_write = np.array(log.edge_write, np.int64)
    written = np.array(log.write_at, np.int64)
    # What operators inside a node write for themselves alone concerns no other.
    kept = ~happenings.inner[written]
    kept[edge_write] = True
    number = np.cumsum(kept) - 1
    edge_order = np.argsort(edge_read, kind="stable")
    edge_read, edge_from = edge_read[edge_order], number[edge_write[edge_order]]
    reads, written = reads[reads_order], written[kept]
    read = Reads(
        node=happenings.node[reads],
        tensor_row=row[reads],
        buffer=np.array(log.read_buffer, np.int64)[reads_order],
        begin_byte=tensors.begin[row[reads]],
        end_byte=tensors.end[row[reads]],
        bytes=tensors.bytes[row[reads]],
        source=np.array(log.read_source, np.int8)[reads_order],
        evidence=evidence[row[reads]],
    )
    node = happenings.node[written]
    write = Writes(
        node=node,
        tensor_row=row[written],
        buffer=np.array(log.write_buffer, np.int64)[kept],
        begin_byte=tensors.begin[row[written]],
        end_byte=tensors.end[row[written]],
        bytes=tensors.bytes[row[written]],
        fresh=tensors.is_output[row[written]] & ~calls.aliased[row[written]],
        made=np.array(log.write_made, np.bool_)[kept],
        gone_node=np.array(writers.gone, np.int64)[kept],
        live_out=np.zeros(len(node), np.bool_),
    )
    return read, write, _edges(read, write, edge_read, edge_from)


def _logged(happenings: Happenings, tensors: Tensors, calls: OperatorEffects, writers: LastWriters) -> _Log:
    """Return what each read and write came to, one after another."""
    log = _Log()
    row, what = happenings.row, happenings.what
    # An operator that writes what it takes need not read it: where nothing was written yet, it does not.
    need_not = calls.mutated[row] | (calls.silent[tensors.op[row]] if len(row) else False)
    layout = np.full(len(row), -1)
    writing = np.flatnonzero((what == WRITE) | (what == MAYBE_WRITE))
    layout[writing] = tensors.layouts(row[writing])
    columns = (
        *(what, happenings.node, tensors.storage[row], tensors.begin[row], tensors.end[row]),
        *(layout, need_not, happenings.inner),
    )
    steps = zip(*(column.tolist() for column in columns), strict=True)
    for at, (act, node, storage, begin, end, strided, may_skip, inner) in enumerate(steps):
        if act == READ:
            if may_skip and writers.is_empty(storage, begin, end):
                continue
            source, found = writers.read(storage, begin, end)
            others = [write for write in found if log.write_node[write] != node]
            if inner and found and not others:
                continue
            log.read_at.append(at)
            log.read_buffer.append(writers.buffer(storage))
            log.read_source.append(source)
            log.read_edges.append(len(others))
            log.edge_write += others
        elif act == ALLOCATE:
            writers.allocate(storage, node)
        elif act == MAYBE_WRITE and not writers.is_empty(storage, begin, end):
            writers.maybe_written(storage)
        else:
            writers.node = node
            log.write_at.append(at)
            log.write_node.append(node)
            log.write_buffer.append(writers.buffer(storage))
            log.write_made.append(writers.is_made(storage))
            writers.write(storage, begin, end, strided)
    return log


def _edges(read: Reads, write: Writes, edge_read: Array, edge_from: Array) -> Edges:
    """Return the edges between rows of `read` and of `write`, with the bytes that both touch."""
    overlap = np.minimum(read.end_byte[edge_read], write.end_byte[edge_from])
    overlap -= np.maximum(read.begin_byte[edge_read], write.begin_byte[edge_from])
    return Edges(
        write=edge_from,
        read=edge_read,
        producer=write.node[edge_from],
        consumer=read.node[edge_read],
        bytes=np.minimum(overlap, np.minimum(read.bytes[edge_read], write.bytes[edge_from])),
    )
