"""What the members of each group read and write as they are, and what one kernel in their place would."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from msgspec import Struct

from tracemine.columns import is_among, numbers, sorted_unique
from tracemine.flow.record import BoolArray, Evidence, Flow, IntArray, Reads, Source, Writes
from tracemine.fusion.kernel import REDUCTIONS, FusedKernel
from tracemine.fusion.memory_order import across_the_grain
from tracemine.fusion.nodes import FusionNodes, Meaning
from tracemine.fusion.roles import online_softmax
from tracemine.timeline import Timeline


def traffic_of(
    timeline: Timeline,
    flow: Flow,
    nodes: FusionNodes,
    meanings: list[Meaning],
    call: IntArray,
    node_group: IntArray,
    count: int,
    lasts: BoolArray,
    node_sized: BoolArray,
) -> dict[str, Any]:
    """Return what `Groups` says of bytes and kernels.

    `node_group`: for each node the number of its group, −1; `count`: so many groups. `lasts`: see liveness.py, and
    `node_sized`: see sized_nodes.
    """
    edges, reads, writes = flow.edges, flow.reads, flow.writes
    producer, consumer = node_group[edges.producer], node_group[edges.consumer]
    inside = (producer == consumer) & (producer >= 0)
    read_group, write_group = node_group[reads.node], node_group[writes.node]

    read_bytes = _bytes_read(timeline, flow, meanings, call)
    # Of what a group reads, all that its own members wrote need not be read; of a mixture, the part that they wrote.
    internal = np.bincount(edges.read[inside], edges.bytes[inside], len(reads.node)).astype(np.int64)
    all_inside = np.ones(len(reads.node), np.bool_)
    all_inside[edges.read[~inside]] = False
    all_inside &= (internal > 0) & (reads.source == Source.WRITTEN)
    outside_bytes = np.where(all_inside, 0, np.maximum(read_bytes - np.minimum(internal, read_bytes), 0))
    buffer = distinguished(reads)
    in_group = (read_group >= 0) & (outside_bytes > 0)
    reading = _Distinct.of(in_group, read_group, reads, outside_bytes, buffer)

    wanted = _wanted(timeline, flow, node_group, lasts) & (write_group >= 0)
    writing = _Distinct.of(wanted, write_group, writes, writes.bytes, writes.buffer)
    more_reads, more_writes = _more_apart(
        flow, (in_group, wanted), (read_group, write_group), read_bytes, buffer, count
    )
    gone = (write_group >= 0) & ~wanted & writes.fresh & flow.read_by_others

    evidence = _evidence(flow, node_group, count, inside)

    node_reads = _node_reads(flow, read_bytes, buffer)
    node_writes = np.bincount(writes.node, writes.bytes, len(flow.nodes)).astype(np.int64)
    before = _summed(node_group, count, node_reads + node_writes)
    member = np.flatnonzero(node_group >= 0)
    flops = _summed(node_group, count, np.maximum(nodes.flops, 0))
    flops[sorted_unique(node_group[member[nodes.flops[member] < 0]])] = -1
    depth = depths(nodes.rows > 0, node_group, count, edges.producer[inside], edges.consumer[inside])
    sized = np.ones(count, np.bool_)
    sized[node_group[member[~node_sized[member]]]] = False
    kernels, kernel = _kernels(timeline, flow, nodes, node_group, sized, reading, writing, depth)
    after = _bytes(reading, count) + _bytes(writing, count)
    intermediate_bytes = np.bincount(write_group[gone], writes.bytes[gone], count).astype(np.int64)
    lost = np.flatnonzero(gone & np.append(sized, False)[write_group])
    return {
        "kernels": kernels,
        "kernel": kernel,
        "evidence": evidence.astype(np.int8),
        "node_reads": np.where(node_sized, node_reads, -1),
        "node_writes": np.where(node_sized, node_writes, -1),
        "bytes_before": np.where(sized, before, -1),
        "bytes_after": np.where(sized, np.minimum(after, before), -1),
        "more_reads": np.where(sized, np.maximum(more_reads - _bytes(reading, count), 0), 0),
        "more_writes": np.where(sized, np.maximum(more_writes - _bytes(writing, count), 0), 0),
        "intermediate_bytes": np.where(sized, intermediate_bytes, -1),
        "flops": flops,
        "gone_group": write_group[lost],
        "gone_op_row": flow.nodes.op_row[writes.node[lost]],
        "gone_bytes": writes.bytes[lost],
    }


def sized_nodes(timeline: Timeline, flow: Flow) -> BoolArray:
    """For each node whether the bytes of all that it reads and writes are known: what an element takes was not recorded
    where dtypes were not recorded, and tensors are measured in elements there.

    >>> from tracemine.flow import flow
    >>> from tracemine.timeline import Meta
    >>> empty = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    >>> len(sized_nodes(empty, flow(empty)))
    0
    """
    unknown = numbers(timeline.tensors.column("itemsize_bytes"), -1) < 0
    found = np.ones(len(flow.nodes), np.bool_)
    for accesses in (flow.reads, flow.writes):
        found[accesses.node[unknown[accesses.tensor_row]]] = False
    return found


class _Distinct(Struct, frozen=True):
    """Bytes of each buffer that a group touches, what is touched twice counted once; by group."""

    group: IntArray
    bytes: IntArray
    row: IntArray  # the largest access: a position in Reads or Writes

    @staticmethod
    def of(
        chosen: BoolArray, group: IntArray, accesses: Reads | Writes, nbytes: IntArray, buffers: IntArray
    ) -> _Distinct:
        rows = np.flatnonzero(chosen)
        buffer, begin, end = (column[rows] for column in (buffers, accesses.begin_byte, accesses.end_byte))
        own, amount = group[rows], nbytes[rows]
        # The same place counts once, at its largest.
        order = np.lexsort((-amount, end, begin, buffer, own))
        rows, own, buffer, begin, end, amount = (part[order] for part in (rows, own, buffer, begin, end, amount))
        new = _changes(own, buffer, begin, end)
        rows, own, buffer, begin, end, amount = (part[new] for part in (rows, own, buffer, begin, end, amount))
        # Places of one buffer that overlap (a tensor, and slices of it) are no more than what lies between their ends.
        starts = np.flatnonzero(_changes(own, buffer))
        if not len(starts):
            return _Distinct(own, amount, rows)
        total = np.add.reduceat(amount, starts)
        extent = np.maximum.reduceat(end, starts) - np.minimum.reduceat(begin, starts)
        largest = np.maximum.reduceat(amount, starts)
        at = np.flatnonzero(amount == np.repeat(largest, np.diff(np.append(starts, len(amount)))))
        first = at[np.unique(np.searchsorted(starts, at, "right") - 1, return_index=True)[1]]
        return _Distinct(own[starts], np.maximum(np.minimum(total, extent), largest), rows[first])


def _bytes(distinct: _Distinct, count: int) -> IntArray:
    """Of each group the sum."""
    return np.bincount(distinct.group, distinct.bytes, count).astype(np.int64)


def _more_apart(
    flow: Flow,
    chosen: tuple[BoolArray, BoolArray],
    group: tuple[IntArray, IntArray],
    read_bytes: IntArray,
    buffer: IntArray,
    count: int,
) -> tuple[IntArray, IntArray]:
    """Bytes that each group reads and writes if whatever a member writes in place, and takes with it, and whatever it
    reads again, is a tensor of its own wherever that is a guess: an optimizer's state, of which several tensors look
    the same, or the inputs of siblings.
    """
    reads, writes = flow.reads, flow.writes
    reading, wanted = chosen
    guessed = reads.evidence == Evidence.ADJACENT
    in_place = np.zeros(len(flow.nodes), np.bool_)
    in_place[writes.node[~writes.fresh]] = True
    apart = guessed & (in_place[reads.node] | _again(reads, group[0])) & (group[0] >= 0)
    own = np.where(apart, 2 * (1 + reads.buffer.max(initial=0)) + np.arange(len(reads.node)), buffer)
    # A target is guessed where its old content is.
    width = 1 + max(int(reads.buffer.max(initial=0)), int(writes.buffer.max(initial=0)))
    target = ~writes.fresh & is_among(writes.node * width + writes.buffer, (reads.node * width + reads.buffer)[guessed])
    target &= group[1] >= 0
    to = np.where(target, width + np.arange(len(writes)), writes.buffer)
    return (
        _bytes(_Distinct.of(reading | apart, group[0], reads, read_bytes, own), count),
        _bytes(_Distinct.of(wanted | target, group[1], writes, writes.bytes, to), count),
    )


def _again(reads: Reads, group: IntArray) -> BoolArray:
    """For each read whether a member of the group before it has read the same."""
    order = np.lexsort((reads.node, reads.end_byte, reads.begin_byte, reads.buffer, group))
    first = _changes(*(column[order] for column in (group, reads.buffer, reads.begin_byte, reads.end_byte)))
    again = np.zeros(len(reads.node), np.bool_)
    again[order[~first]] = True
    return again


def _evidence(flow: Flow, node_group: IntArray, count: int, inside: BoolArray) -> IntArray:
    """Of the weakest read by which each group hangs together: of what its members wrote, and where a member neither
    reads nor is read inside, of what all of them read.
    """
    edges, reads = flow.edges, flow.reads
    found = np.full(count, Evidence.PROVEN, np.int64)
    np.minimum.at(found, node_group[edges.consumer[inside]], reads.evidence[edges.read[inside]].astype(np.int64))
    beside = node_group >= 0
    beside[edges.producer[inside]] = beside[edges.consumer[inside]] = False
    loose = np.zeros(count + 1, np.bool_)
    loose[node_group[beside]] = True
    rows = np.flatnonzero(loose[node_group[reads.node]])
    np.minimum.at(found, node_group[reads.node[rows]], reads.evidence[rows].astype(np.int64))
    return found


def distinguished(reads: Reads) -> IntArray:
    """For each read its buffer, with what is only guessed to be in a buffer in one of its own next to it.

    Two tensors of one shape and type from outside (a gate and what it gates) look the same as one that is read
    twice, and are the likelier of the two.
    """
    guessed = reads.evidence == Evidence.ADJACENT
    return np.where(guessed, reads.buffer + 1 + reads.buffer.max(initial=0), reads.buffer)


def _changes(*columns: IntArray) -> BoolArray:
    """Return whether each entry differs from the one before."""
    new = np.ones(len(columns[0]), np.bool_)
    if len(new) > 1:
        new[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return new


def _bytes_read(timeline: Timeline, flow: Flow, meanings: list[Meaning], call: IntArray) -> IntArray:
    """Return bytes of each read: of a table that is looked up what comes out, of what only gives its shape none."""
    reads, writes = flow.reads, flow.writes
    nbytes = reads.bytes.copy()
    if not len(nbytes):
        return nbytes
    position = numbers(timeline.tensors.column("position"), 0)[reads.tensor_row]
    looked_up = np.array([m.looked_up for m in meanings], np.int64)[call[reads.node]]
    out = np.zeros(len(flow.nodes), np.int64)
    np.maximum.at(out, writes.node, writes.bytes)
    nbytes = np.where(looked_up == position, np.minimum(nbytes, out[reads.node]), nbytes)
    width = 1 + max((max(m.unread, default=-1) for m in meanings), default=-1)
    if width:
        table = np.zeros((len(meanings), width + 1), np.bool_)
        for row, meaning in enumerate(meanings):
            table[row, list(meaning.unread)] = True
        nbytes = np.where(table[call[reads.node], np.minimum(position, width)], 0, nbytes)
    return nbytes


def _wanted(timeline: Timeline, flow: Flow, node_group: IntArray, lasts: BoolArray) -> BoolArray:
    """For each write whether one kernel would still have to write it: another reads it, or it is there afterwards.

    A node's first output without a consumer that is gone is taken to be live-out: it was made for a reason.
    """
    edges, writes = flow.edges, flow.writes
    elsewhere = np.zeros(len(writes.node), np.bool_)
    outside = node_group[edges.producer] != node_group[edges.consumer]
    elsewhere[edges.write[outside]] = True
    first = numbers(timeline.tensors.column("position"), 0)[writes.tensor_row] == 0
    unread = ~flow.read_by_others & writes.fresh & first
    wanted: BoolArray = lasts | elsewhere | unread
    return wanted


def _node_reads(flow: Flow, read_bytes: IntArray, buffer: IntArray) -> IntArray:
    """Return bytes that each node reads; the same tensor read twice counts once."""
    reads = flow.reads
    order = np.lexsort((-read_bytes, reads.end_byte, reads.begin_byte, buffer, reads.node))
    new = _changes(*(column[order] for column in (reads.node, buffer, reads.begin_byte, reads.end_byte)))
    once = order[new]
    return np.bincount(reads.node[once], read_bytes[once], len(flow.nodes)).astype(np.int64)


def _summed(node_group: IntArray, count: int, values: IntArray) -> IntArray:
    members = node_group >= 0
    return np.bincount(node_group[members], values[members], count).astype(np.int64)


# --- the kernel that one would write ---------------------------------------------------------------------------------


def _kernels(
    timeline: Timeline,
    flow: Flow,
    nodes: FusionNodes,
    node_group: IntArray,
    sized: BoolArray,
    reading: _Distinct,
    writing: _Distinct,
    depth: IntArray,
) -> tuple[tuple[FusedKernel, ...], IntArray]:
    """Return the distinct kernels, and which of them each group is: −1 where its bytes are not known (`sized`)."""
    count = len(sized)
    members = np.flatnonzero(node_group >= 0)
    members = members[np.argsort(node_group[members], kind="stable")]
    bounds = np.searchsorted(node_group[members], np.arange(count + 1)).tolist()
    rows, length, columns = _spaces(nodes, node_group, count)
    full = rows * length
    item = numbers(timeline.tensors.column("itemsize_bytes"), 1)
    read_row, write_row = flow.reads.tensor_row[reading.row], flow.writes.tensor_row[writing.row]
    group = np.concatenate((reading.group, writing.group))
    row, nbytes = np.concatenate((read_row, write_row)), np.concatenate((reading.bytes, writing.bytes))
    whole = nbytes >= full[group] * np.minimum(item[row], 1)
    widest = np.zeros(count, np.int64)
    np.maximum.at(widest, group[whole], np.clip(item[row[whole]], 1, 16))
    any_width = np.ones(count, np.int64)  # of lists of tensors none is full-size
    np.maximum.at(any_width, group, np.clip(item[row], 1, 16))
    widest = np.where(widest > 0, widest, any_width)
    strided = across_the_grain(timeline, flow, nodes, node_group, full)
    reads, writes = _tuples(reading, count), _tuples(writing, count)
    # A smaller tensor that is spread over the whole is computed for each element anew, unless it is one number a row.
    per_row = (length > 1)[node_group[members]] & (nodes.size[members] <= rows[node_group[members]])
    code, each_element = nodes.steps_code[members].tolist(), (~per_row & (nodes.size[members] > 1)).tolist()
    kernels: dict[FusedKernel, int] = {}
    known: dict[tuple[int, ...], tuple[str, ...]] = {}
    which = []
    facts = zip(*(each.tolist() for each in (rows, length, columns, widest, strided, depth, sized)), strict=True)
    for at, ((begin, end), (many, long, across, width, is_strided, deep, known_bytes)) in enumerate(
        zip(itertools.pairwise(bounds), facts, strict=True)
    ):
        codes = tuple(c for c, counts in zip(code[begin:end], each_element[begin:end], strict=True) if counts)
        if codes not in known:
            known[codes] = online_softmax(tuple(step for each in codes for step in nodes.steps[each]))
        steps = known[codes]
        if long == 1:
            steps = tuple("simple" if step in REDUCTIONS else step for step in steps)
        kernel = FusedKernel(
            reads=reads[at],
            writes=writes[at],
            rows=many,
            length=long,
            item_bytes=width,
            steps=steps,
            columns=across,
            strided=is_strided,
            depth=deep or None,
        )
        which.append(kernels.setdefault(kernel, len(kernels)) if known_bytes else -1)
    return tuple(kernels), np.array(which, np.int64)


def _spaces(nodes: FusionNodes, node_group: IntArray, count: int) -> tuple[IntArray, IntArray, BoolArray]:
    """Rows, their length, and whether they lie across the grain, of each group; pointwise groups have rows of one."""
    rows, length, columns = np.zeros(count, np.int64), np.ones(count, np.int64), np.zeros(count, np.bool_)
    largest = np.zeros(count, np.int64)
    members = np.flatnonzero(node_group >= 0)
    np.maximum.at(largest, node_group[members], nodes.size[members])
    reducing = members[nodes.rows[members] > 0]
    rows[node_group[reducing]] = nodes.rows[reducing]
    length[node_group[reducing]] = nodes.length[reducing]
    columns[node_group[reducing]] = nodes.columns[reducing]
    return np.where(rows > 0, rows, np.maximum(largest, 1)), length, columns


def depths(reduces: BoolArray, node_group: IntArray, count: int, producer: IntArray, consumer: IntArray) -> IntArray:
    """The most reductions of each group of which each needs the one before. Edges are those inside groups, forwards.

    >>> chain = np.arange(3)
    >>> depths(np.array([True, False, True]), np.zeros(3, np.int64), 1, chain[:-1], chain[1:])
    array([2])
    """
    level = reduces.astype(np.int64)
    for _ in range(len(level)):  # as often as the longest chain has members
        before = np.zeros(len(level), np.int64)
        np.maximum.at(before, consumer, level[producer])
        if np.array_equal(before + reduces, level):
            break
        level = before + reduces
    depth = np.zeros(count, np.int64)
    members = np.flatnonzero(node_group >= 0)
    np.maximum.at(depth, node_group[members], level[members])
    return depth


def _tuples(parts: _Distinct, count: int) -> list[tuple[int, ...]]:
    """Return bytes of each group's tensors, largest first."""
    order = np.lexsort((-parts.bytes, parts.group))
    bounds = np.searchsorted(parts.group[order], np.arange(count + 1)).tolist()
    values = parts.bytes[order].tolist()
    return [tuple(values[begin:end]) for begin, end in itertools.pairwise(bounds)]
