"""Validate on the CPU side by side, each in a process of its own, while something else goes on."""

from __future__ import annotations

import os
from typing import NamedTuple

from tracemine.pool import Pool
from tracemine.validate.sandbox import Sandbox
from tracemine.verify.library.validation_job import WORKER as LIBRARY_WORKER

MOST_AT_ONCE = 4  # each takes gigabytes of addresses
_CORES_EACH = 4  # where a GPU is: compilers and what is timed want cores too


class Machines(NamedTuple):
    """Processes that validate."""

    kernels: Sandbox
    calls: Sandbox

    def kill(self) -> None:
        """End what they do at once, for whatever waits for it too."""
        for each in self:
            each.kill()

    def close(self) -> None:
        """End the processes."""
        for each in self:
            each.close()


def at_once(alone: bool) -> int:
    """Return how many graphs this machine validates at a time. alone: whether it does nothing else meanwhile.

    >>> 1 <= at_once(alone=False) <= at_once(alone=True) <= MOST_AT_ONCE
    True
    """
    return max(1, min(MOST_AT_ONCE, (os.cpu_count() or 1) // (1 if alone else _CORES_EACH)))


class Validators(Pool[Machines]):
    """Some machines that validate."""

    def __init__(self, time_limit_s: float, count: int) -> None:
        """count: how many validate at a time."""
        super().__init__(
            [
                Machines(Sandbox(time_limit_s=time_limit_s), Sandbox(time_limit_s=time_limit_s, command=LIBRARY_WORKER))
                for _ in range(count)
            ]
        )
