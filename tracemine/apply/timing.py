"""Is a variant faster? Blocks of steps of several processes in turns, and an interval of their ratio."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from tracemine.apply.record import Timed
from tracemine.verify.gpu.timing import ratio

BLOCKS, LEAST_STEPS = 30, 5
_BLOCK_NS = 25_000_000
_FASTER, _SLOWER = 0.005, 0.01  # of the unchanged step: less is no difference


def steps_a_block(step_ns: int) -> int:
    """Return how many steps are timed at once.

    >>> steps_a_block(1_000_000), steps_a_block(100_000_000)
    (25, 5)
    """
    return max(_BLOCK_NS // max(step_ns, 1), LEAST_STEPS)


def interleaved(timers: Mapping[str, Callable[[], int]]) -> dict[str, list[int]]:
    """Time a block of each in turns, every second round backwards; the first round counts for nothing."""
    took: dict[str, list[int]] = {name: [] for name in timers}
    for number in range(BLOCKS + 1):
        for name in timers if number % 2 else reversed([*timers]):
            took[name].append(timers[name]())
    return {name: values[1:] for name, values in took.items()}


def compared(base: Sequence[int], mine: Sequence[int], again: Sequence[int] = ()) -> Timed:
    """Say whether a variant's blocks are shorter than the unchanged step's.

    again: those of another process with the unchanged step: by how much two processes differ that do the same is no
    difference either.
    """
    measured = ratio(mine, base)
    apart = 2 * abs(ratio(again, base)["ratio"] - 1) if again else 0.0
    said = "no difference"
    if measured["high"] < 1 - max(_FASTER, apart):
        said = "faster"
    elif measured["low"] > 1 + max(_SLOWER, apart):
        said = "slower"
    middles = [round(statistics.median(values)) for values in (base, mine)]
    return Timed(said=said, base_ns=middles[0], own_ns=middles[1], **measured)
