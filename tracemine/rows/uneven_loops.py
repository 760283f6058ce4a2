"""Find iterations of a loop that leave out parts of their body, by the names of their entries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tracemine.rows.table import IntArray

Turn = tuple[int, tuple[int, ...]]  # where it begins, and its entries


def uneven(code: IntArray, first: int, least_turns: int, longest: int) -> Iterator[tuple[int, IntArray, IntArray]]:
    """Yield stretches of iterations that begin with `first` and of which each has the entries of one body in order, or
    some of them: where it begins, and of each entry the iteration and its place in the body.

    >>> [(begin, turn, place)] = uneven(np.array([9, 1, 2, 3, 1, 3, 1, 2, 8]), 1, 3, 8)
    >>> begin, turn.tolist(), place.tolist()
    (1, [0, 0, 0, 1, 1, 2, 2], [0, 1, 2, 0, 2, 0, 1])
    """
    begins = np.flatnonzero(code == first)
    ends = np.append(begins[1:], len(code))
    run: list[Turn] = []
    body: tuple[int, ...] = ()
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        turn = tuple(code[begin : min(end, begin + longest + 1)].tolist())
        whole = len(turn) <= longest and end < len(code)
        if whole and (not run or places(turn, body) is not None or places(body, turn) is not None):
            run.append((begin, turn))
            body = max(body, turn, key=len)
            continue
        # Behind the last iteration something else goes on.
        known = [places(turn[:count], body) for count in range(len(turn) + 1)]
        run.append((begin, turn[: max(count for count, each in enumerate(known) if each is not None)]))
        yield from _stretch(run, body, least_turns)
        run, body = ([(begin, turn)], turn) if whole else ([], ())
    yield from _stretch(run, body, least_turns)


def _stretch(run: Sequence[Turn], body: Sequence[int], least_turns: int) -> Iterator[tuple[int, IntArray, IntArray]]:
    run = [each for each in run if each[1]]
    if len(run) >= least_turns:
        turn = np.repeat(np.arange(len(run)), [len(entries) for _, entries in run])
        yield run[0][0], turn, np.array([at for _, entries in run for at in places(entries, body) or ()], np.int64)


def places(part: Sequence[int], body: Sequence[int]) -> list[int] | None:
    """Return where entries stand in a body that has them all in this order; None where it has not.

    >>> places([1, 3], [1, 2, 3]), places([3, 1], [1, 2, 3])
    ([0, 2], None)
    """
    found, at = list[int](), 0
    for entry in part:
        while at < len(body) and body[at] != entry:
            at += 1
        if at == len(body):
            return None
        found.append(at)
        at += 1
    return found
