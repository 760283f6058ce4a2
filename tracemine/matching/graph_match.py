"""Matching graph patterns: tables of partial matches, joined edge by edge; nothing here loops over nodes in Python.

A pattern is followed from the vertex that the fewest nodes can be. A node has a vertex's label if one of its activities
passes all tests of the label (a product may copy an input first); it can be one of a group that is counted only if all
of them do, as it is passed through. The nodes of a match are all different, and equal in every partition_by column.

Matches of one rule do not overlap. Of all that there are, the one whose first node is earliest is taken; of several the
one with the most nodes; then the one whose nodes are earlier. What shares a node with it is no match, and so on.

From one node at most WAYS partial matches are followed. Where there are more, that node is left out, and counted: a
trace made for it would have more matches than memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from tracemine.flow.record import Evidence
from tracemine.matching.define import column_holds
from tracemine.matching.graph_pattern import (
    LAYOUTS,
    Comparison,
    GraphPattern,
    Group,
    Operand,
    SameInput,
    Segment,
    Test,
)
from tracemine.matching.rule import ColumnTest
from tracemine.rows.graph import MOST_AXES, NO_AXIS, Graph, NodeTensors
from tracemine.rows.table import BoolArray, Categories, Column, IntArray, Numbers, Rows

WAYS: Final = 128
_BLOCK: Final = 1 << 14  # nodes that are started from at a time: bounds the memory of partial matches
_ROUNDS: Final = 16  # of choosing among overlapping matches all at once; what is left then is chosen one by one
_NONE: Final = -1
_SIGNS: Final[dict[str, Callable[[IntArray, IntArray], BoolArray]]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_NO_ROWS = np.zeros(0, np.int64)

Slot = tuple[int, int]  # which group of the pattern, and which node of it


@dataclass(frozen=True, slots=True)
class Found:
    """Matches of a graph pattern: rows in order of time, match by match, as in `Matches`."""

    rows: IntArray
    offsets: IntArray
    variables: IntArray  # position in the pattern's `variables`
    evidence: npt.NDArray[np.int8]  # of each match the weakest of what it rests on
    left_out: int  # nodes from which there were too many ways


@dataclass(frozen=True, slots=True)
class _Partial:
    """Partial matches: for each the number of its start, its nodes so far, and its evidence."""

    start: IntArray
    vertices: dict[str, IntArray]
    slots: dict[Slot, IntArray]
    evidence: npt.NDArray[np.int8]

    def take(self, which: IntArray | BoolArray) -> _Partial:
        return _Partial(
            self.start[which],
            {name: nodes[which] for name, nodes in self.vertices.items()},
            {slot: nodes[which] for slot, nodes in self.slots.items()},
            self.evidence[which],
        )

    def columns(self) -> list[IntArray]:
        return [*self.vertices.values(), *self.slots.values()]

    def named(self, name: str, groups: Sequence[Group]) -> list[IntArray]:
        """The nodes of a variable, a column for each that it may stand for."""
        if name in self.vertices:
            return [self.vertices[name]]
        return [nodes for (group, _), nodes in self.slots.items() if groups[group].name == name]


def _joined(parts: Sequence[_Partial]) -> _Partial:
    slots = dict.fromkeys(slot for part in parts for slot in part.slots)
    return _Partial(
        np.concatenate([part.start for part in parts]),
        {name: np.concatenate([part.vertices[name] for part in parts]) for name in parts[0].vertices},
        {
            slot: np.concatenate([part.slots.get(slot, np.full(len(part.start), _NONE)) for part in parts])
            for slot in slots
        },
        np.concatenate([part.evidence for part in parts]),
    )


def find_in_graph(
    pattern: GraphPattern,
    labels: Mapping[str, Sequence[ColumnTest]],
    rows: Rows,
    partition_by: Sequence[str],
    *,
    without: BoolArray | None = None,
) -> Found:
    """All matches of a pattern; none where nobody knows who reads what. `without`: rows that no match may have."""
    graph = rows.graph
    if graph is None or not len(graph):
        return Found(_NO_ROWS, np.zeros(1, np.int64), _NO_ROWS, np.zeros(0, np.int8), 0)
    search = _Search.of(pattern, labels, rows, graph, partition_by, without)
    order, first = search.order()
    starts = np.flatnonzero(search.some[first])
    parts: list[_Partial] = []
    for at in range(0, len(starts), _BLOCK):
        block = starts[at : at + _BLOCK]
        begun = _Partial(np.arange(len(block)), {first: block}, {}, np.full(len(block), Evidence.PROVEN, np.int8))
        parts.append(search.followed(begun, order))
    if not any(len(part.start) for part in parts):
        return Found(_NO_ROWS, np.zeros(1, np.int64), _NO_ROWS, np.zeros(0, np.int8), search.left_out)
    return search.chosen(_joined([part for part in parts if len(part.start)]))


@dataclass(slots=True)
class _Adjacency:
    """Edges in one direction to nodes that one may go to: node i leads to target[begin[i]:begin[i + 1]]."""

    begin: IntArray
    target: IntArray
    evidence: npt.NDArray[np.int8]


@dataclass(slots=True)
class _Search:
    """One pattern in one graph."""

    pattern: GraphPattern
    rows: Rows
    graph: Graph
    label: dict[str, BoolArray]  # nodes of which an activity passes the label's tests
    some: dict[str, BoolArray]  # for each vertex the nodes that it can be
    every: list[BoolArray]  # for each group the nodes that can be passed through
    usable: BoolArray  # edges that a match may have
    adjacent: dict[tuple[bool, str | int], _Adjacency]
    left_out: int = 0

    @staticmethod
    def of(
        pattern: GraphPattern,
        labels: Mapping[str, Sequence[ColumnTest]],
        rows: Rows,
        graph: Graph,
        partition_by: Sequence[str],
        without: BoolArray | None,
    ) -> _Search:
        begin, activity = graph.activity_begin[:-1], graph.activity
        place, free = _places(rows, graph, partition_by), graph.known
        if without is not None:
            free = free & ~np.logical_or.reduceat(without[activity], begin)
        free = free & (place >= 0)
        some: dict[str, BoolArray] = {}
        every: dict[str, BoolArray] = {}
        for name in pattern.labels:
            passed = np.ones(rows.count, np.bool_)
            for test in labels[name]:
                passed &= column_holds(test, rows.columns[test.column], slice(0, rows.count))
            some[name] = np.logical_or.reduceat(passed[activity], begin) & free
            every[name] = np.logical_and.reduceat(passed[activity], begin) & free
        return _Search(
            pattern=pattern,
            rows=rows,
            graph=graph,
            label=every,
            some={each.name: np.logical_or.reduce([some[name] for name in each.labels]) for each in pattern.vertices},
            every=[np.logical_or.reduce([every[name] for name in group.labels]) for group in pattern.groups],
            usable=graph.usable & (place[graph.consumer] == place[graph.producer]),
            adjacent={},
        )

    # --- the order of joining ----------------------------------------------------------------------------------------

    def order(self) -> tuple[list[tuple[int, Segment, bool]], str]:
        """Segments in the order in which they are followed, each with its first group's number and whether forwards;
        and the vertex to begin at.

        What has both ends already comes first, as it only takes matches away; what may be left out comes last.
        """
        numbered, group = [], 0
        for segment in self.pattern.segments:
            numbered.append((group, segment))
            group += len(segment.groups)
        first = min(self.pattern.vertices, key=lambda each: int(self.some[each.name].sum())).name
        reached, order = {first}, list[tuple[int, Segment, bool]]()
        while numbered:
            at = min(range(len(numbered)), key=lambda i: _cost(numbered[i][1], reached))
            group, segment = numbered.pop(at)
            order.append((group, segment, segment.first in reached))
            reached |= {end for end in (segment.first, segment.last) if end is not None}
        return order, first

    # --- joining -----------------------------------------------------------------------------------------------------

    def followed(self, partial: _Partial, order: Sequence[tuple[int, Segment, bool]]) -> _Partial:
        asked: set[Test] = set()
        partial = self._tested(partial, asked)
        for group, segment, forwards in order:
            partial = _joined([self._along(partial, group, segment, way, forwards) for way in segment.ways()])
            partial = self._tested(self._few(partial), asked)
            if not len(partial.start):
                break
        return self._read_by_no_other(partial)

    def _along(self, partial: _Partial, group: int, segment: Segment, way: tuple[int, ...], forwards: bool) -> _Partial:
        """The partial matches, each with the nodes of one way through a segment."""
        hops = [  # the direction and the slot of each node between
            (each.reads, (group + number, turn))
            for number, (each, count) in enumerate(zip(segment.groups, way, strict=True))
            for turn in range(count)
        ]
        directions = [reads for reads, _ in hops] + ([] if segment.last is None else [segment.reads])
        places: list[Slot | str] = [slot for _, slot in hops] + ([] if segment.last is None else [segment.last])
        begin = segment.first
        if not forwards:
            assert segment.last is not None  # noqa: S101 - a segment without an end begins at what is reached
            begin, places = segment.last, [*reversed(places[:-1]), segment.first]
            directions = [not reads for reads in reversed(directions)]
        at = partial.vertices[begin]
        for reads, place in zip(directions, places, strict=True):
            if isinstance(place, str) and place in partial.vertices:
                partial = self._met(partial, at, reads, place)
                continue
            partial, at = self._stepped(partial, at, reads, place)
        return partial

    def _met(self, partial: _Partial, at: IntArray, reads: bool, name: str) -> _Partial:
        """Those with an edge to a node that they have already."""
        other = partial.vertices[name]
        edge = self._edge(at, other) if reads else self._edge(other, at)
        there = edge >= 0
        there[there] = self.usable[edge[there]]
        found = partial.take(there)
        return replace(found, evidence=np.minimum(found.evidence, self.graph.evidence[edge[there]]))

    def _stepped(self, partial: _Partial, at: IntArray, reads: bool, place: Slot | str) -> tuple[_Partial, IntArray]:
        """Those with an edge to a node that they have not, once for each."""
        adjacency = self._adjacency(reads, place if isinstance(place, str) else place[0])
        degree = adjacency.begin[at + 1] - adjacency.begin[at]
        few = self._not_too_many(partial.start, degree)
        if not few.all():
            partial, at, degree = partial.take(few), at[few], degree[few]
        which = np.repeat(np.arange(len(at)), degree)
        offset = np.arange(len(which)) - np.repeat(np.cumsum(degree) - degree, degree)
        edge = adjacency.begin[at][which] + offset
        target = adjacency.target[edge]
        fresh = np.ones(len(which), np.bool_)
        for column in partial.columns():
            fresh &= column[which] != target
        which, edge, target = which[fresh], edge[fresh], target[fresh]
        found = partial.take(which)
        evidence = np.minimum(found.evidence, adjacency.evidence[edge])
        if isinstance(place, str):
            return replace(found, vertices={**found.vertices, place: target}, evidence=evidence), target
        return replace(found, slots={**found.slots, place: target}, evidence=evidence), target

    def _adjacency(self, reads: bool, to: str | int) -> _Adjacency:
        if (reads, to) not in self.adjacent:
            graph = self.graph
            source, target = (graph.consumer, graph.producer) if reads else (graph.producer, graph.consumer)
            allowed = self.some[to] if isinstance(to, str) else self.every[to]
            kept = np.flatnonzero(self.usable & allowed[target])
            kept = kept if reads else kept[np.argsort(source[kept], kind="stable")]
            begin = np.searchsorted(source[kept], np.arange(len(graph) + 1))
            self.adjacent[reads, to] = _Adjacency(begin, target[kept], graph.evidence[kept])
        return self.adjacent[reads, to]

    def _edge(self, consumer: IntArray, producer: IntArray) -> IntArray:
        """The number of the edge between each two nodes, −1 where there is none."""
        graph, width = self.graph, len(self.graph)
        keys = graph.consumer * width + graph.producer
        wanted = consumer * width + producer
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        if not len(keys):
            return np.full(len(wanted), _NONE)
        return np.where(keys[at] == wanted, at, _NONE)

    def _not_too_many(self, start: IntArray, count: IntArray) -> BoolArray:
        total = np.bincount(start, count, int(start.max(initial=-1)) + 1)
        self.left_out += int((total > WAYS).sum())
        few: BoolArray = total[start] <= WAYS
        return few

    def _few(self, partial: _Partial) -> _Partial:
        few = self._not_too_many(partial.start, np.ones(len(partial.start), np.int64))
        return partial if few.all() else partial.take(few)

    # --- WHERE and ONLY READER ---------------------------------------------------------------------------------------

    def _tested(self, partial: _Partial, asked: set[Test]) -> _Partial:
        """Those that pass the tests that can be asked now and have not been."""
        for test in self.pattern.where:
            if test in asked or not set(test.names) <= partial.vertices.keys():
                continue
            asked.add(test)
            if isinstance(test, SameInput):
                shared = self._shared(partial.vertices[test.one], partial.vertices[test.other])
                partial = replace(partial, evidence=np.minimum(partial.evidence, shared)).take(shared >= 0)
            else:
                partial = partial.take(_compared(test, partial.vertices, self.graph.tensors))
        return partial

    def _shared(self, one: IntArray, other: IntArray) -> npt.NDArray[np.int8]:
        """The best evidence that two nodes read one value, −1 where none says so."""
        graph = self.graph
        counts = [graph.read_begin[nodes + 1] - graph.read_begin[nodes] for nodes in (one, other)]
        pairs = counts[0] * counts[1]
        which = np.repeat(np.arange(len(one)), np.where(pairs <= WAYS * WAYS, pairs, 0))
        turn = np.arange(len(which)) - np.searchsorted(which, which)
        width = np.maximum(counts[1][which], 1)
        a = graph.read_begin[one[which]] + turn // width
        b = graph.read_begin[other[which]] + turn % width
        same = (graph.read_buffer[a] == graph.read_buffer[b]) & (graph.read_writer[a] == graph.read_writer[b])
        same &= (graph.read_first[a] < graph.read_last[b]) & (graph.read_first[b] < graph.read_last[a])
        found = np.full(len(one), _NONE, np.int8)
        evidence = np.minimum(graph.read_evidence[a[same]], graph.read_evidence[b[same]])
        np.maximum.at(found, which[same], evidence)
        return found

    def _read_by_no_other(self, partial: _Partial) -> _Partial:
        """Those of which no other node, and nobody else, may read what the variables of ONLY READER write."""
        if not self.pattern.only_reader or not len(partial.start):
            return partial
        graph = self.graph
        readers = np.bincount(graph.producer, minlength=len(graph) + 1)
        kept = np.ones(len(partial.start), np.bool_)
        groups = self.pattern.groups
        for nodes in (column for name in self.pattern.only_reader for column in partial.named(name, groups)):
            inside = np.zeros(len(nodes), np.int64)
            for column in partial.columns():
                inside += (self._edge(column, nodes) >= 0) & (column >= 0) & (nodes >= 0)
            kept &= (nodes < 0) | ((inside == readers[nodes]) & ~graph.wanted[nodes])
        found = partial.take(kept)
        if graph.lifetimes_told:
            return found
        return replace(found, evidence=np.minimum(found.evidence, np.int8(Evidence.CONSISTENT)))

    # --- choosing ----------------------------------------------------------------------------------------------------

    def chosen(self, partial: _Partial) -> Found:
        """Matches that share no node, in the order that the module's text says."""
        vertices = [partial.vertices[each.name] for each in self.pattern.vertices]
        slots = [
            (group, partial.slots[number, turn])
            for number, group in enumerate(self.pattern.groups)
            for turn in range(group.high)
            if (number, turn) in partial.slots
        ]
        bound = np.stack([*vertices, *(nodes for _, nodes in slots)], axis=1)
        ordered = np.sort(np.where(bound < 0, len(self.graph), bound), axis=1)
        size = (bound >= 0).sum(axis=1)
        keys = (*bound.T[::-1], *ordered.T[::-1], -size, ordered[:, 0])
        order = np.lexsort(keys)
        taken = order[_disjoint(bound[order], len(self.graph))]
        bound, evidence = bound[taken], partial.evidence[taken]
        names = self.pattern.variables
        codes = [np.full(len(taken), names.index(each.name)) for each in self.pattern.vertices]
        codes += [self._shown(group, nodes[taken]) for group, nodes in slots]
        return self._found(bound, np.stack(codes, axis=1), evidence)

    def _shown(self, group: Group, nodes: IntArray) -> IntArray:
        """What the nodes of a group are called: by its name, or each by the first of its labels that it has."""
        names = self.pattern.variables
        if group.name is not None:
            return np.full(len(nodes), names.index(group.name))
        code = np.full(len(nodes), _NONE)
        for label in reversed(group.labels):
            code = np.where(self.label[label][nodes], names.index(label), code)
        return code

    def _found(self, bound: IntArray, codes: IntArray, evidence: npt.NDArray[np.int8]) -> Found:
        graph = self.graph
        there = bound >= 0
        node, code = bound[there], codes[there]
        match = np.repeat(np.arange(len(bound)), there.sum(axis=1))
        count = graph.activity_begin[node + 1] - graph.activity_begin[node]
        which = np.repeat(np.arange(len(node)), count)
        offset = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
        rows = graph.activity[graph.activity_begin[node][which] + offset]
        order = np.lexsort((rows, match[which]))
        lengths = np.bincount(match[which], minlength=len(bound))
        return Found(
            rows=rows[order],
            offsets=np.concatenate(([0], np.cumsum(lengths))),
            variables=code[which][order],
            evidence=evidence,
            left_out=self.left_out,
        )


def _cost(segment: Segment, reached: set[str]) -> tuple[bool, bool, int]:
    """How early a segment is followed: the least first."""
    ends = [end in reached for end in (segment.first, segment.last) if end is not None]
    follows = any(ends) if segment.last is not None else segment.first in reached
    return not follows, segment.last is None, (0 if all(ends) else 1) + len(segment.groups)


def _places(rows: Rows, graph: Graph, partition_by: Sequence[str]) -> IntArray:
    """A number for each node, equal where all partition_by columns are; −1: its activities differ, or one is null."""
    code = np.zeros(rows.count, np.int64)
    null = np.zeros(rows.count, np.bool_)
    for name in partition_by:
        values, known = _values(rows.columns[name])
        own = np.unique(values, return_inverse=True)[1]
        code = code * (int(own.max(initial=0)) + 1) + own
        code = np.unique(code, return_inverse=True)[1]
        null |= ~known
    begin = graph.activity_begin[:-1]
    code = np.where(null, _NONE, code)[graph.activity]
    least, most = np.minimum.reduceat(code, begin), np.maximum.reduceat(code, begin)
    return np.where(least == most, least, _NONE)


def _values(column: Column) -> tuple[npt.NDArray[np.generic], BoolArray]:
    if isinstance(column, Categories):
        return column.codes, column.codes >= 0
    valid = column.valid if isinstance(column, Numbers) else None
    return column.values, np.ones(len(column.values), np.bool_) if valid is None else valid


def _disjoint(bound: IntArray, count: int) -> IntArray:
    """Of matches in order of preference those that stand: each whose nodes none that stands before it has."""
    left, stands = np.arange(len(bound)), list[IntArray]()
    used = np.zeros(count + 1, np.bool_)  # the last one answers −1
    for _ in range(_ROUNDS):
        if not len(left):
            break
        first = np.full(count + 1, len(bound))
        for column in bound[left].T:
            np.minimum.at(first, column, left)
        first[_NONE] = -1
        sure = (first[bound[left]] == left[:, None]) | (bound[left] < 0)
        taken = left[sure.all(axis=1)]
        stands.append(taken)
        used[bound[taken]] = True
        used[_NONE] = False
        left = left[~used[bound[left]].any(axis=1)]
    return np.sort(np.concatenate([*stands, _one_by_one(bound, left)]))


def _one_by_one(bound: IntArray, left: IntArray) -> IntArray:
    """As _disjoint, for as many rounds as it takes."""
    stands, used = list[int](), set[int]()
    for at, nodes in zip(left.tolist(), bound[left].tolist(), strict=True):
        own = {node for node in nodes if node >= 0}
        if used.isdisjoint(own):
            used |= own
            stands.append(at)
    return np.array(stands, np.int64)


# --- WHERE -----------------------------------------------------------------------------------------------------------


def _compared(test: Comparison, vertices: Mapping[str, IntArray], tensors: NodeTensors) -> BoolArray:
    """Which partial matches pass a comparison; what is not known does not."""
    if test.left.kind == "shape":
        (one, one_rank), (other, other_rank) = (_shape(side, vertices, tensors) for side in (test.left, test.right))
        equal = (one == other).all(axis=1) & (one_rank == other_rank)
        passed: BoolArray = (equal if test.sign == "=" else ~equal) & (one_rank >= 0) & (other_rank >= 0)
        return passed
    texts: dict[str, int] = {}
    count = len(next(iter(vertices.values())))
    (one, known), (other, other_known) = (
        _numbers_of(side, vertices, tensors, texts, count) for side in (test.left, test.right)
    )
    return _SIGNS[test.sign](one, other) & known & other_known


def _entry(side: Operand, vertices: Mapping[str, IntArray], tensors: NodeTensors) -> IntArray:
    return tensors.of[side.column.partition("_")[0]][vertices[cast("str", side.name)]]


def _shape(side: Operand, vertices: Mapping[str, IntArray], tensors: NodeTensors) -> tuple[IntArray, IntArray]:
    entry = _entry(side, vertices, tensors)
    if side.column.endswith("_memory"):
        return _memory(entry, tensors)
    return tensors.shape[entry], tensors.rank[entry]


def _numbers_of(
    side: Operand, vertices: Mapping[str, IntArray], tensors: NodeTensors, texts: dict[str, int], count: int
) -> tuple[IntArray, BoolArray]:
    """One side of a comparison as numbers, and where it is known; a text is its place among `texts`."""
    everywhere = np.ones(count, np.bool_)
    if side.name is None:
        value = side.value if isinstance(side.value, int) else texts.setdefault(str(side.value), len(texts))
        return np.full(count, value), everywhere
    if side.column == "axis":
        axis = tensors.axis[vertices[side.name]]
        return axis, axis != NO_AXIS
    what = side.column.partition("_")[2]
    entry = _entry(side, vertices, tensors)
    rank = tensors.rank[entry]
    if what == "memory":
        sizes, rank = _memory(entry, tensors)
        index = cast("int", side.index)
        inside = (index < rank) if index >= 0 else (-index <= rank)
        return sizes[np.arange(count), np.where(inside, MOST_AXES + (index - rank if index >= 0 else index), 0)], inside
    if what == "rank":
        return rank, rank >= 0
    if what == "shape":
        index = cast("int", side.index)
        inside = (index < rank) if index >= 0 else (-index <= rank)
        at = np.where(inside, MOST_AXES + (index - rank if index >= 0 else index), 0)
        return tensors.shape[entry, at], inside
    if what == "dtype":
        code = np.array([*(texts.setdefault(name, len(texts)) for name in tensors.dtypes), _NONE], np.int64)
        found = code[tensors.dtype[entry]]
        return found, found >= 0
    layout = _layouts(entry, tensors)
    code = np.array([*(texts.setdefault(name, len(texts)) for name in LAYOUTS), _NONE], np.int64)
    return code[layout], layout >= 0


def _layouts(entry: IntArray, tensors: NodeTensors) -> IntArray:
    """Position in LAYOUTS of each tensor's layout, −1: its strides are not known. Axes of length 1 do not count."""
    shape, strides, rank = tensors.shape[entry], tensors.strides[entry], tensors.rank[entry]
    contiguous = _dense(shape, strides, range(MOST_AXES - 1, -1, -1))
    last = (rank == 4) | (rank == 5)
    for axes in (4, 5):  # the second axis, the channels', lies innermost
        front = MOST_AXES - axes
        own = _dense(shape, strides, [front + 1, *range(MOST_AXES - 1, front + 1, -1), front])
        last &= np.where(rank == axes, own, True)
    return np.where(tensors.has_strides[entry], np.where(contiguous, 0, np.where(last, 1, 2)), _NONE)


def _memory(entry: IntArray, tensors: NodeTensors) -> tuple[IntArray, IntArray]:
    """Sizes above 1 in the order in which each tensor lies, and how many; −1: it has gaps, or is not known."""
    shape, strides = tensors.shape[entry], tensors.strides[entry]
    wide = shape > 1
    order = np.argsort(np.where(wide, -strides, np.iinfo(np.int64).min), axis=1, kind="stable")
    shape, strides = (np.take_along_axis(each, order, axis=1) for each in (shape, strides))
    dense = _dense(shape, strides, range(MOST_AXES - 1, -1, -1)) & tensors.has_strides[entry]
    rank = np.where(dense & ~(shape == 0).any(axis=1), wide.sum(axis=1), _NONE)
    return np.where((shape > 1) & (rank >= 0)[:, None], shape, _NONE), rank


def _dense(shape: IntArray, strides: IntArray, axes: Sequence[int]) -> BoolArray:
    """Whether tensors lie without gaps, the first of these axes innermost."""
    dense, wanted = np.ones(len(shape), np.bool_), np.ones(len(shape), np.int64)
    for axis in axes:
        dense &= (shape[:, axis] <= 1) | (strides[:, axis] == wanted)
        wanted = wanted * np.maximum(shape[:, axis], 1)
    return dense
