"""Validate what may hang, crash or eat memory: in a process of its own, watched, and started again where it ended."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from tracemine.codegen.graph import Graph
from tracemine.codegen.options import LONGEST_ROW, CodegenOptions
from tracemine.codegen.triton.source import SourceText, generate
from tracemine.processes import Closing, Ended, Process, TooLate, does_not_start, limit_memory, worker
from tracemine.validate.downsize import MOST_ELEMENTS, elements
from tracemine.validate.mutants import mutants_of
from tracemine.validate.record import TIME_LIMIT_S, Validation, ValidationJob

_BLOCKS = 4  # of a larger graph's largest tensor: as many show a kernel that depends on a program's number

WORKER = worker("tracemine.validate.worker")


def environment() -> dict[str, str]:
    """Return what a process that interprets kernels is started with."""
    return {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}


def make_job(
    graph: Graph, mutants: bool = True, longest_row: int = LONGEST_ROW, recorded: Graph | None = None
) -> ValidationJob:
    """Generate the sources that are validated together. Raises Unsupported where no kernel can be generated.

    recorded: the graph at other sizes, for which the sources are generated that are tried at the graph's own.
    """
    largest = elements(graph)
    options = CodegenOptions(
        export_masks=True,
        every_product=True,
        small_tiles=True,
        longest_row=longest_row,
        short_steps=recorded is not None or longest_row < LONGEST_ROW,
        least_block=max(MOST_ELEMENTS, 1 << (largest // _BLOCKS).bit_length()) if largest > MOST_ELEMENTS else 0,
    )
    source, rounded = (generate(recorded or graph, replace(options, rounds=rounds)) for rounds in (False, True))
    return ValidationJob(
        graph=msgspec.msgpack.encode(graph),
        source=source.text,
        rounded=rounded.text,
        masks=source.masks,
        kernels=source.kernels,
        mutants=_wrong(graph, source, rounded) if mutants else (),
    )


def _wrong(
    graph: Graph, source: SourceText, rounded: SourceText
) -> tuple[tuple[str, str, str, str | None, str | None], ...]:
    """Return mutants, each with the same mistake in the build that rounds: a generator would make it in both."""
    of_rounded = mutants_of(graph, rounded.text)
    twins = {(w.name, w.line): w.source for w in of_rounded}
    found = [w for w in mutants_of(graph, source.text, rounded.text) if w.needs != "rounding"]
    both = [(w.name, w.line, w.source, w.needs, twins.get((w.name, w.line))) for w in found]
    return (*both, *((w.name, w.line, w.source, w.needs, None) for w in of_rounded if w.needs == "rounding"))


def refused(graph: Graph, reason: str) -> Validation:
    """Return the verdict on a graph that no kernel can be generated for."""
    nothing: dict[str, Any] = {
        **dict.fromkeys(("kernels", "skipped", "faults", "mutants"), ()),
        **dict.fromkeys(("trials", "bytes_read", "bytes_written"), 0),
        **dict.fromkeys(("error", "eager_error", "equal_share", "seconds"), 0.0),
    }
    return Validation(chain=graph.name, exact=False, refused=reason, **nothing)


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
