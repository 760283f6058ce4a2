"""Iterations of a stretch, and which parts of it need nothing of others: some of them, or some of what each does."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracemine.rows.table import BoolArray, IntArray


class LoopIterations(Struct, frozen=True):
    """Entries of a `Launches` from `begin` on that are iterations of one body: of each the iteration, and its place in
    that.
    """

    begin: int
    turn: IntArray
    place: IntArray

    @property
    def end(self) -> int:
        """Where they end."""
        return self.begin + len(self.turn)

    @property
    def count(self) -> int:
        """How often the body runs."""
        return int(self.turn[-1]) + 1

    def of(self, first: int, last: int) -> LoopIterations:
        """Return the iterations from `first` until before `last`."""
        begin, end = np.searchsorted(self.turn, [first, last]).tolist()
        return LoopIterations(self.begin + begin, self.turn[begin:end] - first, self.place[begin:end])


def apart(turns: LoopIterations, reader: IntArray, writer: IntArray) -> LoopIterations:
    """Return the most iterations in a row of which none reads what another one of them wrote, where these are three
    quarters of all or more; else all. What is left out prepares their input, or goes on with what they gave.

    reader, writer: which entries read what which others wrote, by their places in the stretch.

    >>> loop = LoopIterations(5, np.arange(8), np.zeros(8, np.int64))
    >>> apart(loop, np.array([2, 3, 4]), np.array([0, 1, 1])).begin  # the first two gave what the others read
    7
    >>> apart(loop, np.array([3, 4, 5]), np.array([2, 3, 4])).count  # three need the one before
    8
    """
    needs = np.zeros(turns.count, np.int64)  # the iteration behind the last one that is read
    np.maximum.at(needs, turns.turn[reader], turns.turn[writer] + 1)
    first = np.maximum.accumulate(np.minimum(needs, np.arange(turns.count)))
    many = np.arange(1, turns.count + 1) - first
    last = int(many.argmax())
    return turns.of(int(first[last]), last + 1) if 4 * many[last] >= 3 * turns.count else turns


def ahead(turns: LoopIterations, reader: IntArray, writer: IntArray, held: BoolArray) -> BoolArray:
    """Return which entries need nothing of earlier iterations, and so could be done for all before the loop; those of
    one place in the body do it all or none of them.

    reader, writer: as for `apart`. held: entries that stay where they are.

    >>> loop = LoopIterations(0, np.repeat(np.arange(3), 2), np.tile(np.arange(2), 3))
    >>> ahead(loop, np.array([1, 3, 3, 5, 5]), np.array([0, 1, 2, 3, 4]), np.zeros(6, np.bool_)).tolist()
    [True, False, True, False, True, False]
    """
    other = turns.turn[reader] != turns.turn[writer]
    stays = np.zeros(int(turns.place.max()) + 1, np.bool_)
    stays[turns.place[held]] = True
    stays[turns.place[reader[other]]] = True
    for _ in range(len(stays)):
        stays[turns.place[reader[stays[turns.place[writer]]]]] = True
    return ~stays[turns.place]
