"""What a backward pass shows about what its forward pass read, for simulating both once more."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from msgspec import Struct, field

_Read = tuple[int, int]  # a root, and which of what it takes
_Made = tuple[int, int]  # a root, and which of the storages that it makes


class Hints(Struct, frozen=True):
    """Where reads came from, and which parameters are whose. Storages are numbered anew in each simulation, so they go
    by who made them."""

    reads: dict[_Read, _Made] = field(default_factory=dict)
    own: frozenset[int] = frozenset()  # roots with parameters that no other operator takes

    def __len__(self) -> int:
        return len(self.reads) + len(self.own)


class Origins:
    """Which root made each storage.

    >>> origins = Origins()
    >>> origins.made(7, 10, 2)
    >>> origins.of(11), origins.of(12), origins.storage((7, 1)), origins.storage((8, 0))
    ((7, 1), None, 11, None)
    """

    def __init__(self) -> None:
        self._roots: list[int] = []
        self._first: list[int] = []
        self._count: list[int] = []
        self._at: dict[int, int] = {}  # by root its place in the lists

    def made(self, root: int, first: int, count: int) -> None:
        """A root makes so many storages, the first of this number."""
        self._at[root] = len(self._roots)
        self._roots.append(root)
        self._first.append(first)
        self._count.append(count)

    def storage(self, made: _Made) -> int | None:
        """Return the number of a storage in this simulation."""
        at = self._at.get(made[0])
        return None if at is None else self._first[at] + made[1]

    def of(self, storage: int) -> _Made | None:
        """Return who made a storage; None: it is from outside."""
        at = bisect_right(self._first, storage) - 1
        if at < 0 or storage >= self._first[at] + self._count[at]:
            return None
        return self._roots[at], storage - self._first[at]

    def hints(self, before: Hints, resolved: Iterable[tuple[_Read, int]], own: Iterable[int]) -> Hints:
        """Return all that is known by now. resolved: reads, and the storage that each is of."""
        found = {read: made for read, storage in resolved if read[1] >= 0 and (made := self.of(storage)) is not None}
        return Hints(before.reads | found, before.own.union(own))
