"""Go through what reads and writes tensors, in order of time: which write each read reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import msgspec
import numpy as np
from msgspec import Struct, field

from tracemine.calls import calls_of
from tracemine.columns import Array, is_among, string_ids
from tracemine.flow.effects import NO_EFFECTS, effects
from tracemine.flow.order import Order
from tracemine.flow.record import BoolArray, Edges, IntArray, Nodes, Reads, Source, Writes
from tracemine.flow.tensors import Tensors
from tracemine.ops import is_view, lookup
from tracemine.timeline import Timeline

# A read names so many writers at most; a buffer remembers so many strided writes. Real programs stay far below. Without
# a bound a trace made for it would have more edges than memory.
MOST_WRITERS = 1024

Piece = tuple[int, int, int]  # begin, end, number of the write


class _Storage(Struct):
    """What a storage holds now."""

    buffer: int
    born: bool = False  # allocated during the recording
    whole: list[Piece] = field(default_factory=list)  # every byte of these is written; disjoint, by begin
    strided: dict[tuple[int, int, int], int] = field(default_factory=dict)  # (begin, end, layout) → write
    uncertain: bool = False  # an operator that does not say what it writes has had it
    forgotten: bool = False  # more strided writes than are remembered

    def over(self, begin: int, end: int) -> tuple[list[int], bool]:
        """Return the writes that touch the bytes, in order of writing, and whether they cover all of them."""
        whole = self.whole
        if len(whole) == 1 and not self.strided:
            first, last, write = whole[0]
            return [write] if first < end and begin < last else [], first <= begin and end <= last
        at = bisect_left(whole, (begin,))
        at -= at > 0 and whole[at - 1][1] > begin
        pieces = whole[at : bisect_left(whole, (end,))]
        covered = sum(min(last, end) - max(first, begin) for first, last, _ in pieces) >= end - begin
        strided = [write for (first, last, _), write in self.strided.items() if first < end and begin < last]
        # Together they may fill what was allocated: whether they do is not looked into.
        covered |= bool(strided) and self.born
        return sorted({*(write for _, _, write in pieces), *strided}), covered


class LastWriters:
    """Storages by id; given allocations and writes in the order in which they happen, and asked at each read.

    >>> writers = LastWriters()
    >>> writers.allocate(7, node=0)
    >>> first, second = writers.write(7, 0, 8), writers.write(7, 4, 8)
    >>> writers.read(7, 0, 8)
    (<Source.WRITTEN: 0>, [0, 1])
    >>> writers.read(7, 0, 16), writers.read(9, 0, 4)
    ((<Source.PARTLY_HOLE: 4>, [0, 1]), (<Source.OUTSIDE: 1>, []))
    """

    def __init__(self) -> None:
        self.node = 0  # the next one to begin, for what goes now
        self.gone: list[int] = []  # for each write the first node that no longer finds it, −1: none
        self._pieces: list[int] = []  # of each write that are still there
        self._storages: dict[int, _Storage] = {}
        self._buffers = 0

    def buffer(self, storage: int) -> int:
        """Return number of the buffer that a storage id means now."""
        return self._storage(storage).buffer

    def allocate(self, storage: int, node: int) -> None:
        """Note that the id means new memory from now on."""
        self.node = node
        old = self._storages.get(storage)
        if old is not None:
            self._lost([write for _, _, write in old.whole])
            self._lost(old.strided.values())
        self._storages[storage] = _Storage(self._number(), born=True)

    def write(self, storage: int, begin: int, end: int, layout: int = -1) -> int:
        """Note that bytes from begin to end are written: all, or with a layout (equal numbers, equal bytes) some.

        Returns the number of the write.
        """
        held = self._storage(storage)
        number = len(self.gone)
        self.gone.append(-1)
        self._pieces.append(1)
        if layout >= 0:
            before = held.strided.pop((begin, end, layout), None)
            if before is not None:
                self._lost([before])
            elif len(held.strided) >= MOST_WRITERS:
                held.forgotten = True
                self._lost([held.strided.pop(next(iter(held.strided)))])
            held.strided[(begin, end, layout)] = number
            return number
        if held.strided:
            covered = [key for key in held.strided if begin <= key[0] and key[1] <= end]
            self._lost([held.strided.pop(key) for key in covered])
        whole = held.whole
        if not whole:
            whole.append((begin, end, number))
        elif len(whole) == 1 and begin <= whole[0][0] and whole[0][1] <= end:
            self._lost([whole[0][2]])
            whole[0] = (begin, end, number)
        else:
            self._insert(whole, begin, end, number)
        return number

    def maybe_written(self, storage: int) -> None:
        """Note that something that does not say what it writes has had the storage."""
        self._storage(storage).uncertain = True

    def is_made(self, storage: int) -> bool:
        """Return whether what the id means now was allocated during the recording."""
        return self._storage(storage).born

    def is_empty(self, storage: int, begin: int, end: int) -> bool:
        """Return whether a read of these bytes would find nothing: allocated, and never written."""
        held = self._storage(storage)
        return held.born and not held.uncertain and self.read(storage, begin, end)[0] is Source.HOLE

    def read(self, storage: int, begin: int, end: int) -> tuple[Source, list[int]]:
        """Return where bytes from begin to end came from, and the writes that did it, in the order of writing."""
        held = self._storages.get(storage)
        if held is None:
            held = self._storage(storage)
        found, covered = held.over(begin, end)
        if held.uncertain or (held.forgotten and not covered) or len(found) > MOST_WRITERS:
            return Source.UNCERTAIN, found[-MOST_WRITERS:]
        if held.born:
            return (Source.WRITTEN if covered else Source.PARTLY_HOLE if found else Source.HOLE), found
        return (Source.WRITTEN if covered else Source.PARTLY_OUTSIDE if found else Source.OUTSIDE), found

    def _insert(self, whole: list[Piece], begin: int, end: int, number: int) -> None:
        """Put a write among the others, and take away from them what it covers."""
        at = bisect_left(whole, (begin,))
        at -= at > 0 and whole[at - 1][1] > begin
        until = bisect_left(whole, (end,))
        new: list[Piece] = [(begin, end, number)]
        under = whole[at:until]
        for first, last, write in under:
            left = first < begin
            right = last > end
            if left:
                new.insert(0, (first, begin, write))
            if right:
                new.append((end, last, write))
            self._pieces[write] += left + right
        whole[at:until] = new
        self._lost([write for _, _, write in under])

    def _lost(self, writes: Iterable[int]) -> None:
        for write in writes:
            self._pieces[write] -= 1
            if not self._pieces[write]:
                self.gone[write] = self.node

    def _storage(self, storage: int) -> _Storage:
        held = self._storages.get(storage)
        if held is None:
            held = self._storages[storage] = _Storage(self._number())
        return held

    def _number(self) -> int:
        self._buffers += 1
        return self._buffers - 1


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
        mute = np.array([effect.mute for effect in of_schema])[schema]
        shares = ~says | np.array([effect.shares for effect in of_schema])[schema]
        gives = np.zeros(len(schema), np.bool_)
        gives[tensors.op[tensors.is_output & (tensors.op >= 0)]] = True
        inputs, outputs = ~tensors.is_output & (tensors.op >= 0), tensors.is_output & (tensors.op >= 0)
        mutated, overwritten = (
            inputs & _at_positions(schema, tensors, [getattr(effect, which) for effect in of_schema])
            for which in ("mutates", "overwrites")
        )
        switched = inputs & mutated & _at_positions(schema, tensors, [effect.switched for effect in of_schema])
        switches = [effect.switch for effect in of_schema]
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
