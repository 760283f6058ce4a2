"""Foreach dispatch: members of a list share their code in one launch, and a program chooses its tensors.

A branch for each member would have the compiler work through the same code as often as there are members: an
optimizer's step over 182 parameters took minutes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from tracemine.tables import table_beside

LEAST = 3  # fewer are branches


class ForeachMembers(NamedTuple):
    """Consecutive sub-kernels of a launch: the first, how many, and whether one call runs all of them."""

    first: int
    length: int
    chosen: bool

    @property
    def positions(self) -> range:
        """Their positions among the sub-kernels."""
        return range(self.first, self.first + self.length)


def members(kinds: Sequence[Hashable]) -> list[ForeachMembers]:
    """Return how the sub-kernels of a launch are called. kinds: equal for those that may be chosen among.

    >>> [tuple(each) for each in members([0, 0, 0, 3, 3, 5])]
    [(0, 3, True), (3, 1, False), (4, 1, False), (5, 1, False)]
    """
    found: list[ForeachMembers] = []
    for _, group in groupby(range(len(kinds)), kinds.__getitem__):
        first, *others = group
        length = 1 + len(others)
        many = [ForeachMembers(first, length, True)] if length >= LEAST else []
        found += many or [ForeachMembers(at, 1, False) for at in (first, *others)]
    return found


def adjacent(kinds: Sequence[Hashable]) -> list[int]:
    """Return an order of sub-kernels in which those that may be chosen among are consecutive.

    >>> adjacent([0, 1, 0, 0]), adjacent([0, 1, 0])
    ([0, 2, 3, 1], [0, 1, 2])
    """
    return sorted(range(len(kinds)), key=lambda k: (kinds.index(kinds[k]) if kinds.count(kinds[k]) >= LEAST else k, k))


def choice(each: ForeachMembers, given: Sequence[Sequence[str]]) -> tuple[list[str], list[str]]:
    """Return lines that choose what a program takes, and the arguments that they give.

    given: for each of the members all that it takes, in the order of the code's parameters.
    """
    lines: list[str] = []
    arguments: list[str] = []
    for texts in zip(*given, strict=True):
        if len(set(texts)) == 1:
            arguments.append(texts[0])
        else:
            arguments.append(f"{texts[0]}_here")
            lines += chosen(arguments[-1], each, texts)
    return lines, arguments


def chosen(name: str, each: ForeachMembers, texts: Sequence[str]) -> list[str]:
    """Return lines that choose one argument, by where the members' blocks end.

    >>> print("\\n".join(chosen("x_here", ForeachMembers(0, 3, True), ["x", "y", "z"])))
    x_here = z
    x_here = tl.where(block < end_1, y, x_here)
    x_here = tl.where(block < end_0, x, x_here)
    """
    *before, last = zip(each.positions, texts, strict=True)
    lines = [f"{name} = tl.where(block < end_{place}, {text}, {name})" for place, text in reversed(before)]
    return [f"{name} = {last[1]}", *lines]


def planned(each: ForeachMembers, dense: Iterable[str], loops: Sequence[str]) -> str:
    """Return the plan's line for them. dense: what must hold for each to be one row; loops: their rows and columns."""
    parts = ", ".join(f"part_{k}" for k in each.positions)
    before = f"part_{each.first - 1}[-4]" if each.first else "0"
    is_dense = " and ".join(dense) or "True"
    return f"{parts} = _members(elements, elements_per_thread, {before}, {is_dense}, {', '.join(loops)})"


_TEXTS = table_beside(__file__, "texts.toml")
HELPER: str = _TEXTS["helper"]
