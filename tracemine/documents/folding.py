"""Names in order, with what repeats counted."""

from __future__ import annotations

from collections.abc import Sequence

_LONGEST_CYCLE = 8


def folded(names: Sequence[str]) -> tuple[str, ...]:
    """Return names in order, with what repeats, one name or several, counted.

    >>> folded(["mm", "add", "mul", "add", "mul", "add", "mul", "div", "div"])
    ('mm', '(add → mul) ×3', 'div ×2')
    """
    shown, at = [], 0
    while at < len(names):
        length, times = max(
            ((length, _repeats(names, at, length)) for length in range(1, _LONGEST_CYCLE + 1)),
            key=lambda cycle: (cycle[0] * cycle[1] if cycle[1] > 1 else 1, -cycle[0]),
        )
        cycle = names[at : at + (length if times > 1 else 1)]
        name = cycle[0] if len(cycle) == 1 else f"({' → '.join(cycle)})"
        shown.append(name if times == 1 else f"{name} ×{times:,}")
        at += len(cycle) * times
    return tuple(shown)


def _repeats(names: Sequence[str], at: int, length: int) -> int:
    """Return how often the names from there on repeat, so many at a time; a cycle of none is one."""
    cycle, times = names[at : at + length], 1
    while cycle == names[at + times * length : at + (times + 1) * length]:
        times += 1
    return times if len(cycle) == length else 1
