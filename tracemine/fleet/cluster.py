"""Tasks on a Ray cluster: Ray hands them out and does again what a lost node had; each node scans as this machine does.

A Ray worker keeps one machine, a process with limits: what a trace does to it ends that process, not the worker, and
comes to the same row as here. Nodes need tracemine, and the same way to the traces and the data set.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tracemine.fleet.machine import Limits, Machine
from tracemine.fleet.task import Task, TaskOutcome
from tracemine.ray_cluster import LOST, joined, loaded_ray

_AT_ONCE = 2  # tasks a core that Ray has at a time: one runs, one waits
_FEWEST_AT_ONCE = 8
_ASK_EVERY_S = 1.0  # how many cores there are: a request to the head
_machine: Machine | None = None  # of this Ray worker


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
