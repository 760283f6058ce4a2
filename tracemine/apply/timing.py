"""Is a variant faster? Blocks of steps of several processes in turns, and an interval of their ratio."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from tracemine.apply.record import Timed
from tracemine.verify.gpu.timing import ratio

BLOCKS, LEAST_STEPS = 30, 2
_LEAST_BLOCKS, _RACE_S = 15, 15.0  # so many whatever they take; and no more after so long
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
    timers: Mapping[Name, Callable[[], int]], failed: type[Failed], blocks: int = BLOCKS
) -> dict[Name, list[int] | Failed]:
    """Time a block of each in turns, every second round backwards; the first round counts for nothing.

    What fails once is left out from then on, and its error returned.
    """
    took: dict[Name, list[int]] = {name: [] for name in timers}
    wrong: dict[Name, Failed] = {}
    until = time.monotonic() + _RACE_S
    for number in range(blocks + 1):
        if number > _LEAST_BLOCKS and time.monotonic() > until:
            break
        for name in timers if number % 2 else reversed([*timers]):
            if name not in wrong:
                try:
                    took[name].append(timers[name]())
                except failed as error:
                    wrong[name] = error
    return {name: wrong.get(name, values[1:]) for name, values in took.items()}


def compared(base: Sequence[int], mine: Sequence[int], again: Sequence[int] = ()) -> Timed:
    """Say whether a variant's blocks are shorter than the unchanged step's.

    again: those of another process with the unchanged step: by how much two processes differ that do the same is no
    difference either.
    """
    measured = ratio(mine, base, on_gpu=False)  # others may be timed there
    apart = 2 * abs(_middle(again) / _middle(base) - 1) if again else 0.0
    said = "no difference"
    if measured["high"] < 1 - max(_FASTER, apart):
        said = "faster"
    elif measured["low"] > 1 + max(_SLOWER, apart / 2):  # what may be slower is not kept
        said = "slower"
    return Timed(said=said, base_ns=round(_middle(base)), own_ns=round(_middle(mine)), **measured)


def _middle(values: Sequence[int]) -> float:
    return max(statistics.median(values), 1.0)
