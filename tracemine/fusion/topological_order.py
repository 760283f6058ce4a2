"""Which groups need which to run before them: kept in an order in which they could be launched, so that none wait in a
circle. (Pearce and Kelly's dynamic topological order, for groups that become one.)
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tracemine.columns import sorted_unique
from tracemine.flow.record import IntArray
from tracemine.fusion.record import Refusal

_LOOKED_AT = 300  # groups between two, before it counts as too far
_NEAR = 8  # ranks: of groups further apart most are in a circle, by known ways, of which there are few to follow
_FOLLOWED = 5_000  # ways out of groups between two, before it counts as too far

Between = tuple[list[int], list[int]]  # what the later of two needs, and what needs the earlier one, of those between


class Ways:
    """Ways between groups; a group goes by its first node.

    >>> import numpy as np
    >>> ways = Ways(np.arange(4), np.array([0, 1, 2]), np.array([2, 3, 3]))
    >>> ways.between(0, 3)
    <Refusal.CYCLE: 'something in between needs the one and is needed by the other'>
    >>> host = Refusal.HOST, np.array([1]), np.array([2])
    >>> Ways(np.arange(3), np.array([0]), np.array([1]), [host]).between(0, 2).name
    'HOST'
    >>> ways.unite(0, 2, ways.between(0, 2))
    >>> ways.between(0, 3)
    ([], [])
    """

    def __init__(
        self,
        rank: IntArray,
        before: IntArray,
        after: IntArray,
        weaker: Sequence[tuple[Refusal, IntArray, IntArray]] = (),
    ) -> None:
        """rank: position of each node. The node `before` runs before the node `after`, whose rank is higher. weaker:
        more such pairs, and what to say where groups wait for each other through these alone, the strongest first.
        """
        self._count = count = len(rank)
        self._layers = [(Refusal.CYCLE, before, after)]
        for reason, one, other in weaker:
            before, after = np.concatenate((before, one)), np.concatenate((after, other))
            self._layers.append((reason, before, after))
        self._known: dict[int, list[list[int]]] = {}  # by layer what runs after each node
        self._after, self._before = self._of_layer(-1), _following(count, after, before)
        self.group = list(range(count))  # of each node
        self.members = {node: [node] for node in range(count)}
        self._rank: list[int] = rank.tolist()  # of each group: higher than those of all that it needs

    def _of_layer(self, layer: int) -> list[list[int]]:
        """Return for each node what runs after it, through this layer or a stronger one. Made once it is asked for."""
        found = self._known.get(layer)
        if found is None:
            found = self._known[layer] = _following(self._count, *self._layers[layer][1:])
        return found

    def between(self, a: int, b: int) -> Between | Refusal:
        """What would have to make room if two groups became one; or why they cannot: one would wait for itself."""
        first, second = (a, b) if self._rank[a] < self._rank[b] else (b, a)
        far = len(self._layers) > 1 and self._rank[second] - self._rank[first] > _NEAR
        if far and self._reached(first, second, self._of_layer(0)) is Refusal.CYCLE:
            return self._layers[0][0]
        behind = self._reached(first, second, self._after)
        if isinstance(behind, Refusal):
            return self._why(first, second) if behind is Refusal.CYCLE else behind
        if not behind:
            return [], []
        ahead = self._reached(second, first, self._before)
        return ahead if isinstance(ahead, Refusal) else (ahead, behind)

    def _why(self, first: int, second: int) -> Refusal:
        """Return what the way that is there from the first to the second goes through."""
        for layer, (reason, _, _) in enumerate(self._layers[:-1]):
            if self._reached(first, second, self._of_layer(layer)) is Refusal.CYCLE:
                return reason
        return self._layers[-1][0]

    def unite(self, a: int, b: int, between: Between) -> None:
        """Make one group of two, which goes by the lower of both."""
        kept, gone = min(a, b), max(a, b)
        rank, (ahead, behind) = self._rank, between
        free = sorted([rank[group] for group in (a, b, *ahead, *behind)])
        for group, place in zip(ahead, free, strict=False):
            rank[group] = place
        rank[kept] = free[len(ahead) + 1]
        for group, place in zip(behind, free[len(ahead) + 2 :], strict=True):
            rank[group] = place
        for node in self.members[gone]:
            self.group[node] = kept
        self.members[kept] = self.members[kept] + self.members.pop(gone)

    def _reached(self, start: int, end: int, following: list[list[int]]) -> list[int] | Refusal:
        """The groups to which ways lead from `start` and whose ranks lie between, by rank; none may lead to `end`."""
        group, members, rank = self.group, self.members, self._rank
        low, high = sorted((rank[start], rank[end]))
        first = self._first_reached(start, low, high, following)
        if first is None:
            return Refusal.FAR
        seen, followed = first
        stack = list(seen)
        while stack:
            if len(seen) >= _LOOKED_AT or followed > _FOLLOWED:
                return Refusal.FAR
            for node in members[stack.pop()]:
                followed += len(following[node])
                for other in following[node]:
                    to = group[other]
                    if to == end:
                        return Refusal.CYCLE
                    if low < rank[to] < high and to not in seen:
                        seen.add(to)
                        stack.append(to)
        return sorted(seen, key=rank.__getitem__)

    def _first_reached(
        self, start: int, low: int, high: int, following: list[list[int]]
    ) -> tuple[set[int], int] | None:
        """Return the groups between two ranks that a way leads to straight, and how many ways were followed; None: too
        many."""
        group, rank = self.group, self._rank
        seen: set[int] = set()
        followed = 0
        for node in self.members[start]:
            followed += len(following[node])
            if followed > _FOLLOWED:
                return None
            seen.update(group[other] for other in following[node] if low < rank[group[other]] < high)
        return seen, followed


def _following(count: int, before: IntArray, after: IntArray) -> list[list[int]]:
    """Return for each node `before` the distinct nodes `after`, in order."""
    width = max(count, 1)
    distinct = sorted_unique(before * width + after)
    bounds = np.searchsorted(distinct, np.arange(count + 1) * width).tolist()
    following = (distinct % width).tolist()
    return [following[begin:end] for begin, end in itertools.pairwise(bounds)]
