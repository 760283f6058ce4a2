"""Proofs on the CPU side by side, each in a process of its own, while something else goes on."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from types import TracebackType
from typing import NamedTuple, TypeVar

from tracemine.verify.library.prove import WORKER as LIBRARY_WORKER
from tracemine.verify.proof.sandbox import Sandbox

_T = TypeVar("_T")
MOST_AT_ONCE = 4  # each takes gigabytes of addresses
_CORES_EACH = 4  # where a GPU is: compilers and what is timed want cores too


class Machines(NamedTuple):
    """Processes that prove."""

    kernels: Sandbox
    calls: Sandbox


def at_once(alone: bool) -> int:
    """How many proofs this machine makes at a time. alone: whether it does nothing else meanwhile.

    >>> 1 <= at_once(alone=False) <= at_once(alone=True) <= MOST_AT_ONCE
    True
    """
    return max(1, min(MOST_AT_ONCE, (os.cpu_count() or 1) // (1 if alone else _CORES_EACH)))


class Provers:
    """Some machines, and what waits for one. Use it in a `with`."""

    def __init__(self, time_limit_s: float, count: int) -> None:
        """count: how many prove at a time."""
        self._all = [
            Machines(Sandbox(time_limit_s=time_limit_s), Sandbox(time_limit_s=time_limit_s, command=LIBRARY_WORKER))
            for _ in range(count)
        ]
        self._free: SimpleQueue[Machines] = SimpleQueue()
        for each in self._all:
            self._free.put(each)
        self._pool = ThreadPoolExecutor(len(self._all))

    @property
    def count(self) -> int:
        """How many prove at a time."""
        return len(self._all)

    def __enter__(self) -> Provers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for sandbox in (each for machines in self._all for each in machines):  # nobody waits for what they prove
            sandbox.kill()
        self._pool.shutdown()
        for sandbox in (each for machines in self._all for each in machines):
            sandbox.close()

    def start(self, work: Callable[[Machines], _T]) -> Future[_T]:
        """Have some machines do it, as soon as they are free."""

        def done() -> _T:
            machines = self._free.get()
            try:
                return work(machines)
            finally:
                self._free.put(machines)

        return self._pool.submit(done)
