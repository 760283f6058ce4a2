"""Reads of tensors of which NVTX names no maker: a parameter or an input, or a result whose tensor object was lost.

A result may reach its reader as an object that no operator gave (`x.data`, what a wrapper or another library makes of
it), and so as something from outside. Nothing tells which result that is: it may be any made before, or a part of it.
"""

from __future__ import annotations

import numpy as np

from tracemine.columns import booleans, numbers, rows_that, sorted_unique, string_ids
from tracemine.flow.inferred.rules import rules
from tracemine.flow.nvtx_optimizers import of_nvtx
from tracemine.flow.record import BoolArray, Evidence, Flow, IntArray, Source
from tracemine.ops import lookup
from tracemine.timeline import Timeline

_NEAR = 64  # nodes before such a reader; a group has no more members
_MATRIX = 2


def elsewhere(
    timeline: Timeline, flow: Flow, lost: tuple[IntArray, IntArray], pairs: tuple[IntArray, IntArray]
) -> BoolArray:
    """Return for each pair of an earlier node and a reader whether what the one made is as large as what the other
    reads of `lost`: that may be it, and nothing says which of its elements are read where.
    """
    size, count = numbers(timeline.tensors.column("numel"), 0), len(flow.nodes)
    node, numel = lost
    _, number = np.unique(np.append(size[flow.writes.tensor_row], numel), return_inverse=True)
    made, read = number[: len(flow.writes)], number[len(flow.writes) :]
    found = np.zeros(len(pairs[0]), np.bool_)
    for one in sorted_unique(read).tolist():  # of few sizes
        makes, reads = (np.zeros(count, np.bool_) for _ in range(2))
        makes[flow.writes.node[made == one]] = True
        reads[node[read == one]] = True
        found |= makes[pairs[0]] & reads[pairs[1]]
    return found


def may_be_lost(timeline: Timeline, flow: Flow, library: BoolArray) -> tuple[IntArray, IntArray]:
    """Return the readers of what may be a lost result, a node for each tensor, and how many elements that has.

    No operator made it, and none takes it where its weights stand. library: nodes that are a library's kernel. What one
    of these takes as a matrix or a vector is a weight, too, where nothing as large was made before.

    >>> from tracemine.flow import flow
    >>> from tracemine.timeline import Meta
    >>> empty = flow(Timeline(meta=Meta(tracemine_version="0", source="t.sqlite", format="nsys")))
    >>> may_be_lost(empty.timeline, empty, empty.nodes.known)[0].tolist()
    []
    """
    if not of_nvtx(timeline):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    reads, writes = flow.reads, flow.writes
    weight, outside = _entered(timeline)
    # What an operator hands to one inside it to be filled is no lost result.
    own = np.isin(reads.buffer * len(library) + reads.node, writes.buffer * len(library) + writes.node)
    without = (reads.source == Source.OUTSIDE) & (outside[reads.tensor_row] | ~own) & ~weight[reads.tensor_row]
    without &= (reads.evidence == Evidence.PROVEN) & flow.nodes.known[reads.node]
    at = np.flatnonzero(without)
    row, node = reads.tensor_row[at], reads.node[at]
    size, rank = numbers(timeline.tensors.column("numel"), 0), _dimensions(timeline)
    small = library[node] & (rank[row] <= _MATRIX)
    small &= node <= _first_made(size[flow.writes.tensor_row], flow.writes.node, size[row], len(library))
    return node[~small], size[row[~small]]


def _entered(timeline: Timeline) -> tuple[BoolArray, BoolArray]:
    """Return the tensors whose storage is met first as an operator's weight, and as what an operator takes that is
    inside no other of the table.
    """
    table = timeline.tensors
    storage = numbers(table.column("storage_id"))
    first = np.full(int(storage.max(initial=-1)) + 1, len(storage))
    np.minimum.at(first, storage, np.arange(len(storage)))
    enters = first[storage]
    inside = _inside_another(timeline)[numbers(table.column("op_row"))]
    outside = ~inside & ~booleans(table.column("is_output"))
    return _at_weights(timeline)[enters], outside[enters]


def _inside_another(timeline: Timeline) -> BoolArray:
    """Return for each row of `ops` whether an operator of the table is around it."""
    listed = rows_that(timeline.ops.column("name"), lambda text: lookup(text) is not None).tolist()
    found: list[bool] = []
    for parent in numbers(timeline.ops.column("parent_row"), -1).tolist():  # what is around stands before
        found.append(parent >= 0 and (listed[parent] or found[parent]))
    return np.array(found, np.bool_)


def _at_weights(timeline: Timeline) -> BoolArray:
    """Return the tensors that operators take where weights and running statistics stand."""
    position = numbers(timeline.tensors.column("position"), 0)
    name, names = string_ids(timeline.ops.column("name"))
    of_tensor = name[numbers(timeline.tensors.column("op_row"))]
    found = np.zeros(len(position), np.bool_)
    taken = ~booleans(timeline.tensors.column("is_output"))
    for code, text in enumerate(names):
        places = rules().parameters.get(text)
        if places:
            found |= taken & (of_tensor == code) & np.isin(position, [*places])
    return found


def _dimensions(timeline: Timeline) -> IntArray:
    shape = timeline.tensors.column("shape").combine_chunks()
    found: IntArray = np.diff(shape.offsets.to_numpy())
    return found


def _first_made(made_size: IntArray, made_by: IntArray, sizes: IntArray, count: int) -> IntArray:
    """Return for each size the first node that makes something of it; count: of none."""
    known, which = np.unique(made_size, return_inverse=True)
    first = np.full(len(known) + 1, count)
    np.minimum.at(first, which, made_by)
    at = np.searchsorted(known, sizes)
    there = known[np.minimum(at, len(known) - 1)] == sizes if len(known) else np.zeros(len(sizes), np.bool_)
    found: IntArray = first[np.where(there, at, -1)]
    return found


def nearby(flow: Flow, readers: IntArray, library: BoolArray) -> tuple[IntArray, IntArray]:
    """Return ways to each reader from what was made shortly before it by what a group may hold."""
    makes = np.zeros(len(flow.nodes), np.bool_)
    makes[flow.writes.node] = True
    makes &= ~library
    before = (readers[:, None] - np.arange(1, _NEAR + 1)).ravel()
    after = np.repeat(readers, _NEAR)
    there = (before >= 0) & makes[np.maximum(before, 0)]
    return before[there], after[there]
