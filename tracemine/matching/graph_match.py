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

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tracemine.flow.record import Evidence
from tracemine.matching.graph_joins import Found, disjoint, none_found
from tracemine.matching.graph_pattern import GraphPattern, Group, SameInput, Segment, Test
from tracemine.matching.graph_ways import ways_back
from tracemine.matching.graph_where import NONE, compared
from tracemine.matching.rule import ColumnTest
from tracemine.matching.shared import Shared, Tests
from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import BoolArray, IntArray, Rows

WAYS: Final = 128
_BLOCK: Final = 1 << 14  # nodes that are started from at a time: bounds the memory of partial matches

Slot = tuple[int, int]  # which group of the pattern, and which node of it


class _Partial(Struct, frozen=True):
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

    def all_named(self, names: Sequence[str], groups: Sequence[Group]) -> list[IntArray]:
        """Return the nodes of variables, a column for each that they may be bound to."""
        found = [self.vertices[name] for name in names if name in self.vertices]
        return found + [nodes for (group, _), nodes in self.slots.items() if groups[group].name in names]


def _joined(parts: Sequence[_Partial]) -> _Partial:
    slots = dict.fromkeys(slot for part in parts for slot in part.slots)
    return _Partial(
        np.concatenate([part.start for part in parts]),
        {name: np.concatenate([part.vertices[name] for part in parts]) for name in parts[0].vertices},
        {
            slot: np.concatenate([part.slots.get(slot, np.full(len(part.start), NONE)) for part in parts])
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
    shared: Shared | None = None,
) -> Found:
    """Return all matches of a pattern; none where dataflow is not known. `without`: rows that no match may have.
    `shared`: what was asked of the rows before.
    """
    graph, shared = rows.graph, shared or Shared(rows)
    tests = {name: tuple(labels[name]) for name in pattern.labels}
    if graph is None or not len(graph) or not _may_match(pattern, tests, shared):
        return none_found(0)
    search = _Search(pattern, tests, graph, partition_by, without, shared)
    order, first = search.order()
    starts = np.flatnonzero(search.some[first])
    parts: list[_Partial] = []
    for at in range(0, len(starts), _BLOCK):
        block = starts[at : at + _BLOCK]
        begun = _Partial(np.arange(len(block)), {first: block}, {}, np.full(len(block), Evidence.PROVEN, np.int8))
        parts.append(search.followed(begun, order))
    if not any(len(part.start) for part in parts):
        return none_found(search.left_out)
    return search.chosen(_joined([part for part in parts if len(part.start)]))


def _may_match(pattern: GraphPattern, tests: Mapping[str, Tests], shared: Shared) -> bool:
    """Return whether there may be a node for each vertex."""
    return all(any(shared.may_pass(tests[label]) for label in labels) for labels in pattern.vertices.values())


# Edges in one direction to nodes that one may go to: node i leads to target[begin[i]:begin[i + 1]], of such evidence.
_Adjacency = tuple[IntArray, IntArray, npt.NDArray[np.int8]]


class _Search:
    """One pattern in one graph."""

    def __init__(
        self,
        pattern: GraphPattern,
        tests: Mapping[str, Tests],
        graph: NodeGraph,
        partition_by: Sequence[str],
        without: BoolArray | None,
        shared: Shared,
    ) -> None:
        self.pattern, self.graph, self.left_out = pattern, graph, 0
        free = graph.known & (shared.places(graph, partition_by) >= 0)
        if without is not None:
            free &= ~graph.any_of(without)
        grouped = dict.fromkeys(name for group in pattern.groups for name in group.labels)
        # For each label of a group the nodes of which all activities pass its tests.
        self.label = {name: shared.every(graph, tests[name]) & free for name in grouped}
        some = {name: [shared.some(graph, tests[of]) for of in labels] for name, labels in pattern.vertices.items()}
        # For each vertex the nodes that it can be, and for each group those that can be passed through.
        self.some: dict[str, BoolArray] = {name: np.logical_or.reduce(found) & free for name, found in some.items()}
        self.every: list[BoolArray] = [
            np.logical_or.reduce([self.label[name] for name in group.labels]) for group in pattern.groups
        ]
        self.usable = shared.edges(graph, partition_by)  # edges that a match may have
        self.adjacent: dict[tuple[bool, str | int], _Adjacency] = {}

    # --- the order of joining ----------------------------------------------------------------------------------------

    def order(self) -> tuple[list[tuple[int, Segment, bool]], str]:
        """Return segments in the order to follow, each with its first group's number and whether forwards.

        Second is the vertex to begin at.

        What has both ends already comes first, as it only takes matches away; what may be left out comes last.
        """
        numbered, group = [], 0
        for segment in self.pattern.segments:
            numbered.append((group, segment))
            group += len(segment.groups)
        first = min(self.pattern.vertices, key=lambda name: int(self.some[name].sum()))
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
        """Return the partial matches, each with the nodes of one way through a segment."""
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
        """Return those with an edge to a node that they have already."""
        other = partial.vertices[name]
        edge = self._edge(at, other) if reads else self._edge(other, at)
        there = edge >= 0
        there[there] = self.usable[edge[there]]
        found = partial.take(there)
        return replace(found, evidence=np.minimum(found.evidence, self.graph.evidence[edge[there]]))

    def _stepped(self, partial: _Partial, at: IntArray, reads: bool, place: Slot | str) -> tuple[_Partial, IntArray]:
        """Return those with an edge to a node that they have not, once for each."""
        begins, targets, evidences = self._adjacency(reads, place if isinstance(place, str) else place[0])
        degree = begins[at + 1] - begins[at]
        few = self._not_too_many(partial.start, degree)
        if not few.all():
            partial, at, degree = partial.take(few), at[few], degree[few]
        which = np.repeat(np.arange(len(at)), degree)
        offset = np.arange(len(which)) - np.repeat(np.cumsum(degree) - degree, degree)
        edge = begins[at][which] + offset
        target = targets[edge]
        fresh = np.ones(len(which), np.bool_)
        for column in partial.columns():
            fresh &= column[which] != target
        which, edge, target = which[fresh], edge[fresh], target[fresh]
        found = partial.take(which)
        evidence = np.minimum(found.evidence, evidences[edge])
        if isinstance(place, str):
            return replace(found, vertices={**found.vertices, place: target}, evidence=evidence), target
        return replace(found, slots={**found.slots, place: target}, evidence=evidence), target

    def _adjacency(self, reads: bool, to: str | int) -> _Adjacency:
        if (reads, to) not in self.adjacent:
            graph = self.graph
            source, target = (graph.consumer, graph.producer) if reads else (graph.producer, graph.consumer)
            allowed = self.some[to] if isinstance(to, str) else self.every[to]
            keeps = self.usable & allowed[target]
            kept = np.flatnonzero(keeps) if reads else graph.by_producer[keeps[graph.by_producer]]
            begin = np.concatenate(([0], np.cumsum(np.bincount(source[kept], minlength=len(graph)))))
            self.adjacent[reads, to] = begin, target[kept], graph.evidence[kept]
        return self.adjacent[reads, to]

    def _edge(self, consumer: IntArray, producer: IntArray) -> IntArray:
        """Return the number of the edge between each two nodes, −1 where there is none."""
        keys, wanted = self.graph.keys, self.graph.key(consumer, producer)
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        if not len(keys):
            return np.full(len(wanted), NONE)
        return np.where(keys[at] == wanted, at, NONE)

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
        """Return those that pass the tests that can be asked now and have not been."""
        for test in self.pattern.where:
            if test in asked or not set(test.names) <= partial.vertices.keys():
                continue
            asked.add(test)
            if isinstance(test, SameInput):
                shared = self._shared(partial.vertices[test.one], partial.vertices[test.other])
                partial = replace(partial, evidence=np.minimum(partial.evidence, shared)).take(shared >= 0)
            else:
                partial = partial.take(compared(test, partial.vertices, self.graph.tensors))
        return partial

    def _shared(self, one: IntArray, other: IntArray) -> npt.NDArray[np.int8]:
        """Return the best evidence that two nodes read one value, −1 where none says so."""
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
        found = np.full(len(one), NONE, np.int8)
        evidence = np.minimum(graph.read_evidence[a[same]], graph.read_evidence[b[same]])
        np.maximum.at(found, which[same], evidence)
        return found

    def _read_by_no_other(self, partial: _Partial) -> _Partial:
        """Return those where no other node, and nothing unknown, may read what the variables of ONLY READER write."""
        if not self.pattern.only_reader or not len(partial.start):
            return partial
        graph, columns = self.graph, partial.columns()
        readers = np.bincount(graph.producer, minlength=len(graph) + 1)
        kept = np.ones(len(partial.start), np.bool_)
        groups = self.pattern.groups
        for nodes in partial.all_named(self.pattern.only_reader, groups):
            kept &= (nodes < 0) | (~graph.live_out[nodes] & (readers[nodes] <= len(columns)))
            rows = np.flatnonzero(kept & (nodes >= 0))
            read = nodes[rows]
            inside = np.zeros(len(rows), np.int64)
            for column in columns:
                reader = column[rows]
                inside += (self._edge(reader, read) >= 0) & (reader >= 0)
            kept[rows[inside != readers[read]]] = False
        found = partial.take(kept)
        found = found.take(~ways_back(graph, found.columns(), found.all_named(self.pattern.only_reader, groups)))
        best = Evidence.PROVEN if graph.lifetimes_known else Evidence.CONSISTENT
        return replace(found, evidence=np.minimum(found.evidence, np.int8(best)))

    # --- choosing ----------------------------------------------------------------------------------------------------

    def chosen(self, partial: _Partial) -> Found:
        """Return matches that share no node, in the order that the module's text says."""
        vertices = [partial.vertices[name] for name in self.pattern.vertices]
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
        taken = order[disjoint(bound[order], len(self.graph))]
        bound, evidence = bound[taken], partial.evidence[taken]
        names = self.pattern.variables
        codes = [np.full(len(taken), names.index(name)) for name in self.pattern.vertices]
        codes += [self._shown(group, nodes[taken]) for group, nodes in slots]
        return self._found(bound, np.stack(codes, axis=1), evidence)

    def _shown(self, group: Group, nodes: IntArray) -> IntArray:
        """Return what the nodes of a group are called: by its name, or each by the first of its labels that it has."""
        names = self.pattern.variables
        if group.name is not None:
            return np.full(len(nodes), names.index(group.name))
        code = np.full(len(nodes), NONE)
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
    """Return how early a segment is followed: the least first."""
    ends = [end in reached for end in (segment.first, segment.last) if end is not None]
    follows = any(ends) if segment.last is not None else segment.first in reached
    return not follows, segment.last is None, (0 if all(ends) else 1) + len(segment.groups)


# --- WHERE -----------------------------------------------------------------------------------------------------------
