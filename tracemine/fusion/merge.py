"""Groups from pairs: greedily, those that save most bytes first, as long as one kernel could do the group.

What must hold after every merge: one iteration space (up to broadcasting, with one kind of rows that are reduced), no
way from the group through another and back, and nothing written in place that another member reads elsewhere.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from tracemine.columns import lists, numbers
from tracemine.flow.record import BoolArray, Evidence, Flow, IntArray
from tracemine.fusion.barriers import MaybePaths, maybe_paths
from tracemine.fusion.candidates import ALLOWED, Pairs
from tracemine.fusion.nodes import FusionNodes
from tracemine.fusion.record import REFUSALS, Refusal
from tracemine.fusion.roles import Role
from tracemine.fusion.topological_order import Ways
from tracemine.timeline import Timeline

MOST_MEMBERS = 64
_ROUNDS = 10
_COMPARED = 10_000  # pairs of accesses of two long lists, before they count as different
_CODE = {refusal: code for code, refusal in enumerate(REFUSALS)}

Rows = tuple[int, int, bool, int]  # rows, length, columns, and where the axes are not known, a number of their own


def merge(
    timeline: Timeline, flow: Flow, nodes: FusionNodes, pairs: Pairs
) -> tuple[IntArray, dict[tuple[int, int], int]]:
    """For each node the first node of its group; and why groups that share data stay apart, by their first nodes."""
    state = _Merging(timeline, flow, nodes, pairs)
    open_pairs = pairs.where(pairs.refused == ALLOWED)
    refused: dict[tuple[int, int], int] = {}
    for _ in range(_ROUNDS):
        if not _one_round(state, open_pairs, refused):
            break
    group = np.array(state.ways.group[: len(flow.nodes)], np.int64)
    still = {pair: code for pair, code in refused.items() if state.ways.group[pair[0]] != state.ways.group[pair[1]]}
    return group, still


def _one_round(state: _Merging, pairs: Pairs, refused: dict[tuple[int, int], int]) -> bool:
    group = np.array(state.ways.group, np.int64)
    a, b = group[pairs.first], group[pairs.second]
    apart = np.flatnonzero(a != b)
    count = len(group)
    key, inverse = np.unique(a[apart] * count + b[apart], return_inverse=True)
    saved = np.bincount(inverse, pairs.bytes[apart], len(key))
    vertical = np.zeros(len(key), np.bool_)
    np.logical_or.at(vertical, inverse, pairs.vertical[apart])
    order = np.lexsort((key, -saved, ~vertical))
    merged = False
    for one, is_vertical in zip(key[order].tolist(), vertical[order].tolist(), strict=True):
        first, second = state.ways.group[one // count], state.ways.group[one % count]
        if first == second:
            continue
        code = state.join(first, second, is_vertical)
        if code == ALLOWED:
            merged = True
        else:
            refused[first, second] = code
    return merged


class _Merging:
    """The groups so far; a group goes by its first node."""

    def __init__(self, timeline: Timeline, flow: Flow, nodes: FusionNodes, pairs: Pairs) -> None:
        count = len(flow.nodes)
        row_wise = (nodes.rows > 0).tolist()
        own = np.where(nodes.axes_known, -1, np.arange(count))
        rows = zip(*(each.tolist() for each in (nodes.rows, nodes.length, nodes.columns, own)), strict=True)
        # The rows that each group reduces, and the sizes of its pointwise members.
        self.reduced: list[Rows | None] = [each if yes else None for each, yes in zip(rows, row_wise, strict=True)]
        self.sizes = [
            frozenset[int]() if yes else frozenset((n,)) for n, yes in zip(nodes.size.tolist(), row_wise, strict=True)
        ]
        library = nodes.role == Role.LIBRARY
        # Nodes that no group may hold together with this one, and why.
        self.blocked: dict[int, list[tuple[int, int]]] = defaultdict(list)
        no = pairs.where((pairs.refused != ALLOWED) & ~library[pairs.first] & ~library[pairs.second])
        for a, b, code in zip(no.first.tolist(), no.second.tolist(), no.refused.tolist(), strict=True):
            self.blocked[a].append((b, code))
            self.blocked[b].append((a, code))
        self.hazards: dict[int, list[int]] = defaultdict(list)
        maybe = maybe_paths(timeline, flow, nodes)
        before, after = np.append(flow.order_before, maybe.made), np.append(flow.order_after, maybe.read)
        inside = ~library[before] & ~library[after]
        for a, b in zip(before[inside].tolist(), after[inside].tolist(), strict=True):
            self.hazards[a].append(b)
            self.hazards[b].append(a)
        self.ways, self.accesses = _ways(flow, maybe, nodes), _Accesses(flow, nodes)
        self.tried: dict[tuple[int, int], tuple[int, int, int]] = {}

    def join(self, a: int, b: int, vertical: bool) -> int:
        """Make one group of two, or say why not."""
        here, there = self.ways.members[a], self.ways.members[b]
        before = self.tried.get((a, b))
        if before is not None and before[:2] == (len(here), len(there)):
            return before[2]
        space = self._space(a, b, vertical)
        code = _CODE[space] if isinstance(space, Refusal) else self._refusal(a, b)
        between = self.ways.between(a, b) if code == ALLOWED else ([], [])
        if isinstance(between, Refusal):
            code = _CODE[between]
        if isinstance(space, Refusal) or isinstance(between, Refusal) or code != ALLOWED:
            self.tried[a, b] = (len(here), len(there), code)
            return code
        self.ways.unite(a, b, between)
        self.reduced[min(a, b)], self.sizes[min(a, b)] = space
        return ALLOWED

    def _refusal(self, a: int, b: int) -> int:
        group, members = self.ways.group, self.ways.members
        if len(members[a]) + len(members[b]) > MOST_MEMBERS:
            return _CODE[Refusal.FULL]
        small, large = (a, b) if len(members[a]) <= len(members[b]) else (b, a)
        for node in members[small]:
            for other, code in self.blocked.get(node, ()):
                if group[other] == large:
                    return code
            for other in self.hazards.get(node, ()):
                if group[other] == large and not self.accesses.alike(node, other):
                    return _CODE[Refusal.HAZARD]
        return ALLOWED

    def _space(self, a: int, b: int, vertical: bool) -> tuple[Rows | None, frozenset[int]] | Refusal:
        """Return the iteration space of both together."""
        one, other = self.reduced[a], self.reduced[b]
        if one is not None and other is not None and one != other:
            return Refusal.REDUCTION if one[0] * one[1] == other[0] * other[1] else Refusal.SPACE
        rows = one or other
        full = rows[0] * rows[1] if rows is not None else max(self.sizes[a] | self.sizes[b])
        for group in (a, b):
            if self._whole(group) != full and not all(
                _broadcasts(size, rows, full, vertical) for size in self.sizes[group]
            ):
                return Refusal.SPACE
        return rows, self.sizes[a] | self.sizes[b]

    def _whole(self, group: int) -> int:
        """Return the elements of its iteration space."""
        rows = self.reduced[group]
        return rows[0] * rows[1] if rows is not None else max(self.sizes[group])


def _broadcasts(size: int, rows: Rows | None, full: int, vertical: bool) -> bool:
    """Return whether a pointwise member of this size fits into the iteration space of the whole."""
    if size == full or (rows is not None and size == rows[0]):
        return True
    return vertical and 0 < size < full and full % size == 0


class _Accesses:
    """What each node reads and writes where, asked for only where an in-place write could meet a read."""

    def __init__(self, flow: Flow, nodes: FusionNodes) -> None:
        self._by_place = {Role.POINTWISE, Role.ROW}
        self._role = nodes.role
        node = np.concatenate((flow.reads.node, flow.writes.node))
        order = np.argsort(node, kind="stable")
        self._begin = np.searchsorted(node[order], np.arange(len(flow.nodes) + 1))
        parts = ((flow.reads, flow.writes), ("buffer", "begin_byte", "end_byte"))
        self._columns = [np.concatenate([getattr(part, name) for part in parts[0]])[order] for name in parts[1]]
        self._writes = np.repeat((False, True), (len(flow.reads.node), len(flow.writes.node)))[order]
        self._adrift = _adrift(flow)[np.concatenate((flow.reads.tensor_row, flow.writes.tensor_row))[order]]

    def alike(self, a: int, b: int) -> bool:
        """Return whether both touch the same elements of what one of them writes, each element on its own."""
        if self._role[a] not in self._by_place or self._role[b] not in self._by_place:
            return False
        theirs: dict[int, list[tuple[int, int, bool, bool]]] = defaultdict(list)
        for buffer, begin, end, writes, adrift in self._of(b):
            theirs[buffer].append((begin, end, writes, adrift))
        compared = 0
        for buffer, begin, end, writes, adrift in self._of(a):
            compared += len(theirs.get(buffer, ()))
            if compared > _COMPARED:
                return False
            for its_begin, its_end, also, its_adrift in theirs.get(buffer, ()):
                meet = begin < its_end and its_begin < end
                same = (begin, end) == (its_begin, its_end)
                if (writes or also) and (adrift or its_adrift or (meet and not same)):
                    return False
        return True

    def _of(self, node: int) -> list[tuple[int, int, int, bool, bool]]:
        rows = slice(int(self._begin[node]), int(self._begin[node + 1]))
        columns = [column[rows].tolist() for column in (*self._columns, self._writes, self._adrift)]
        return list(zip(*columns, strict=True))


def _adrift(flow: Flow) -> BoolArray:
    """For each tensor whether it is a part of its storage of which nothing says where it lies: neither an execution
    trace, nor strides, from which the beginning of a slice follows.
    """
    table = flow.timeline.tensors
    if (flow.reads.evidence == Evidence.PROVEN).any():
        return np.zeros(table.num_rows, np.bool_)
    numel, storage = numbers(table.column("numel"), 0), numbers(table.column("storage_id"), -1)
    which = np.unique(storage, return_inverse=True)[1]
    most = np.zeros(len(which), np.int64)
    np.maximum.at(most, which, numel)
    found: BoolArray = (numel < most[which]) & ~lists(table.column("strides"))[2]
    return found


def _ways(flow: Flow, maybe: MaybePaths, nodes: FusionNodes) -> Ways:
    before = np.concatenate((flow.edges.producer, flow.order_before))
    after = np.concatenate((flow.edges.consumer, flow.order_after))
    known = flow.nodes.known[before] & flow.nodes.known[after]
    through = (np.concatenate((before[~known], maybe.before)), np.concatenate((after[~known], maybe.after)))
    weaker = (
        (Refusal.BARRIER, *through),
        (Refusal.HOST, *_ways_through_the_host(nodes)),
        (Refusal.UNSURE, flow.perhaps_before, flow.perhaps_after),
    )
    return Ways(maybe.rank, before[known], after[known], weaker)


def _ways_through_the_host(nodes: FusionNodes) -> tuple[IntArray, IntArray]:
    """From each node of which the host reads something to all after it, up to the next one: what is launched then may
    depend on what was read.
    """
    reading = np.flatnonzero(nodes.read_by_host)
    node = np.arange(len(nodes.read_by_host))
    last = np.searchsorted(reading, node) - 1
    return reading[last[last >= 0]], node[last >= 0]
