"""Groups of activities: what each is called, what it is part of, and which activities are of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tracemine.rows.table import BoolArray, Categories, IntArray

_Number = TypeVar("_Number", np.int64, np.float64)
Path = tuple[str | None, ...]  # names from the outermost group inwards; (None,): not known
NOT_KNOWN: Path = (None,)


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups, each behind the one that it is part of, and the innermost group of each activity."""

    names: Sequence[str | None]
    parents: Sequence[int]  # −1: part of no other
    of: IntArray
    instances: Sequence[int] = ()  # of each group, where that is more than one

    def inclusive(self, sums: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        """Return sums over groups (along the first axis) with those of all their parts added."""
        found = sums.copy()
        for at in range(len(self.parents) - 1, -1, -1):
            if self.parents[at] >= 0:
                found[self.parents[at]] += found[at]
        return found

    def in_order(self, spent: IntArray, shown: BoolArray) -> Iterator[tuple[int, int]]:
        """Yield depth and number of each group that is shown: most is spent first, each before its parts."""
        parts: dict[int, list[int]] = {}
        for at in np.argsort(-spent, kind="stable").tolist():
            if shown[at]:
                parts.setdefault(self.parents[at], []).append(at)
        left = [(0, at) for at in reversed(parts.get(-1, []))]
        while left:
            depth, at = left.pop()
            yield depth, at
            left += [(depth + 1, part) for part in reversed(parts.get(at, []))]


def by_category(column: Categories) -> Grouping:
    """Group by one category; null is a group without a name."""
    paths: list[Path] = [*((name,) for name in column.values), NOT_KNOWN]
    return by_path(paths, np.where(column.codes >= 0, column.codes, len(column.values)).astype(np.int64))


def by_path(paths: Sequence[Path], of: IntArray, places: Sequence[str] = ()) -> Grouping:
    """Group by paths, of which each activity has one: equal beginnings are one group.

    of: each activity's path. places: what tells paths of one name from each other, a dotted text for each: a group
    has as many instances as its paths have different beginnings there.

    >>> found = by_path([("a", "b"), ("a",), ("a", "b")], np.array([0, 1, 2]), ["a_0.b_0", "a_0", "a_0.b_1"])
    >>> found.names, found.parents, found.of.tolist(), found.instances
    (['a', 'b'], [-1, 0], [1, 0, 1], [1, 2])
    """
    made = _Made()
    used = np.zeros(len(paths), np.bool_)
    used[of] = True
    innermost = np.full(len(paths), -1, np.int64)
    for at in np.flatnonzero(used).tolist():
        innermost[at] = made.add(paths[at], places[at].split(".") if places else ())
    return Grouping(made.names, made.parents, innermost[of], [max(len(each), 1) for each in made.seen])


class _Made:
    """Groups as they are made."""

    def __init__(self) -> None:
        self.names: list[str | None] = []
        self.parents: list[int] = []
        self.seen: list[set[str]] = []
        self.known: dict[tuple[int, str | None], int] = {}

    def add(self, path: Path, place: Sequence[str]) -> int:
        """Return the group of a path, which is made where it is not there."""
        at = -1
        for depth, name in enumerate(path):
            key = (at, name)
            if key not in self.known:
                self.known[key] = len(self.names)
                self.names.append(name)
                self.parents.append(at)
                self.seen.append(set())
            at = self.known[key]
            if depth < len(place):
                self.seen[at].add(".".join(place[: depth + 1]))
        return at
