"""Processes with a step in them: the unchanged one twice, and variants that are held against it."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tracemine.apply.compare import Computed, computed_in, course_faults, errors, faults, loss_error
from tracemine.apply.edits import edited
from tracemine.apply.questions import CHILD, LOOK, QUEUED, RANKS, Checked, TrialJob
from tracemine.apply.timing import interleaved, steps_a_block
from tracemine.apply.variants import VARIANTS, diffs_of
from tracemine.errors import UsageError
from tracemine.processes import Ended, Process, TooLate, worker

LIMIT_S = 600.0  # of building and checking a variant
TOO_LATE, NO_TIME = "did not answer in", "no time was left"
# By what is said of an unchanged step that does not run.
_WAYS_OUT = {
    NO_TIME: "a larger --budget; the unchanged step comes first",
    "ModuleNotFoundError": "--source DIR is the folder that MODULE is imported from; other packages are of this Python",
    "has no function": "--entry MODULE:FUNCTION, a function that returns the step",
    "arguments are required": 'MODULE is imported without a command line: read that in `if __name__ == "__main__"`',
}
_BLOCK_LIMIT_S = 120.0
_MOST_AT_ONCE = 8
_CONTEXT_BYTES, _MEMORY_TIMES = 1 << 30, 1.3  # what a process takes besides tensors, and of tensors while it compiles

Names = tuple[str, ...]


class Wrong(Exception):
    """A variant does not do what the unchanged step does: what is said of it, and why."""

    def __init__(self, said: str, why: str) -> None:
        super().__init__(said, why)
        self.said, self.why = said, why


@dataclass(slots=True)
class Child:
    """A process with a step in it, and what it computed."""

    process: Process
    said: Checked
    file: Path
    closing: ExitStack
    steps: int = 0
    coarser: float = 0.0
    device_ns: int | None = None  # 0: not known

    def timed(self) -> int:
        """Time a block. Raises Wrong."""
        return msgspec.json.decode(_asked(self.process, str(self.steps).encode(), _BLOCK_LIMIT_S), type=int)

    def rounding(self) -> float:
        """Return the coarsest rounding of a step. Raises Wrong."""
        return msgspec.json.decode(_asked(self.process, LOOK, _BLOCK_LIMIT_S), type=float)

    def queue(self) -> None:
        """Learn what a step takes of the device when no launch waits for the host."""
        if self.device_ns is None:
            self.device_ns = 0
            with suppress(Wrong):
                self.device_ns = msgspec.json.decode(_asked(self.process, QUEUED, _BLOCK_LIMIT_S), type=int)

    def close(self) -> None:
        """End the process."""
        self.closing.close()


def close_all(children: Sequence[Child]) -> None:
    """End processes, which takes a while each."""
    if children:
        with ThreadPoolExecutor(len(children)) as pool:
            list(pool.map(Child.close, children))


@contextmanager
def resting(pids: Iterable[int]) -> Iterator[None]:
    """Let processes rest meanwhile, each with those that it started."""
    stopped = [*pids]
    try:
        _tell(stopped, "SIGSTOP")
        yield
    finally:
        _tell(stopped, "SIGCONT")


def _tell(pids: Sequence[int], name: str) -> None:
    """Send a signal to processes and those that they started, where the system says which these are."""
    above = dict[int, int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            above[int(stat.parent.name)] = int(stat.read_text("utf-8").rpartition(")")[2].split()[1])
    family = [*pids]
    for pid in family:
        family += [child for child, parent in above.items() if parent == pid]
        with suppress(OSError, AttributeError):  # it has ended; or the system has no such signals
            os.kill(pid, getattr(signal, name))


def _closed(closing: ExitStack, wrong: Wrong) -> Wrong:
    closing.close()
    return wrong


def _asked(process: Process, line: bytes, limit_s: float) -> bytes:
    """Ask a process. Raises Wrong where it ends, or does not answer."""
    try:
        return process.ask(line, limit_s)
    except Ended as ended:
        raise Wrong("failed", ended.how) from ended
    except TooLate as late:
        raise Wrong("failed", f"{TOO_LATE} {limit_s:.0f} s") from late


class Trials:
    """The unchanged step, twice, and what a rounding comes to in it; variants are built side by side, and raced.

    until: when to give up what is still being built. turn: entered while blocks are timed, for whoever lets other
    processes rest meanwhile.
    """

    def __init__(
        self,
        job: TrialJob,
        scratch: Path,
        limit_s: float = LIMIT_S,
        until: float = math.inf,
        turn: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.job, self.scratch, self.limit_s, self.until, self.turn = job, scratch, limit_s, until, turn
        self.base: Child
        self.rounding = 0.0
        self.again: Future[Child]
        self.at_once = 1
        self._pool: ThreadPoolExecutor
        self._coming: dict[Names, Future[Child | Wrong]] = {}
        self._noise: dict[float, Future[tuple[Computed, Checked]]] = {}
        self._building = set[int]()
        self._numbers: Iterator[int] = count()
        self._closing: ExitStack
        self._lock = threading.Lock()

    def begin(self, stack: ExitStack) -> None:
        """Run the unchanged step, and begin to run it once more. Raises UsageError where it does not run."""
        self._closing, self._pool = stack, ThreadPoolExecutor(_MOST_AT_ONCE + 3)
        stack.callback(self._pool.shutdown, cancel_futures=True)
        try:
            rounding = self._pool.submit(self._looked)
            self.base = self._child(replace(self.job, first=True))
            self.job = replace(self.job, curve=self.base.said.curve)
            self.again = self._pool.submit(self._child, self.job)
            self.rounding = rounding.result()
        except Wrong as wrong:
            hint = next((way for begin, way in _WAYS_OUT.items() if begin in wrong.why), None)
            raise UsageError(f"{self.job.entry} does not run: {wrong.why}", hint=hint) from wrong
        self.at_once = side_by_side(self.base.said, self.job.ranks)

    def _looked(self) -> float:
        child = self._child(self.job)
        found = child.rounding()
        child.close()
        return found

    def begun(self, names: Names) -> Future[Child | Wrong]:
        """Begin to build a variant: what computes as the unchanged step does stays alive."""
        with self._lock:
            if names not in self._coming:
                rounding = self._rounding(names)
                if rounding not in self._noise:
                    self._noise[rounding] = self._pool.submit(self._nudged, rounding)  # before whoever waits for it
                self._coming[names] = self._pool.submit(self._right, names)
            return self._coming[names]

    def built(self, sets: Sequence[Names]) -> dict[Names, Child | Wrong]:
        """Build variants side by side, and wait for all."""
        coming = {names: self.begun(names) for names in sets}
        return {names: self._coming.pop(names).result() for names in coming}

    def raced(self, children: Mapping[Names, Child]) -> dict[Names, list[int] | Wrong]:
        """Time blocks of children in turns with the unchanged step's two processes, whose names are () and ("",)."""
        self.base.steps = steps_a_block(self.base.said.step_ns)
        alive = {(): self.base, ("",): self.again.result(), **children}
        for child in alive.values():
            child.steps = self.base.steps
        with self.turn(), resting(self._building):
            timers = {names: child.timed for names, child in alive.items()}
            took = interleaved(timers, Wrong, unchanged=((), ("",)))
            for names in took if self.job.ranks == 1 else ():  # ranks wait for each other there
                if isinstance(took[names], list):
                    alive[names].queue()
        return took

    def course(self, names: Names, seed: int) -> list[str]:
        """Return what is wrong with how variants go on from another seed. Raises Wrong."""
        job = replace(self.job, seed=seed, start=f"{self.job.start}.{seed}")
        with edited(Path(job.folder), diffs_of(names)) as (folder, _):
            own = replace(job, variants=tuple(name for name in names if name in VARIANTS), folder=str(folder))
            jobs = replace(job, first=True), replace(job, nudge=self._rounding(names)), own
            children = list(self._pool.map(self._child, jobs))
        close_all(children)
        base, nudged, mine = (child.said for child in children)
        return [f"from another seed {fault}" for fault in course_faults(base, mine, [nudged])]

    def errors(self, names: Names, child: Child) -> dict[str, float]:
        """Return how far a variant's results lie from the unchanged step's, where it asks for coarser arithmetic."""
        coarser = max(self._rounding(names), child.coarser) > self.rounding
        if not coarser:
            return {}
        return errors(computed_in(self.base.file), computed_in(child.file)) | loss_error(self.base.said, child.said)

    def _rounding(self, names: Names) -> float:
        own = [VARIANTS[name].rounding for name in names if name in VARIANTS]
        return max([self.rounding, *own])

    def _right(self, names: Names) -> Child | Wrong:
        """Return a process with variants applied that computes what the unchanged step does, else what is wrong."""
        settings = tuple(name for name in names if name in VARIANTS)
        closing = ExitStack()
        try:
            folder, refused = closing.enter_context(edited(Path(self.job.folder), diffs_of(names)))
            if refused:
                return _closed(closing, Wrong("failed", refused))
            child = self._child(replace(self.job, variants=settings, folder=str(folder)), closing)
            wrong = self._faults(child, self._rounding(names))
            if wrong and not settings and (coarser := child.rounding()) > self.rounding:
                # A library's call may compute in TF32 where the loop did not.
                child.coarser, wrong = coarser, self._faults(child, self.rounding, coarser)
        except Wrong as error:
            return _closed(closing, error)
        return _closed(closing, Wrong("wrong", "; ".join(wrong))) if wrong else child

    def _faults(self, child: Child, rounding: float, coarser: float = 0.0) -> list[str]:
        nudged, went = self._noise[rounding].result()
        again = self.again.result()
        base, mine, runs = computed_in(self.base.file), computed_in(child.file), [computed_in(again.file), nudged]
        found = faults(base, mine, runs, max(rounding, coarser))
        return found or course_faults(self.base.said, child.said, [again.said, went])

    def _nudged(self, rounding: float) -> tuple[Computed, Checked]:
        """Run the unchanged step from where each number is one rounding off."""
        child = self._child(replace(self.job, nudge=rounding))
        child.close()
        return computed_in(child.file), child.said

    def _child(self, job: TrialJob, closing: ExitStack | None = None) -> Child:
        """Begin a process, and wait for what it says of its step. Raises Wrong."""
        closing = closing or ExitStack()
        with self._lock:
            file = self.scratch / f"{next(self._numbers)}.pt"
            self._closing.callback(closing.close)
        threads = max(_cores() // 3, 1) if any(VARIANTS[name].long for name in job.variants) else 1
        process = closing.enter_context(Process(worker(RANKS if job.ranks > 1 else CHILD), self._environment(threads)))
        pid = process.start()
        closing.callback(_tell, [pid], "SIGKILL")  # before it is closed: what it started would go on
        self._building.add(pid)
        left_s = max(self.until - time.monotonic(), 0.0)
        try:
            line = _asked(process, msgspec.json.encode(replace(job, out=str(file))), min(self.limit_s, left_s))
        except Wrong:
            closing.close()
            if time.monotonic() >= self.until:
                raise Wrong("not tried", NO_TIME) from None
            raise
        finally:
            self._building.discard(pid)
        said = msgspec.json.decode(line, type=Checked)
        if said.error:
            closing.close()
            raise Wrong("failed", said.error)
        return Child(process, said, file, closing)

    def _environment(self, threads: int) -> dict[str, str]:
        """Return what children begin with: variants share what torch.compile made of what they have in common."""
        shared = {"CACHE_DIR": str(self.scratch / "compiled"), "COMPILE_THREADS": str(threads)}
        return {**{f"TORCHINDUCTOR_{name}": value for name, value in shared.items()}, **os.environ}


def side_by_side(base: Checked, ranks: int = 1) -> int:
    """Return how many variants may be built and held at once: what cores and the GPU's memory allow."""
    cores = max(_cores() // 2 // ranks, 1)
    if not base.free_bytes:
        return min(cores, 2)
    fit = base.free_bytes / (_CONTEXT_BYTES + _MEMORY_TIMES * base.peak_bytes) - 2  # the unchanged step, and a nudged
    return max(min(int(fit), cores, _MOST_AT_ONCE), 1)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
