"""Reproductions on this machine's GPU: compiled side by side by several processes, then timed one by one by another.

Compilers want cores, a timing wants a quiet GPU. A process loads torch once and runs one file after another; one that
crashes, hangs or is out of memory costs its own file, and another process goes on.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any

from tracemine.pool import Pool
from tracemine.processes import Closing, Ended, Process, TooLate, does_not_start
from tracemine.programs import python
from tracemine.verify.gpu import worker
from tracemine.verify.repro.harness import NAME, harness_text

MOST_AT_ONCE = 8  # each holds a graph's tensors on the GPU, and some two cores
_CORES_EACH = 2
_COMPILE_S = 15.0  # of each mode of torch.compile, ahead of timing
MORE_S = 30.0  # after which no more of what nothing depends on is compiled ahead
_NEEDED, _MORE = ("compiled",), ("tuned",)  # modes: what level 5 is held against, and what is shown with it
_SHARE = 0.75  # of the time limit, that a file may plan with: what it began then comes to an end within the limit
_BLOCKS_S = 3.0  # after which no block of samples is begun, where ratios are not known to 1 % before


def at_once() -> int:
    """Return how many reproductions this machine compiles at a time.

    >>> 1 <= at_once() <= MOST_AT_ONCE
    True
    """
    return max(1, min(MOST_AT_ONCE, (os.cpu_count() or 1) // _CORES_EACH))


class Runner:
    """A process that runs reproductions, begun when it is first asked."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder, self._count = folder, count()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / NAME).write_text(harness_text(), "utf-8")
        self._process = Process(python(worker.__file__), environment)

    def run(self, text: str, function: str, limit_s: float, **options: object) -> Mapping[str, Any] | str:
        """Return what a method of a reproduction's CHECK gives; or why it gives nothing.

        Raises UsageError where none can be run.
        """
        path = self._folder / f"alone_{next(self._count)}.py"  # Python keeps the lines of a file that it has seen
        path.write_text(text, "utf-8")
        try:
            line = self._process.ask(json.dumps([str(path), function, options]).encode(), limit_s)
        except TooLate:
            return f"the GPU took longer than {limit_s:g} s"
        except Ended as end:
            if end.unstarted:
                raise does_not_start("the process that runs reproductions", end.said) from None
            return f"the reproduction {end.how}"
        found = json.loads(line)
        return found if isinstance(found, Mapping) else str(found)

    def kill(self) -> None:
        """End what runs at once, for whatever waits for it too."""
        self._process.kill()

    def close(self) -> None:
        """End the process."""
        self._process.close()


class Ahead(Closing):
    """Runners, and the folder where compilers keep what they made; gone at the end.

    What one cannot compile in time costs nothing but this: it is compiled while it is timed then.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.folder = Path(tempfile.mkdtemp(prefix="tracemine-"))
        own = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
        environment = {
            **os.environ,
            **{name: str(self.folder / place) for name, place in own.items()},
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }
        self._timer = Runner(self.folder / "timed", environment)
        self._compilers = Pool([Runner(self.folder / str(k), environment) for k in range(at_once())])
        self._running: list[tuple[str, Future[bool]]] = []
        self._tuned: set[str] = set()  # files of which max-autotune is compiled

    def close(self) -> None:
        """End all processes; what compilers made is gone."""
        self._compilers.close()
        self._timer.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, texts: Iterable[str]) -> None:
        """Compile these from now on."""
        for text in texts:
            self._running.append((text, self._compiled(text, _NEEDED, float("inf"))))

    def wait(self) -> None:
        """Wait until all is compiled that verdicts need, and what else fits into a while.

        What torch.compile chose while other processes ran it chooses again, alone.
        """
        more = [(text, each) for text, each in self._running if each.result()]
        until = time.monotonic() + MORE_S
        begun = [(text, self._compiled(text, _MORE, until)) for text, _ in more]
        self._tuned = {text for text, each in begun if each.result()}
        self._running.clear()
        for path in self.folder.rglob("*.best_config"):
            path.unlink(missing_ok=True)

    def timed(self, text: str) -> Mapping[str, Any] | str:
        """Return what a reproduction says, alone on the GPU; or why it says nothing."""
        compiles = (*_NEEDED, *(_MORE if text in self._tuned else ()))
        within = _SHARE * self._limit_s
        return self._timer.run(text, "results", self._limit_s, seconds=_BLOCKS_S, compiles=compiles, within=within)

    def _compiled(self, text: str, modes: Sequence[str], until: float) -> Future[bool]:
        """Return whether a file's modes were compiled; not those for which no time is left."""

        def compile_(runner: Runner) -> bool:
            left = until - time.monotonic()
            if left <= 0:
                return False
            within = min(_SHARE * self._limit_s, left)
            compile_s = min(_COMPILE_S, within)
            done = runner.run(text, "compile_only", self._limit_s, compiles=modes, compile_s=compile_s, within=within)
            return not isinstance(done, str)

        return self._compilers.start(compile_)
