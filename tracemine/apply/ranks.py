"""A step of several ranks: a process each, begun as torchrun does; asked together, they answer as one."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tracemine.apply.questions import CHILD, CURVE, Checked, TrialJob, of_rank
from tracemine.processes import Ended, Process, serve, worker

_LIMIT_S = 86_400.0  # whoever asks all has a shorter one
_PORTS = 15_000, 32_000
_OTHERS_S = 1.0  # one that crashes lets others fail: so long they may say so


class RankFailed(Exception):
    """A rank ended, or cannot do its step: which, and why."""


class Ranks:
    """The processes of a step."""

    def __init__(self, count: int, stack: ExitStack) -> None:
        shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1"}
        shared |= {"MASTER_PORT": str(_free_port()), "GROUP_RANK": "0"}
        threads = {"OMP_NUM_THREADS": "1"} | dict(os.environ)  # as torchrun has it
        own = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
        self._processes = [stack.enter_context(Process(worker(CHILD), threads | shared | each)) for each in own]
        self._pool = stack.enter_context(ThreadPoolExecutor(count))

    def begin(self, job: TrialJob) -> Checked:
        """Build the step in each rank and run it; each has files of its own. What they say as one."""
        job = replace(job, curve=job.curve or CURVE)  # the same in each: they wait for each other
        jobs = [
            replace(job, start=str(of_rank(Path(job.start), rank)), out=str(of_rank(Path(job.out), rank)))
            for rank in range(len(self._processes))
        ]
        try:
            return together(self._asked([msgspec.json.encode(each) for each in jobs], _checked))
        except RankFailed as failed:
            return Checked(error=str(failed))

    def ask(self, line: bytes) -> Any:
        """Ask each rank the same: the largest number that one answers. Raises RankFailed."""
        return max(self._asked([line] * len(self._processes), msgspec.json.decode))

    def _asked(self, lines: Sequence[bytes], read: Callable[[bytes], Any]) -> list[Any]:
        """Return what each answers. Raises RankFailed as soon as one does not: others may wait for it for ever."""

        def ask(process: Process, line: bytes) -> Any:
            return read(process.ask(line, _LIMIT_S))

        asked = [self._pool.submit(ask, *each) for each in zip(self._processes, lines, strict=True)]
        wait(asked, return_when=FIRST_EXCEPTION)
        if all(each.done() and not each.exception() for each in asked):
            return [each.result() for each in asked]
        wait(asked, timeout=_OTHERS_S)
        errors = {rank: each.exception() for rank, each in enumerate(asked) if each.done()}
        for process in self._processes:
            process.kill()
        raise RankFailed(_why({rank: error for rank, error in errors.items() if error is not None}))


def _checked(line: bytes) -> Checked:
    said = msgspec.json.decode(line, type=Checked)
    if said.error:
        raise RankFailed(said.error)
    return said


def _why(errors: Mapping[int, BaseException]) -> str:
    """Return what went wrong: what ended by itself let others fail."""
    rank, error = min(errors.items(), key=lambda pair: (not isinstance(pair[1], Ended), pair[0]))
    return f"rank {rank}: {error.how if isinstance(error, Ended) else error}"


def together(ranks: Sequence[Checked]) -> Checked:
    """Return what ranks say as one: the longest times, the most memory of one, and the mean of their losses.

    >>> together([Checked(step_ns=4, losses=(1.0, 2.0)), Checked(step_ns=5, losses=(3.0, None))]).losses
    (2.0, None)
    """
    losses = zip(*(said.losses for said in ranks), strict=False)
    return replace(
        ranks[0],
        first_s=max(said.first_s for said in ranks),
        step_ns=max(said.step_ns for said in ranks),
        free_bytes=min(said.free_bytes for said in ranks),
        peak_bytes=max(said.peak_bytes for said in ranks),
        grown_bytes=max(said.grown_bytes for said in ranks),
        losses=tuple(None if None in step else sum(step) / len(step) for step in losses),
    )


def _free_port() -> int:
    """Return a port below those that systems give by themselves: one of these may be taken before a rank listens."""
    while True:
        port = secrets.randbelow(_PORTS[1] - _PORTS[0]) + _PORTS[0]
        with socket.socket() as found, suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port


def main() -> None:
    """Answer until nothing more is asked."""
    begun: list[Ranks] = []

    with ExitStack() as stack:

        def answer(line: bytes) -> bytes:
            if begun:
                return msgspec.json.encode(begun[0].ask(line.strip()))
            job = msgspec.json.decode(line, type=TrialJob)
            begun.append(Ranks(job.ranks, stack))
            return msgspec.json.encode(begun[0].begin(job))

        serve(answer)


if __name__ == "__main__":
    main()
