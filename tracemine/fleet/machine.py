"""A process that does tasks one by one, within limits: what hangs, crashes or eats memory costs its own trace.

On a Ray cluster Ray hands out the tasks and does again what a lost node had. A Ray worker keeps one machine: what a
trace does to it ends that process, not the worker. Nodes need tracemine, and the same way to traces and data set."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from tracemine.fleet.task import FAILED, Task, TaskOutcome, packed, refused, unpacked
from tracemine.processes import Closing, Ended, Process, TooLate, error_text, limit_memory, worker
from tracemine.ray_cluster import LOST, joined, loaded_ray

_AT_ONCE = 2  # tasks a core that Ray has at a time: one runs, one waits
_FEWEST_AT_ONCE = 8
_ASK_EVERY_S = 1.0  # how many cores there are: a request to the head
_machine: Machine | None = None  # of this Ray worker

_COMMAND = worker("tracemine.fleet.worker")
# Threads of Arrow and of OpenBLAS reserve addresses, each as much as it likes, and one process a core is enough.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ARROW_IO_THREADS": "1"}
_OWN_BYTES = 2 << 30  # addresses of a process that has read nothing
_NO_MEMORY = ("MemoryError", "bad_alloc", "malloc of size")
_PAUSE_S = 0.5  # before another attempt, twice as long before each further one


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one trace may take."""

    seconds: float = 600.0
    memory_bytes: int = 8 << 30
    attempts: int = 3


class Machine(Closing):
    """One process, begun with the first task, and again after one that ended it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        most = _OWN_BYTES + limits.memory_bytes
        self._process = Process(_COMMAND, {**os.environ, **_ENVIRONMENT}, lambda pid: limit_memory(pid, most))

    def do(self, task: Task) -> TaskOutcome:
        """Do a task, again where another attempt may end otherwise. Raises OSError where no row can be written."""
        line = packed(task)
        for attempt in range(self._limits.attempts):
            time.sleep(_PAUSE_S * (2**attempt - 1))
            outcome = self._once(task.source.name, line)
            if not outcome.again:
                break
        if outcome.status == FAILED:
            return refused(task, FAILED, outcome.message or "")
        return outcome

    def _once(self, uri: str, line: bytes) -> TaskOutcome:
        """Return what one attempt came to; of FAILED no row is written yet."""
        failed = TaskOutcome(uri=uri, key="", status=FAILED)
        try:
            return unpacked(self._process.ask(line, self._limits.seconds), TaskOutcome)
        except TooLate:
            return replace(failed, message=f"took longer than {self._limits.seconds:g} s")
        except Ended as end:
            if any(mark in text for text in end.said for mark in _NO_MEMORY):
                return replace(
                    failed, message=f"needs more than {self._limits.memory_bytes / (1 << 30):g} GiB of memory"
                )
            says = error_text(end.said) if end.code > 0 and end.said else f"the process that scans it {end.how}"
            return replace(failed, message=says, again=True)
        except (ValueError, RecursionError, msgspec.ValidationError):
            self._process.end()
            return replace(failed, message="the process that scans it answered with something else", again=True)

    def kill(self) -> None:
        """End what it does at once."""
        self._process.kill()

    def close(self) -> None:
        """End the process."""
        self._process.close()


def on_ray(address: str) -> Callable[[Sequence[Task], Limits], Iterator[TaskOutcome]]:
    """Return an engine that runs on the cluster at an address (`auto`, `ray://head:10001`). Raises UsageError."""
    loaded_ray()

    def run(tasks: Sequence[Task], limits: Limits) -> Iterator[TaskOutcome]:
        with joined(address) as ray:
            yield from _as_they_end(ray, tasks, limits)

    return run


def _as_they_end(ray: Any, tasks: Sequence[Task], limits: Limits) -> Iterator[TaskOutcome]:
    remote = ray.remote(num_cpus=1, max_retries=LOST, scheduling_strategy="SPREAD")(_do)
    left, waiting = iter(tasks), []
    most, asked = _FEWEST_AT_ONCE, -math.inf
    while True:
        if time.monotonic() - asked >= _ASK_EVERY_S:  # the cluster may grow, and a node be lost
            most = max(_FEWEST_AT_ONCE, int(_AT_ONCE * ray.cluster_resources().get("CPU", 1)))
            asked = time.monotonic()
        for task in left:
            waiting.append(remote.remote(task, limits))
            if len(waiting) >= most:
                break
        if not waiting:
            return
        ended, waiting = ray.wait(waiting, num_returns=1)
        more, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=0) if waiting else ([], [])
        yield from ray.get([*ended, *more])


def _do(task: Task, limits: Limits) -> TaskOutcome:
    """Do a task on a node, in this worker's own process, which it keeps."""
    global _machine
    if _machine is None:
        _machine = Machine(limits)
    return _machine.do(task)
