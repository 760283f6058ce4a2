"""Find what may have to run before what, where dataflow is a guess: a path that is not known counts as a path.

A guess took one of the tensors that look right. Each of the others may be the right one, so whoever wrote it stays in
front of the reader; and so does whatever made something unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from tracemine.columns import numbers, sorted_unique
from tracemine.flow.inferred.pools import Bindings
from tracemine.flow.inferred.wiring_record import Wiring
from tracemine.flow.order import Order
from tracemine.flow.record import BoolArray, IntArray, MayRead, Nodes, Reads, Writes
from tracemine.timeline import Timeline

_MOST = 32  # of what was written, read or made before, the latest
_MOST_ALIKE = 64  # tensors that look right: beyond that a reader may read anything


class Guesses(Struct, frozen=True):
    """What the simulation guessed."""

    bound: Bindings
    root_of: IntArray  # for each operator's position the outermost that was simulated, −1: none
    inside: BoolArray  # for each row of `tensors`: it is a guess which of its root's tensors it is


def perhaps(
    guesses: Guesses,
    timeline: Timeline,
    order: Order,
    nodes: Nodes,
    reads: Reads,
    writes: Writes,
    *,
    readers: bool = False,
) -> tuple[IntArray, IntArray, MayRead]:
    """Return nodes that may have to run before others, and these; readers: and who may read what, else nothing.

    timeline: with the inferred tensors.
    """
    walk = _Walk(guesses, timeline, order, nodes, reads, writes, readers=readers)
    walk.run()
    before, after = _in_front_of(sorted_unique(np.array(walk.takes_anything, np.int64)), len(nodes))
    (first, second), (storage, reader) = walk.pairs.distinct(), walk.may_read.distinct()
    earlier = first < second
    before, after = np.concatenate((before, first[earlier])), np.concatenate((after, second[earlier]))
    return before, after, (storage, reader)


class _Pairs:
    """Many pairs of numbers, of which the distinct ones count: packed into arrays, a tenth of the memory of a set."""

    def __init__(self, count: int) -> None:
        """count: more than any second number."""
        self._count = count
        self._firsts: list[int] = []  # of one second number after another
        self._lengths: list[int] = []
        self._seconds: list[int] = []
        self._packed = [np.zeros(0, np.int64)]

    def add(self, firsts: Sequence[int], second: int) -> None:
        """Add a pair for each of the first numbers."""
        self._firsts += firsts
        self._lengths.append(len(firsts))
        self._seconds.append(second)

    def pack(self, least: int = 1 << 17) -> None:
        """Pack the latest, where they are so many."""
        if len(self._firsts) >= least:
            second = np.repeat(np.array(self._seconds, np.int64), self._lengths)
            self._packed.append(sorted_unique(np.array(self._firsts, np.int64) * self._count + second))
            for column in (self._firsts, self._lengths, self._seconds):
                column.clear()

    def distinct(self) -> tuple[IntArray, IntArray]:
        """Return the distinct ones, in order, the first numbers and the second."""
        self.pack(least=1)
        both = sorted_unique(np.concatenate(self._packed))
        return both // self._count, both % self._count


class _Walk:
    """Goes through all that was simulated, in order."""

    def __init__(
        self,
        guesses: Guesses,
        timeline: Timeline,
        order: Order,
        nodes: Nodes,
        reads: Reads,
        writes: Writes,
        *,
        readers: bool,
    ) -> None:
        self._asks_readers = readers
        storage = numbers(timeline.tensors.column("storage_id"), -1)
        at = order.position[nodes.op_row]
        root = guesses.root_of[at] if len(at) else at
        count = max(len(nodes), 1)
        self.pairs = _Pairs(count)  # nodes, of which the first may have to run before the second, where it is earlier
        self.may_read = _Pairs(count)  # a storage, and a node of which it is a guess that it reads it
        self.takes_anything: list[int] = []  # nodes that read what was not recorded
        self._bound = guesses.bound
        self._of_root: defaultdict[int, list[int]] = defaultdict(list)
        for node, one in enumerate(root.tolist()):
            self._of_root[one].append(node)
        self._begins = at.tolist()
        self._apart = np.flatnonzero(~nodes.known & (root < 0)).tolist()  # unknown, and in nothing that was simulated
        self._written = _by_node(writes.node, storage[writes.tensor_row])
        self._read = _by_node(reads.node, storage[reads.tensor_row])
        self._has_writer = set(storage[writes.tensor_row].tolist())
        self._inside = set(reads.node[guesses.inside[reads.tensor_row]].tolist())
        # By storage, in order: nodes that wrote it, that may have, and that read it.
        self._writers: defaultdict[int, list[int]] = defaultdict(list)
        self._perhaps_writers: defaultdict[int, list[int]] = defaultdict(list)
        self._readers: defaultdict[int, list[int]] = defaultdict(list)
        self._step = nodes.step_row.tolist()
        self._updated: defaultdict[int, list[int]] = defaultdict(list)  # by step: nodes that are part of an optimizer
        self._unnamed: list[int] = []  # nodes that made something unknown
        self._instead: defaultdict[int, set[int]] = defaultdict(set)  # a view of one may be a view of these instead
        self._in_doubt: set[int] = set()  # or of something unknown

    def run(self) -> None:
        """Find the pairs."""
        bound, first = self._bound, 0
        apart = self._apart[::-1]
        for root, wiring in zip(bound.root, bound.wiring, strict=True):
            while apart and self._begins[apart[-1]] < root:
                self._unnamed.append(apart.pop())
            count = len(wiring.needs)
            nodes = self._of_root.get(root, [])
            if root in bound.numbers:
                self._before(self._writers, bound.numbers[root], nodes)
            if root in bound.updates:
                for node in nodes:
                    self._updated[self._step[node]].append(node)
            self._root(nodes, wiring, first, bound.storages[first : first + count + wiring.new])
            first += count + wiring.new
            self.pairs.pack()
            self.may_read.pack()

    def _root(self, nodes: list[int], wiring: Wiring, first: int, storages: list[int]) -> None:
        self._guesses(nodes, wiring, first, storages)
        for node in nodes:
            self._known(node, nodes, storages)
        if wiring.reads_unknown:
            self.takes_anything.extend(nodes)
        if wiring.barrier or wiring.wrote_unknown:
            self._unnamed.extend(nodes)
        for storage in storages[len(wiring.needs) :]:
            if storage not in self._has_writer:  # whoever reads it comes after who made it
                self._perhaps_writers[storage] += nodes

    def _guesses(self, nodes: list[int], wiring: Wiring, first: int, storages: list[int]) -> None:
        """Enter what an operator reads, and perhaps writes, by guess."""
        written = set(wiring.mutated)
        viewed = {give.slot for give in wiring.gives} if nodes else set(range(len(wiring.needs)))
        for slot in range(len(wiring.needs)):
            place = first + slot
            if self._bound.sure[place] and place not in self._bound.told:
                continue
            if place in self._bound.rewritten:
                self._rewritten(nodes)
            self._guess(nodes, place, storages[slot], written=slot in written)
            if slot in viewed:
                self._instead[storages[slot]].update(self._bound.alike.get(place, ()))
                if place in self._bound.unnamed:
                    self._in_doubt.add(storages[slot])

    def _known(self, node: int, nodes: list[int], storages: list[int]) -> None:
        """Enter what a node reads and writes: inside its operator, by guess, or for sure."""
        if node in self._inside:
            self._before(self._writers, storages, [node])
            self._may_read([node], storages)
            self.pairs.add(nodes[-_MOST:], node)
        read = self._read.get(node, ())
        self._before(self._perhaps_writers, read, [node])
        for storage in read:
            self._readers[storage].append(node)
        for storage in self._written.get(node, ()):
            self._writers[storage].append(node)

    def _guess(self, nodes: list[int], place: int, chosen: int, *, written: bool) -> None:
        """The nodes read one of those that look right, and perhaps write it."""
        if not nodes:
            return
        alike = self._all_alike({chosen, *self._bound.alike.get(place, ())})
        self._may_read(nodes, (*alike, *self._bound.older.get(place, ())))
        if len(alike) > _MOST_ALIKE:
            self.takes_anything.extend(nodes)
            if written:
                self._unnamed.extend(nodes)
            return
        earlier = [self._writers, self._perhaps_writers, *([self._readers] if written else [])]
        for by_storage in earlier:
            self._before(by_storage, alike, nodes)
        if written:
            for storage in alike:
                self._perhaps_writers[storage] += nodes
        if place in self._bound.unnamed or not self._in_doubt.isdisjoint(alike):
            for node in nodes:
                self.pairs.add(self._unnamed[-_MOST:], node)

    def _all_alike(self, alike: set[int]) -> set[int]:
        """Return these storages and all that may be meant instead, until they are too many."""
        instead = self._instead.keys()
        waiting = instead & alike if len(alike) <= _MOST_ALIKE else set()
        while waiting and len(alike) <= _MOST_ALIKE:
            more = self._instead[waiting.pop()] - alike
            alike |= more
            waiting |= more & instead
        return alike

    def _may_read(self, nodes: Iterable[int], storages: Sequence[int]) -> None:
        """Note that each of these nodes may read each of these storages."""
        if self._asks_readers:
            for node in nodes:
                self.may_read.add(storages, node)

    def _rewritten(self, nodes: list[int]) -> None:
        """They read a parameter that an optimizer may have written in this step."""
        for node in nodes:
            self.pairs.add(self._updated.get(self._step[node], ()), node)

    def _before(self, by_storage: Mapping[int, Sequence[int]], storages: Iterable[int], later: Iterable[int]) -> None:
        """What is there for these storages may have to run before the later nodes."""
        earlier: list[int] = []
        for storage in by_storage.keys() & storages:
            earlier += by_storage[storage][-_MOST:]
        if earlier:
            for node in later:
                self.pairs.add(earlier, node)


def _in_front_of(chosen: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """Return each node, and the next of the chosen ones behind it; so all that are in front of one come before it.

    >>> [each.tolist() for each in _in_front_of(np.array([1, 3]), 5)]
    [[0, 1, 2], [1, 3, 3]]
    """
    node = np.arange(count)
    behind = np.searchsorted(chosen, node, side="right")
    node = node[behind < len(chosen)]
    return node, chosen[behind[behind < len(chosen)]]


def _by_node(node: IntArray, storage: IntArray) -> dict[int, list[int]]:
    found: defaultdict[int, list[int]] = defaultdict(list)
    for one, other in zip(node.tolist(), storage.tolist(), strict=True):
        found[one].append(other)
    return found
