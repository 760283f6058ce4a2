"""Carry over what the backward pass of one iteration shows about its forward pass to equal iterations."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracemine.flow.inferred.hints import Hints
from tracemine.flow.record import BoolArray, IntArray

_LEAST_SHARE = 0.5  # of a forward pass that has to be as the one before, for that one to tell something


class ForwardPasses(Struct, frozen=True):
    """Forward passes, each with the backward pass behind it, as entries of what is simulated.

    Iteration k has the entries end[k - 1]:end[k], and those before forward_end[k] are its forward pass. Forward passes
    are laid side by side by their ends: of the first one in a recording the beginning may be missing.

    >>> look, backward = np.array([1, 2, 9, 7, 1, 2, 9]), np.array([0, 0, 1, 0, 0, 0, 1], np.bool_)
    >>> iterations = ForwardPasses.of(np.arange(7) * 10, look, backward)
    >>> iterations.forward_end.tolist(), iterations.end.tolist(), iterations.first_alike()
    ([2, 6], [3, 7], 0)
    >>> hints = iterations.carried(Hints(reads={(10, 0): (0, 1)}, own=frozenset([10])), 0)
    >>> sorted(hints.reads.items()), sorted(hints.own)
    ([((10, 0), (0, 1)), ((50, 0), (40, 1))], [10, 50])
    """

    position: IntArray  # of each entry in the Order
    look: IntArray  # equal ones do the same
    forward_end: IntArray
    end: IntArray

    @staticmethod
    def of(position: IntArray, look: IntArray, backward: BoolArray) -> ForwardPasses:
        """Return those of all entries; backward: whether an entry belongs to a backward pass."""
        turns = np.flatnonzero(np.diff(backward.astype(np.int8), prepend=0, append=0))
        return ForwardPasses(position, look, turns[0::2], turns[1::2])

    def first_alike(self) -> int | None:
        """Return the first iteration whose forward pass is, from its end on, as the next one's, and that ends in the
        first half; None: there is none."""
        early = int(np.searchsorted(self.end[:-1], len(self.position) // 2, "right"))
        for one in range(early):
            length = self.forward_end[one + 1] - self.end[one]
            if self._alike(one, one + 1) > _LEAST_SHARE * length:
                return one
        return None

    def carried(self, hints: Hints, one: int) -> Hints:
        """Return hints and, for all other iterations, those of this one as far as their forward passes are equal."""
        told = np.array([(*read, *made) for read, made in hints.reads.items()], np.int64).reshape(-1, 4)
        own = np.array(sorted(hints.own), np.int64)
        read_back, made_back, own_back = (self._back(one, roots) for roots in (told[:, 0], told[:, 2], own))
        both = np.maximum(read_back, made_back)
        reads: dict[tuple[int, int], tuple[int, int]] = {}
        owners = set(hints.own)
        for other in (at for at in range(len(self.end)) if at != one):
            end, alike = self.forward_end[other], self._alike(one, other)
            here = both <= alike
            read, made = self.position[end - read_back[here]], self.position[end - made_back[here]]
            places = (column.tolist() for column in (read, told[here, 1], made, told[here, 3]))
            reads |= {(root, slot): (maker, which) for root, slot, maker, which in zip(*places, strict=True)}
            owners.update(self.position[end - own_back[own_back <= alike]].tolist())
        return Hints(reads | hints.reads, frozenset(owners))  # what an iteration tells itself counts more

    def _back(self, one: int, roots: IntArray) -> IntArray:
        """Return how far before the end of a forward pass each root lies; beyond all entries where not in it."""
        end = self.forward_end[one]
        at = np.searchsorted(self.position, roots)
        return np.where((at >= self._begin(one)) & (at < end), end - at, len(self.position) + 1)

    def _begin(self, one: int) -> int:
        return int(self.end[one - 1]) if one else 0

    def _alike(self, one: int, other: int) -> int:
        """Return how many entries are equal, from the ends of both forward passes back to the first that is not."""
        ends = self.forward_end[[one, other]]
        most = int(min(ends - [self._begin(one), self._begin(other)]))
        differs = self.look[ends[0] - most : ends[0]] != self.look[ends[1] - most : ends[1]]
        last = np.flatnonzero(differs)
        return most - int(last[-1]) - 1 if len(last) else most
