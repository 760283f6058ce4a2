"""Time steps one by one: on the device where there is one, for the host runs ahead of it; else on the host."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

_MILLISECOND_NS = 1_000_000
_FEWEST_OF_SPREAD = 5  # steps of which a tenth and nine tenths say something


# Length of a step, nanoseconds: the middle one, and what a tenth and nine tenths do not exceed; None: too few.
StepTimes = tuple[int, int | None, int | None]


def alone_fields(times: StepTimes | None) -> dict[str, Any]:
    """Return the fields of a `Capture` that say how long a step takes alone."""
    names = ("alone_step_ns", "alone_step_p10_ns", "alone_step_p90_ns")
    return dict(zip(names, times or (None, None, None), strict=True))


def step_times(steps_ns: Sequence[int]) -> StepTimes | None:
    """Return what so long steps say of one; None of none.

    >>> step_times([100, 100, 500, 100, 100, 110]), step_times([7]), step_times([])
    ((100, 100, 305), (7, None, None), None)
    """
    if not steps_ns:
        return None
    p50 = int(statistics.median(steps_ns))
    if len(steps_ns) < _FEWEST_OF_SPREAD:
        return p50, None, None
    tenths = statistics.quantiles(steps_ns, n=10, method="inclusive")
    return p50, int(tenths[0]), int(tenths[-1])


class Clock:
    """Moments at which steps end, and how long each took: from its start on a drained device."""

    def __init__(self, torch: Any, *, on_device: bool) -> None:
        self._torch = torch
        self._on_device = on_device
        self._moments: list[Any] = []

    def restart(self) -> None:
        """Begin with the step that follows, on a device that has nothing to do."""
        if self._on_device:
            self._torch.cuda.synchronize()
        self._moments = []
        self.lap()

    def lap(self) -> None:
        """Say that a step ended. The host does not wait for the device here."""
        if not self._on_device:
            self._moments.append(time.perf_counter_ns())
            return
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        self._moments.append(event)

    def steps_ns(self) -> list[int]:
        """Return how long each step took; the device is done with all of them."""
        pairs = zip(self._moments, self._moments[1:], strict=False)
        if not self._on_device:
            return [end - begin for begin, end in pairs]
        return [int(begin.elapsed_time(end) * _MILLISECOND_NS) for begin, end in pairs]
