"""Paths that may exist: through unknown reads and writes, and where a product's inputs were guessed.

A path that is not known counts as a path. What is not known to read and write (an operator of another library that no
table describes, a CUDA graph's replay, a kernel that no operator owns, a collective whose tensors are not recorded) may
read all that was written before it, and may have written all that is read after it, but for what was surely written in
between. A matrix product, convolution or attention whose inputs are guesses may read whatever was written before it
with as many elements, and what reads such a guess may read whatever such a product wrote.

A result whose tensor object NVTX lost may reach its reader as something from outside: nothing tells which it is, and it
may be any made before, or a part of it.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracemine.columns import booleans, codes, is_among, numbers, rows_that, sorted_unique, string_ids
from tracemine.flow.inferred.optimizers import spans
from tracemine.flow.inferred.rules import rules
from tracemine.flow.nvtx_optimizers import of_nvtx
from tracemine.flow.record import BoolArray, Evidence, Flow, IntArray, Source
from tracemine.fusion.nodes import HEAVY, FusionNodes
from tracemine.fusion.roles import Role
from tracemine.ops import lookup
from tracemine.timeline import Timeline


class MaybePaths(Struct, frozen=True):
    """Paths that dataflow does not know. Numbers from `nodes` on are not nodes: places where unknown paths meet."""

    before: IntArray
    after: IntArray
    rank: IntArray  # of each node and place: its position in the order of launching
    made: IntArray  # nodes, and those that may read what they made, any elements of it: two a pair
    read: IntArray


def maybe_paths(timeline: Timeline, flow: Flow, nodes: FusionNodes) -> MaybePaths:
    """Return all ways that may exist.

    >>> from tracemine.flow import flow
    >>> from tracemine.fusion.nodes import fusion_nodes
    >>> from tracemine.timeline import Meta
    >>> empty = flow(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto")))
    >>> maybe_paths(empty.timeline, empty, fusion_nodes(empty.timeline, empty)[0]).rank.tolist()
    []
    """
    count = len(flow.nodes)
    launched = (
        sorted_unique(np.append(unowned(timeline, flow), _updates(timeline, flow))) if count else np.zeros(0, np.int64)
    )
    makes_only = _makes_only(timeline, flow)
    # A place behind each node of which it is known what it reads, and not what it writes.
    gives = np.flatnonzero(flow.nodes.known & _gives_unknown(flow, nodes))
    places, *guesses = _guessed(timeline, flow, nodes)
    # A place in front of each node of which it is not known what it reads, but is what it writes; or that reads what
    # was allocated and written by nothing that is known.
    library = nodes.role == Role.LIBRARY
    may_be = may_be_lost(timeline, flow, library)
    lost = sorted_unique(may_be[0])
    holes = sorted_unique(
        np.concatenate((_reads_hole(flow), np.flatnonzero(~flow.nodes.known & makes_only), lost[library[lost]]))
    )
    lost = lost[~library[lost]]
    near = nearby(flow, lost, library)
    unplaced = elsewhere(timeline, flow, may_be, near)
    first_hole = count + len(launched)
    first_result = first_hole + len(holes)
    first_guess = first_result + len(gives)
    first_lost = first_guess + len(places)
    results, losing = np.arange(first_result, first_guess), np.arange(first_lost, first_lost + len(lost))
    rank = np.concatenate(_ranks(count, np.concatenate((launched, holes, gives + 1, places, lost))))
    barriers = np.concatenate((np.flatnonzero(~flow.nodes.known & ~makes_only), np.arange(count, first_hole)))
    filled = np.arange(first_hole, first_result)
    ways = (
        _needed(flow, barriers, rank),
        _awaited(np.arange(count), barriers, rank),
        _awaited(np.arange(count), filled, rank),
        (filled, holes),
        _awaited(np.flatnonzero(library), losing, rank),
        (losing, lost),
        near,
        (gives, results),
        (results[:-1], results[1:]),
        _needed(flow, results, rank),
        tuple(np.where(ends < 0, first_guess - ends - 1, ends) for ends in guesses),
    )
    return MaybePaths(
        before=np.concatenate([way[0] for way in ways]),
        after=np.concatenate([way[1] for way in ways]),
        rank=rank,
        made=near[0][unplaced],
        read=near[1][unplaced],
    )


def _reads_hole(flow: Flow) -> IntArray:
    """Find nodes that read what nothing known has written; what they write themselves is left out."""
    reads, writes, width = flow.reads, flow.writes, len(flow.nodes)
    hole = np.flatnonzero(np.isin(reads.source, (Source.HOLE, Source.PARTLY_HOLE)))
    own = is_among(reads.buffer[hole] * width + reads.node[hole], writes.buffer * width + writes.node)
    found: IntArray = reads.node[hole[~own]]
    return found


def _makes_only(timeline: Timeline, flow: Flow) -> BoolArray:
    """Nodes whose operator writes new tensors only, of which it is known who reads them.

    NVTX names the maker of each tensor: what reads one of which nothing is known is not known itself.
    """
    makes = np.zeros(len(flow.nodes), np.bool_)
    makes[flow.writes.node[flow.writes.fresh]] = True
    makes |= of_nvtx(timeline)
    name, names = string_ids(timeline.ops.column("name"))
    pure = np.array([*map(_is_pure, names), False], np.bool_)
    found: BoolArray = makes & pure[name[flow.nodes.op_row]]
    return found


def _is_pure(name: str) -> bool:
    operator = lookup(name)
    overloads = () if operator is None else [each for each in operator.overloads if not each.name.endswith("out")]
    return bool(overloads) and not any(overload.mutates for overload in overloads)


def _gives_unknown(flow: Flow, nodes: FusionNodes) -> BoolArray:
    """Return nodes whose writes are unknown: nothing at all, although they are no copy to the host."""
    writes = np.zeros(len(flow.nodes), np.bool_)
    writes[flow.writes.node] = True
    host = [nodes.library.index(key) for key in ("host", "sync") if key in nodes.library]
    return ~writes & ~np.isin(nodes.library_code, host)


def _ranks(count: int, place: IntArray) -> tuple[IntArray, IntArray]:
    """Return the positions of nodes, and of places; a place stands before the node of that number."""
    order = np.argsort(place, kind="stable")
    rank = np.arange(count) + np.searchsorted(place[order], np.arange(count), "right")
    of_place = np.empty(len(place), np.int64)
    of_place[order] = place[order] + np.arange(len(place))
    return rank, of_place


def unowned(timeline: Timeline, flow: Flow) -> IntArray:
    """Before which nodes something was launched that no operator owns: replays, compiled graphs, kernels of others."""
    activities, api, nodes = timeline.activities, timeline.api, flow.nodes
    rows = np.flatnonzero(flow.activity_node < 0)
    call = numbers(activities.column("launch_row"), -1)[rows]
    launched = np.append(numbers(api.column("start_ns")), 0)[np.where(call < 0, -1, call)]
    began = numbers(activities.column("start_ns"))
    on_host = np.maximum.accumulate(numbers(timeline.ops.column("start_ns"))[nodes.op_row])
    on_device = np.maximum.accumulate(began[nodes.activity[nodes.activity_begin[:-1]]])
    by_call, by_start = np.searchsorted(on_host, launched, "right"), np.searchsorted(on_device, began[rows], "right")
    found: IntArray = sorted_unique(np.where(call >= 0, by_call, by_start))
    return found[(found > 0) & (found < len(nodes))]  # before all or behind all there is nothing to keep apart


def _updates(timeline: Timeline, flow: Flow) -> IntArray:
    """Before which nodes an optimizer begins or has ended, where it is unknown which tensors its parameters are."""
    if not of_nvtx(timeline):
        return np.zeros(0, np.int64)
    rows = flow.nodes.op_row
    start, tid = (numbers(timeline.ops.column(name))[rows] for name in ("start_ns", "tid"))
    inside = [np.flatnonzero((start >= a) & (start < b) & (tid == t)) for a, b, t in spans(timeline).tolist()]
    found = {at for nodes in inside if len(nodes) for at in (int(nodes[0]), int(nodes[-1]) + 1)}
    return np.array(sorted(found - {0, len(rows)}), np.int64)


def _awaited(nodes: IntArray, barriers: IntArray, rank: IntArray) -> tuple[IntArray, IntArray]:
    """Ways from each of these nodes, and from each barrier, to the next barrier."""
    barriers = barriers[np.argsort(rank[barriers])]
    waits = sorted_unique(np.append(nodes, barriers))
    next_one = np.searchsorted(rank[barriers], rank[waits], "right")
    there = next_one < len(barriers)
    return waits[there], barriers[next_one[there]]


def _needed(flow: Flow, sources: IntArray, rank: IntArray) -> tuple[IntArray, IntArray]:
    """Ways from each source to all up to the next one that may need what it may have written."""
    if not len(sources):
        return sources, sources
    count = len(flow.nodes)
    sources = sources[np.argsort(rank[sources])]
    last_one = np.searchsorted(rank[sources], rank[:count]) - 1  # of each node the source in front of it, −1: none
    doubtful = _doubtful(flow, np.append(rank[sources], -1)[last_one], rank)
    doubtful = doubtful[last_one[doubtful] >= 0]
    return sources[last_one[doubtful]], doubtful


def _doubtful(flow: Flow, turn: IntArray, rank: IntArray) -> IntArray:
    """Nodes that may need what was written at a position (of each node: its own), or write over what was read there."""
    reads, writes, edges = flow.reads, flow.writes, flow.edges
    oldest = np.full(len(reads.node), np.iinfo(np.int64).max)
    np.minimum.at(oldest, edges.read, rank[edges.producer])
    sure = (reads.source == Source.WRITTEN) & (reads.evidence >= Evidence.CONSISTENT)
    sure &= oldest > turn[reads.node]
    born = np.full(int(writes.buffer.max(initial=-1)) + 1, -1)
    fresh = np.flatnonzero(writes.fresh)
    np.maximum.at(born, writes.buffer[fresh], rank[writes.node[fresh]])
    in_place = ~writes.fresh & (born[writes.buffer] <= turn[writes.node])
    found: IntArray = sorted_unique(np.append(reads.node[~sure], writes.node[in_place]))
    return found


def _guessed(timeline: Timeline, flow: Flow, nodes: FusionNodes) -> tuple[IntArray, IntArray, IntArray]:
    """Return how a product may read what was made before it, and be read after it, where that is only guessed.

    Places, each as the number of the node that it stands before; and what comes before and after what, where places are
    numbered from −1 downwards.
    """
    heavy_codes = [nodes.library.index(key) for key in HEAVY if key in nodes.library]
    heavy = is_among(nodes.library_code, np.array(heavy_codes, np.int64))
    if not heavy.any():
        none = np.zeros(0, np.int64)
        return none, none, none
    reads, writes, count = flow.reads, flow.writes, len(heavy)
    size = codes(numbers(timeline.tensors.column("numel"), 0))
    unsure = reads.evidence == Evidence.ADJACENT
    read, wrote = size[reads.tensor_row] * count + reads.node, size[writes.tensor_row] * count + writes.node
    # A place in front of each product for what it reads, behind it for what it writes, size by size.
    takes, gives = sorted_unique(read[unsure & heavy[reads.node]]), sorted_unique(wrote[heavy[writes.node]])
    takes_at, gives_at = -1 - np.arange(len(takes)), -1 - len(takes) - np.arange(len(gives))
    wrote, read = sorted_unique(wrote), sorted_unique(read[unsure & ~heavy[reads.node]])
    writer, taken = _same_size(wrote, takes, np.searchsorted(takes, wrote, "right"), count)
    reader, given = _same_size(read, gives, np.searchsorted(gives, read, "left") - 1, count)
    earlier, later = _same_size(takes[:-1], takes, np.arange(1, len(takes)), count)
    first, second = _same_size(gives[:-1], gives, np.arange(1, len(gives)), count)
    ways = (
        (wrote[writer] % count, takes_at[taken]),
        (takes_at[earlier], takes_at[later]),
        (takes_at, takes % count),
        (gives % count, gives_at),
        (gives_at[first], gives_at[second]),
        (gives_at[given], read[reader] % count),
    )
    before, after = (np.concatenate(side) for side in zip(*ways, strict=True))
    return np.concatenate((takes % count, gives % count + 1)), before, after


def _same_size(keys: IntArray, others: IntArray, at: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """Return positions of the keys that have an other at their place of the same size, and of those others."""
    there = np.flatnonzero((at >= 0) & (at < len(others)))
    there = there[keys[there] // count == others[at[there]] // count]
    return there, at[there]


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
