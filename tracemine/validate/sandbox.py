"""Validate what may hang, crash or eat memory: in a process of its own, watched, and started again where it ended."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tracemine.codegen.graph import Graph
from tracemine.processes import Closing, Ended, Process, TooLate, does_not_start, limit_memory
from tracemine.validate.jobs import WORKER, environment, make_job
from tracemine.validate.record import TIME_LIMIT_S, Validation

_PATIENCE = 5  # times as long by the clock: other programs may be running, and a hang need not use a processor
WORKS = "the process that validates kernels"
MEMORY_LIMIT_BYTES = 12 << 30  # of addresses: torch alone takes some


class Sandbox(Closing):
    """Validate graphs one by one; use it in a `with`. What goes wrong with one graph is said, and the next goes on."""

    def __init__(
        self,
        time_limit_s: float = TIME_LIMIT_S,
        memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
        command: Sequence[str] = WORKER,
    ) -> None:
        self._time_limit_s, self._memory_limit_bytes = time_limit_s, memory_limit_bytes
        self._process = Process(command, environment(), lambda pid: limit_memory(pid, memory_limit_bytes))

    def kill(self) -> None:
        """End what it does at once, for whatever waits for it too."""
        self._process.kill()

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def validate(self, graph: Graph, mutants: bool = True, recorded: Graph | None = None) -> Validation | str:
        """Validate a graph's kernels, or say why not. Raises Unsupported where no kernel can be generated.

        recorded: the graph at its recorded sizes, where the other is the same at smaller ones: what is tried is its
        source.
        """
        if recorded == graph:
            recorded = None
        return self.answer(msgspec.json.encode(make_job(graph, mutants, recorded=recorded)))

    def answer(self, job: bytes) -> Validation | str:
        """Ask the process to do a job, a line without its end; return its answer, or why there is none.

        Raises UsageError where no such process can start.
        """
        try:
            self._limit_time(self._process.start())
            line = self._process.ask(job, _PATIENCE * self._time_limit_s)
            return msgspec.json.decode(line, type=Validation)
        except TooLate:
            return self._too_long()
        except Ended as end:
            if any("MemoryError" in text or "not enough memory" in text or "bad_alloc" in text for text in end.said):
                return f"validating needs more than {self._memory_limit_bytes >> 30} GiB of memory"
            if end.unstarted:
                raise does_not_start(WORKS, end.said) from None
            return self._too_long() if end.code == -signal.SIGXCPU else f"{WORKS} {end.how}"
        except msgspec.DecodeError:
            self._process.end()
            return f"{WORKS} answered with something else than a validation"

    def _too_long(self) -> str:
        return f"validating took longer than {self._time_limit_s:g} s"

    def _limit_time(self, pid: int) -> None:
        with contextlib.suppress(ImportError, AttributeError, OSError, ValueError):
            import resource

            ticks = sum(map(int, Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[11:13]))
            limit = int(ticks / os.sysconf("SC_CLK_TCK") + self._time_limit_s + 1)
            resource.prlimit(pid, resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
