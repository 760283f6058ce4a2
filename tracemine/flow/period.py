"""Numbers that are counted through the steps of a recording, and what they become where one step represents many.

A step that equals those behind it represents them: what was found of it is copied, and its numbers move on with each
copy. Only where it equals the step before it, entry by entry: each number in it is the same as there, or as far on as a
step is long.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tracemine.columns import Array

IntArray = npt.NDArray[np.int64]


class NotAlike(Exception):
    """The step that is to be copied differs from the one before."""


class Numbered(Struct, frozen=True):
    """Numbers of one kind (nodes, reads, groups …), counted through the steps that are kept.

    >>> nodes = Numbered(begin=np.array([0, 2, 4, 6]), copied=1, copies=2)
    >>> nodes.repeated(np.array([7, 8, 7, 8, 5, 6])).tolist()
    [7, 8, 7, 8, 7, 8, 7, 8, 5, 6]
    >>> nodes.counted(np.array([-1, 0, -1, 2, 3, 4]), nodes).tolist()  # in a step the second reads what the first wrote
    [-1, 0, -1, 2, -1, 4, -1, 6, 7, 8]
    """

    begin: IntArray  # where those of each step begin, and of one more
    copied: int  # the step that is copied: not the first, nor the last
    copies: int

    @staticmethod
    def of(step: IntArray, like: Numbered) -> Numbered:
        """Return the kind of entries in order, of which `step` says the step. Raises NotAlike where steps are mixed."""
        if (np.diff(step) < 0).any():
            raise NotAlike
        return Numbered(np.searchsorted(step, np.arange(len(like.begin))), like.copied, like.copies)

    @staticmethod
    def by_birth(number: IntArray, step: IntArray, like: Numbered) -> Numbered:
        """Return the kind of numbers that are given one after another: those of a step begin behind all before it."""
        most = np.full(len(like.begin) - 1, -1, np.int64)
        np.maximum.at(most, step, number)
        return Numbered(np.append(0, np.maximum.accumulate(most) + 1), like.copied, like.copies)

    @property
    def period(self) -> int:
        """How many of them a step has."""
        return self.end - int(self.begin[self.copied])

    @property
    def end(self) -> int:
        """Where those of the copied step end."""
        return int(self.begin[self.copied + 1])

    def step(self, number: IntArray) -> IntArray:
        """Return the step that each number belongs to."""
        found: IntArray = np.searchsorted(self.begin, number, "right") - 1
        return found

    def parts(self, column: Array) -> tuple[Array, Array, Array, Array]:
        """Return the entries up to the copied step, its own, those of the step before, and all behind it."""
        first = int(self.begin[self.copied])
        before = column[self.begin[self.copied - 1] : first]
        if self.period != len(before):
            raise NotAlike
        return column[:first], column[first : self.end], before, column[self.end :]

    def copied_from(self) -> IntArray:
        """Return, for each number of all steps, the one in the steps that are kept that it corresponds to.

        >>> Numbered(begin=np.array([0, 1, 3, 5, 6]), copied=2, copies=1).copied_from().tolist()
        [0, 1, 2, 3, 4, 3, 4, 5]
        """
        head, own, _, tail = self.parts(np.arange(self.begin[-1]))
        return np.concatenate((head, np.tile(own, self.copies + 1), tail))

    def repeated(self, column: Array) -> Array:
        """Return a column of plain values for all steps. Raises NotAlike."""
        head, own, before, tail = self.parts(column)
        if not np.array_equal(own, before):
            raise NotAlike
        return np.concatenate((head, np.tile(own, self.copies + 1), tail))

    def counted(self, column: IntArray, of: Numbered) -> IntArray:
        """Return a column of numbers of a kind for all steps; −1 is none.

        A number of the copied step, of the one before or behind it moves on with the copies; others stay as they are.
        Raises NotAlike where that is not what the step before has.
        """
        head, own, before, tail = self.parts(column)
        near, beyond = of.begin[of.copied - 1], of.period * of.copies
        moves, stays = own - of.period == before, own == before
        # The first number behind a step may mark its end, so that of the step after next is as near.
        moves &= (own >= near) & (own <= of.begin[of.copied + 2])
        if not (moves | stays & ((own < near) | (own >= of.end))).all():
            raise NotAlike
        behind = np.where(column >= of.end, beyond, 0)
        behind[len(head) - len(before) : len(head)][moves] = 0
        turn = np.arange(self.copies + 1)[:, None]
        copies = own + np.where(moves, turn * of.period, behind[len(head) : len(head) + len(own)])
        return np.concatenate(
            (head + behind[: len(head)], copies.reshape(-1), tail + np.where(tail >= near, beyond, 0))
        )


class Period(Struct, frozen=True):
    """A run of equal steps, one of which is copied to those behind it.

    A step reaches from its begin to the next one's, whatever duration was recorded; step 0 is what comes before the
    first one. Rows: one row a step, the copied one first; equal places have equal entries.
    """

    nodes: Numbered  # or positions of the Order, from which they follow
    op_rows: IntArray  # rows of `ops`, in order
    activity_rows: IntArray  # rows of `activities` that those launched

    def by_node(self, node: IntArray) -> Numbered:
        """Return the kind of entries of which each belongs to a node, in order. Raises NotAlike."""
        return Numbered.of(self.nodes.step(node), self.nodes)


def spread_rows(rows: IntArray, column: IntArray, entries: Numbered) -> IntArray:
    """Return a column of rows of a table for all steps; `rows`: a period's, of that table. Raises NotAlike.

    >>> entries = Numbered(begin=np.array([0, 1, 2, 3, 4]), copied=2, copies=1)
    >>> spread_rows(np.array([[7, 5], [9, 8]]), np.array([1, 3, 5, 11]), entries).tolist()
    [1, 3, 5, 8, 11]
    """
    head, own, _, tail = entries.parts(column)
    order = np.argsort(rows[0])
    place = np.append(order, -1)[np.searchsorted(rows[0], own, sorter=order)]
    if (np.append(rows[0], -2)[place] != own).any():
        raise NotAlike
    return np.concatenate((head, rows[:, place].reshape(-1), tail))
