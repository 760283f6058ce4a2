"""A pool of machines that do one thing at a time each, and threads that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

from tracemine.processes import Closing


class Machine(Protocol):
    """Something that works for one at a time."""

    def kill(self) -> None:
        """End what it does at once, for whatever waits for it too; nothing is begun after it."""

    def close(self) -> None:
        """End."""


_M = TypeVar("_M", bound=Machine)
_T = TypeVar("_T")


class Pool(Closing, Generic[_M]):
    """Some machines. Use it in a `with`: at its end what they still do is not waited for."""

    def __init__(self, machines: Sequence[_M]) -> None:
        self._all = tuple(machines)
        self._free: SimpleQueue[_M] = SimpleQueue()
        for each in self._all:
            self._free.put(each)
        self._threads = ThreadPoolExecutor(len(self._all))

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._all)

    def start(self, work: Callable[[_M], _T]) -> Future[_T]:
        """Have a machine do it, as soon as one is free."""

        def done() -> _T:
            machine = self._free.get()
            try:
                return work(machine)
            finally:
                self._free.put(machine)

        return self._threads.submit(done)

    def close(self) -> None:
        """End all at once."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for each in self._all:
            each.kill()
        self._threads.shutdown()
        for each in self._all:
            each.close()
