"""Try variants of a step one by one, then the best of them together; each in a process of its own."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tracemine.apply.child import Checked, TrialJob
from tracemine.apply.compare import Computed, computed_in, course_faults, faults
from tracemine.apply.edits import edited
from tracemine.apply.record import Applied, Timed, Tried
from tracemine.apply.timing import compared, interleaved, steps_a_block
from tracemine.apply.variants import EDIT, VARIANTS, Wanted, excluded
from tracemine.errors import UsageError
from tracemine.processes import Ended, Process, TooLate, worker

LIMIT_S = 600.0  # of building and checking a variant
_BLOCK_LIMIT_S = 120.0

Trial = Callable[[tuple[str, ...]], Tried]


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
    steps: int = 0

    def timed(self) -> int:
        """Time a block. Raises Wrong."""
        return msgspec.json.decode(_asked(self.process, str(self.steps).encode(), _BLOCK_LIMIT_S), type=int)


def _asked(process: Process, line: bytes, limit_s: float) -> bytes:
    """Ask a process. Raises Wrong where it ends, or does not answer."""
    try:
        return process.ask(line, limit_s)
    except Ended as ended:
        raise Wrong("failed", ended.how) from ended
    except TooLate as late:
        raise Wrong("failed", f"did not answer in {limit_s:.0f} s") from late


@dataclass(slots=True)
class Trials:
    """The unchanged step, twice, and what a rounding comes to in it; variants are held against it."""

    job: TrialJob
    scratch: Path
    base: Child = field(init=False)
    again: Child = field(init=False)
    _noise: dict[float, tuple[Computed, Checked]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    def begin(self, stack: ExitStack) -> None:
        """Run the unchanged step in two processes. Raises UsageError where it does not run."""
        try:
            self.base = stack.enter_context(self._child(self.job))
            self.job = replace(self.job, like=str(self.base.file))
            self.again = stack.enter_context(self._child(self.job))
        except Wrong as wrong:
            raise UsageError(f"{self.job.entry} does not run: {wrong.why}") from wrong
        self.base.steps = self.again.steps = steps_a_block(self.base.said.step_ns)

    @contextmanager
    def right(self, names: Sequence[str]) -> Iterator[Child]:
        """Give a process with variants applied that computes what the unchanged step does. Raises Wrong."""
        diffs = [Path(name.split(":", 2)[2]) for name in names if name.startswith(EDIT)]
        settings = tuple(name for name in names if name in VARIANTS)
        with edited(Path(self.job.folder), diffs) as (folder, refused):
            if refused:
                raise Wrong("failed", refused)
            with self._child(replace(self.job, variants=settings, folder=str(folder))) as child:
                rounding = max((VARIANTS[name].rounding for name in settings), default=0.0)
                nudged, went = self._nudged(rounding)
                runs = [computed_in(self.again.file), nudged]
                wrong = faults(computed_in(self.base.file), computed_in(child.file), runs, rounding)
                wrong = wrong or course_faults(self.base.said, child.said, [self.again.said, went])
                if wrong:
                    raise Wrong("wrong", "; ".join(wrong))
                child.steps = self.base.steps
                yield child

    def tried(self, names: tuple[str, ...], before: tuple[str, ...] = ()) -> Tried:
        """Try variants; where some were joined before, they are to be faster than those."""
        try:
            with ExitStack() as stack:
                best = stack.enter_context(self.right(before)) if before else None
                child = stack.enter_context(self.right(names))
                timers = {"base": self.base.timed, "again": self.again.timed, "own": child.timed}
                took = interleaved(timers | ({"best": best.timed} if best else {}))
                timed = compared(took["base"], took["own"], took["again"])
                said = compared(took["best"], took["own"]).said if best and timed.said == "faster" else timed.said
                return self._measured(names, child, timed, said, before)
        except Wrong as wrong:
            return Tried(variants=names, said=wrong.said, why=wrong.why)

    @staticmethod
    def _measured(names: tuple[str, ...], child: Child, timed: Timed, said: str, before: tuple[str, ...]) -> Tried:
        return Tried(
            variants=names,
            said=said,
            why=f"beside {' + '.join(before)}" if said != timed.said else "",
            level="L7" if said == "faster" else None,
            timed=timed,
            first_s=round(child.said.first_s, 1),
            peak_bytes=child.said.peak_bytes,
        )

    def _nudged(self, rounding: float) -> tuple[Computed, Checked]:
        """Run the unchanged step from where each number is one rounding off."""
        if rounding not in self._noise:
            with self._child(replace(self.job, nudge=rounding)) as child:
                self._noise[rounding] = computed_in(child.file), child.said
        return self._noise[rounding]

    @contextmanager
    def _child(self, job: TrialJob) -> Iterator[Child]:
        file = self.scratch / f"{next(self._numbers)}.pt"
        with Process(worker("tracemine.apply.child"), os.environ) as process:
            line = _asked(process, msgspec.json.encode(replace(job, out=str(file))), LIMIT_S)
            said = msgspec.json.decode(line, type=Checked)
            if said.error:
                raise Wrong("failed", said.error)
            yield Child(process, said, file)


def applied(
    entry: str,
    source: Path,
    wanted: Wanted,
    *,
    budget_s: float = math.inf,
    known: Mapping[tuple[str, ...], Tried] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Applied:
    """Try each variant alone, the largest predicted saving first, then together what is right and faster.

    known: results of earlier runs, which are not made again. Raises UsageError where the unchanged step does not run.
    """
    until = time.monotonic() + budget_s
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tracemine-apply-")))
        trials = Trials(TrialJob(entry=entry, folder=str(source)), scratch)
        trials.begin(stack)

        def asked(names: tuple[str, ...], before: tuple[str, ...] = ()) -> Tried:
            if known and names in known:
                return known[names]
            if time.monotonic() > until:
                return Tried(variants=names, said="not tried", why="no time was left")
            say(" + ".join(names))
            return trials.tried(names, before)

        ordered = sorted(wanted, key=lambda name: -(wanted[name][0] or 0.0))
        alone = [replace(asked((n,)), predicted=wanted[n][0], findings=wanted[n][1]) for n in ordered]
        together, best = joined(alone, lambda before: partial(asked, before=before))
        said = trials.base.said
        rows = tuple(alone), tuple(together)
        return Applied(
            entry=entry, device=said.device, step_ns=said.step_ns, alone=rows[0], together=rows[1], best=best
        )  # fmt: skip


def joined(alone: Sequence[Tried], beside: Callable[[tuple[str, ...]], Trial]) -> tuple[list[Tried], tuple[str, ...]]:
    """Join what is right and faster, the most first: what does not make the best faster is left out again.

    next to it: tries variants, held against others too. Returns what was tried, and what stays.
    """
    results: list[Tried] = []
    best: tuple[str, ...] = ()
    for tried in sorted((t for t in alone if t.said == "faster"), key=lambda t: t.timed.ratio if t.timed else 1.0):
        (name,) = tried.variants
        if not best:
            best = (name,)
        elif not excluded(name, best):
            results.append(beside(best)((*best, name)))
            best = results[-1].variants if results[-1].said == "faster" else best
    return results, best
