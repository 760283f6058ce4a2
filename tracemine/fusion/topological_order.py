"""Which groups need which to run before them: kept in an order in which they could be launched, so that none wait in a
circle. (Pearce and Kelly's dynamic topological order, for groups that become one.)
"""

from __future__ import annotations

import itertools

import numpy as np

from tracemine.flow.record import BoolArray, IntArray
from tracemine.fusion.record import Refusal

_LOOKED_AT = 300  # groups between two, before it counts as too far
_FOLLOWED = 5_000  # ways out of groups between two, before it counts as too far

Between = tuple[list[int], list[int]]  # what the later of two needs, and what needs the earlier one, of those between


class Ways:
    """Ways between groups; a group goes by its first node.

    >>> import numpy as np
    >>> ways = Ways(4, np.array([0, 1, 2]), np.array([2, 3, 3]))
    >>> ways.between(0, 3)
    <Refusal.CYCLE: 'something in between needs the one and is needed by the other'>
    >>> ways.unite(0, 2, ways.between(0, 2))
    >>> ways.between(0, 3)
    ([], [])
    """

    def __init__(
        self,
        count: int,
        before: IntArray,
        after: IntArray,
        *,
        rank: IntArray | None = None,
        opaque: BoolArray | None = None,
    ) -> None:
        """count: nodes. The node `before` runs before the node `after`, which has a higher rank: by default, a higher
        number. opaque: nodes through which a way is only possible, not known.
        """
        self.group = list(range(count))  # of each node
        self.members = {node: [node] for node in range(count)}
        # Of each group: higher than those of all that it needs.
        self._rank: list[int] = list(range(count)) if rank is None else rank.tolist()
        self._opaque: list[bool] = [False] * count if opaque is None else opaque.tolist()
        distinct = np.unique(before * max(count, 1) + after)
        before, after = distinct // max(count, 1), distinct % max(count, 1)
        self._after = _following(count, before, after)  # of each node
        order = np.argsort(after, kind="stable")
        self._before = _following(count, after[order], before[order])

    def between(self, a: int, b: int) -> Between | Refusal:
        """What would have to make room if two groups became one; or why they cannot: one would wait for itself."""
        first, second = (a, b) if self._rank[a] < self._rank[b] else (b, a)
        behind = self._reached(first, second, self._after, known_only=False)
        if isinstance(behind, Refusal) or not behind:
            return behind if isinstance(behind, Refusal) else ([], [])
        ahead = self._reached(second, first, self._before, known_only=False)
        return ahead if isinstance(ahead, Refusal) else (ahead, behind)

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

    def told_apart(self, a: int, b: int, refused: Refusal) -> Refusal:
        """The refusal; BARRIER where only a way through something opaque makes them wait in a circle."""
        if refused is not Refusal.CYCLE:
            return refused
        first, second = (a, b) if self._rank[a] < self._rank[b] else (b, a)
        known = self._reached(first, second, self._after, known_only=True)
        return refused if known is Refusal.CYCLE else Refusal.BARRIER

    def _reached(self, start: int, end: int, following: list[list[int]], *, known_only: bool) -> list[int] | Refusal:
        """The groups to which ways lead from `start` and whose ranks lie between, by rank; none may lead to `end`."""
        group, members, rank = self.group, self.members, self._rank
        low, high = rank[start], rank[end]
        if low > high:
            low, high = high, low
        seen: set[int] = set()
        followed = 0
        for node in members[start]:
            ways = following[node]
            followed += len(ways)
            if followed > _FOLLOWED:
                return Refusal.FAR
            for other in ways:
                if low < rank[group[other]] < high and not (known_only and self._opaque[other]):
                    seen.add(group[other])
        if not seen:
            return []
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
                    if low < rank[to] < high and to not in seen and not (known_only and self._opaque[other]):
                        seen.add(to)
                        stack.append(to)
        return sorted(seen, key=rank.__getitem__)


def _following(count: int, before: IntArray, after: IntArray) -> list[list[int]]:
    bounds = np.searchsorted(before, np.arange(count + 1)).tolist()
    following = after.tolist()
    return [following[begin:end] for begin, end in itertools.pairwise(bounds)]
