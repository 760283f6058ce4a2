"""Proofs that may hang, crash or eat memory: a process of its own, watched, and started again where it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from tracemine.verify.chain import Chain, Unsupported
from tracemine.verify.kernels.lower import lower
from tracemine.verify.kernels.source import generate
from tracemine.verify.process import Ended, Process, TooLate
from tracemine.verify.proof.check import MOST_ELEMENTS, make_job
from tracemine.verify.proof.record import Proof
from tracemine.verify.proof.resize import at_sizes, free_axes

WORKER = (sys.executable, "-m", "tracemine.verify.proof.worker")
TIME_LIMIT_S = 60.0  # of a processor
_PATIENCE = 5  # times as long by the clock: other programs may be running, and a hang need not use a processor
MEMORY_LIMIT_BYTES = 12 << 30  # of addresses: torch alone takes some
_SIZES = (5, 3, 7, 2, 4, 6)  # for axes that are made smaller: told apart, and no multiple of a block
_SHORTEST = 2  # where other axes are long, and part of the kernel; of 1 exchanged strides would not show


class Sandbox:
    """Proves chains one by one; use it in a `with`. What goes wrong with one chain is said, and the next goes on."""

    def __init__(
        self,
        time_limit_s: float = TIME_LIMIT_S,
        memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
        command: Sequence[str] = WORKER,
    ) -> None:
        self._time_limit_s, self._memory_limit_bytes = time_limit_s, memory_limit_bytes
        environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
        self._process = Process(command, environment, self._limit_memory)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def kill(self) -> None:
        """What it proves ends at once, for whoever waits for it too."""
        self._process.kill()

    def close(self) -> None:
        """The process ends."""
        self._process.close()

    def prove(self, chain: Chain, mutants: bool = True, recorded: Chain | None = None) -> Proof | str:
        """The proof of a chain, or why there is none. Raises Unsupported where no kernel can be generated.

        recorded: the chain at its recorded sizes, where the other is the same at smaller ones: what is tried is its
        source.
        """
        if recorded == chain:
            recorded = None
        return self.answer(msgspec.json.encode(make_job(chain, mutants, recorded=recorded)))

    def answer(self, job: bytes) -> Proof | str:
        """What the process answers to a job, a line without its end; or why it answers nothing."""
        self._limit_time(self._process.start())
        try:
            line = self._process.ask(job, _PATIENCE * self._time_limit_s)
            return msgspec.json.decode(line, type=Proof)
        except TooLate:
            return self._too_long()
        except Ended as end:
            if any("MemoryError" in text or "not enough memory" in text or "bad_alloc" in text for text in end.said):
                return f"the proof needs more than {self._memory_limit_bytes >> 30} GiB of memory"
            return self._too_long() if end.code == -signal.SIGXCPU else f"the process that proves kernels {end.how}"
        except msgspec.DecodeError:
            self._process.end()
            return "the process that proves kernels answered with something else than a proof"

    def _too_long(self) -> str:
        return f"the proof took longer than {self._time_limit_s:g} s"

    def _limit_memory(self, pid: int) -> None:
        with contextlib.suppress(ImportError, AttributeError, OSError, ValueError):  # not on every system
            import resource

            resource.prlimit(pid, resource.RLIMIT_AS, (self._memory_limit_bytes, self._memory_limit_bytes))

    def _limit_time(self, pid: int) -> None:
        with contextlib.suppress(ImportError, AttributeError, OSError, ValueError):
            import resource

            ticks = sum(map(int, Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[11:13]))
            limit = int(ticks / os.sysconf("SC_CLK_TCK") + self._time_limit_s + 1)
            resource.prlimit(pid, resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def smaller(chain: Chain) -> Chain:
    """The chain at sizes that an interpreter gets through, and that its source takes.

    Axes whose size the kernels take as an argument are made small, all at once or, where calls do not allow that, one
    by one, the largest first. Raises Unsupported where no kernel can be generated.
    """
    generate(chain)
    if elements(chain) <= MOST_ELEMENTS:
        return chain
    axes = _largest_first(chain)
    whole = at_sizes(chain, {axis: min(size, _SIZES[k % len(_SIZES)]) for k, (axis, size) in enumerate(axes)})
    if whole is not None and elements(whole) <= MOST_ELEMENTS:
        return whole
    current = whole or chain
    for size in _SIZES * 4 if whole is None else [_SHORTEST] * len(axes):
        if elements(current) <= MOST_ELEMENTS:
            break
        tried = (at_sizes(current, {axis: size}) for axis, here in _largest_first(current) if here > size)
        found = next((one for one in tried if one is not None), None)
        if found is None:
            break
        current = found
    return current


def _largest_first(chain: Chain) -> list[tuple[int, int]]:
    return sorted(free_axes(lower(chain)).items(), key=lambda item: -item[1])


def elements(chain: Chain) -> int:
    """Elements of the chain's largest tensor."""
    return max((spec.elements for spec in chain.specs), default=0)


__all__ = ["MOST_ELEMENTS", "Sandbox", "Unsupported", "elements", "smaller"]
