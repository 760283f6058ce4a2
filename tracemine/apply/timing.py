"""Is a variant faster? Blocks of steps of several processes in turns, and an interval of their ratio."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TypeVar

from tracemine.apply.record import Timed
from tracemine.verify.gpu.timing import ratio

BLOCKS, LEAST_STEPS = 30, 2
_LEAST_BLOCKS, _RACE_S = 8, 10.0  # so many whatever they take; and no more after so long
_KNOWN, _FAR = 0.004, 1.25  # half an interval, relative; times as long as the fastest: either needs no more blocks
_BLOCK_NS = 12_000_000
_FASTER, _SLOWER = 0.005, 0.01  # of the unchanged step: less is no difference

Name = TypeVar("Name", bound=Hashable)
Failed = TypeVar("Failed", bound=Exception)


def steps_a_block(step_ns: int) -> int:
    """Return how many steps are timed at once.

    >>> steps_a_block(1_000_000), steps_a_block(100_000_000)
    (12, 2)
    """
    return max(_BLOCK_NS // max(step_ns, 1), LEAST_STEPS)


def interleaved(
    timers: Mapping[Name, Callable[[], int]],
    failed: type[Failed],
    blocks: int = BLOCKS,
    unchanged: Collection[Name] = (),
) -> dict[Name, list[int] | Failed]:
    """Time a block of each in turns, every second round backwards; the first round counts for nothing.

    What fails once is left out from then on, and its error returned; what is known well enough is left out too.
    unchanged: names of what the others are held against, which runs to the end.
    """
    took: dict[Name, list[int]] = {name: [] for name in timers}
    wrong: dict[Name, Failed] = {}
    left, until = [*timers], time.monotonic() + _RACE_S
    for number in range(blocks + 1):
        if number > _LEAST_BLOCKS:
            left = _unsettled({name: took[name][1:] for name in left}, unchanged)
            if time.monotonic() > until or {*left} <= {*unchanged}:
                break
        for name in left if number % 2 else reversed(left):
            try:
                took[name].append(timers[name]())
            except failed as error:
                wrong[name] = error
        left = [name for name in left if name not in wrong]
    return {name: wrong.get(name, values[1:]) for name, values in took.items()}


def _unsettled(took: Mapping[Name, list[int]], unchanged: Collection[Name]) -> list[Name]:
    """Return what needs more blocks: those that are held against, and what is neither known nor far behind."""
    bases = [values for name, values in took.items() if name in unchanged]
    if not bases:
        return [*took]
    fastest = min(map(_middle, took.values()))
    return [name for name, own in took.items() if name in unchanged or _is_close(own, bases, fastest)]


def _is_close(own: Sequence[int], bases: Sequence[Sequence[int]], fastest: float) -> bool:
    """Say whether a variant may be the fastest, or as fast as the unchanged step, and is not known well yet."""
    held = ratio(own, _joined(*bases), on_gpu=False)
    decided = held["high"] < 1 - _SLOWER or held["low"] > 1 + _SLOWER
    if decided and _middle(own) > _FAR * fastest:
        return False
    return held["high"] - held["low"] > 2 * _KNOWN * held["ratio"]


def compared(
    base: Sequence[int], mine: Sequence[int], again: Sequence[int] = (), *, on_device: float | None = None
) -> Timed:
    """Say whether a variant's blocks are shorter than the unchanged step's.

    again: those of another process with the unchanged step, which counts as much: two processes that do the same may
    differ, as much as that is no difference. on_device: how much longer the GPU takes where no launch waits for the
    host, which differs far less from process to process: what takes longer there and in the step is slower.
    """
    measured = ratio(mine, _joined(base, again), on_gpu=False)  # others may be timed there
    apart = max(_middle(again) / _middle(base), _middle(base) / _middle(again)) if again else 1.0
    said = "no difference"
    if measured["high"] * apart**2 < 1 - _FASTER:  # a third may lie as far from either
        said = "faster"
    elif measured["low"] > 1 + (0 if (on_device or 0) > 1 + _SLOWER else max(_SLOWER, (apart - 1) / 2)):
        said = "slower"
    return Timed(
        said=said,
        base_ns=round(_middle(_joined(base, again))),
        own_ns=round(_middle(mine)),
        apart=round(apart, 4),
        **measured,
    )


def _joined(base: Sequence[int], again: Sequence[int] = ()) -> list[int]:
    """Return the mean of two processes' blocks, round by round."""
    return [(one + other) // 2 for one, other in zip(base, again, strict=False)] if again else [*base]


def _middle(values: Sequence[int]) -> float:
    return max(statistics.median(values), 1.0)
