"""Reproductions on this machine's GPU: compiled side by side by several processes, then timed one by one by another.

Compilers want cores, a timing wants a quiet GPU. A process loads torch once and runs one file after another; one that
crashes, hangs or is out of memory costs its own file, and another process goes on.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from tracemine.errors import TracemineError
from tracemine.files import make_folder, read_file, write_file
from tracemine.pool import Pool
from tracemine.processes import Closing, Ended, Process, TooLate, does_not_start
from tracemine.programs import python
from tracemine.tables import table_beside
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


LEFT_OUT: Final = "left out by --quick"
_LIMIT_S = 60.0  # where something hangs
_COMPILE_S, _WITHIN_S, _BLOCKS_S = 4.0, 2.0, 0.5  # of a graph: other tile configs, all of it, samples beyond the least
_LARGEST_BYTES = 1 << 24
_NAMES: Final = frozenset({"fingerprint", "title"})  # by which a reproduction names its finding
_MADE: Final = frozenset({"fingerprint", "source_sha256"})
_TEXTS = table_beside(__file__, "quick.toml")
_WARM: str = _TEXTS["warm"]


class Quick(Ahead):
    """As `Ahead`, within seconds: no torch.compile, and what is known of a graph is not timed again.

    Processes begin before a trace is read. Each file is timed as soon as it is compiled, in one process for all.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """folder: where results are kept; None: the user's cache."""
        super().__init__(_LIMIT_S)
        self._kept = folder or kept_in(os.environ)
        self._alone = ThreadPoolExecutor(1)
        self._machine = self._alone.submit(self._timer.run, _WARM, "results", _LIMIT_S)
        for _ in range(self._compilers.count):
            self._compilers.start(lambda runner: runner.run(_WARM, "compile_only", _LIMIT_S))
        self._compiling: dict[str, Future[object]] = {}

    @property
    def gpu(self) -> str | None:
        """Return the name of this machine's GPU; None: torch finds none."""
        said = self._machine.result()
        return str(said["gpu"]) if isinstance(said, Mapping) else None

    def start(self, texts: Iterable[str]) -> None:
        """Compile what is not known yet from now on."""
        for text in texts:
            if self._known(text) is None and text not in self._compiling:
                self._compiling[text] = self._compilers.start(partial(_compiled, text))

    def wait(self) -> None:
        """Wait for nothing: each is waited for when it is timed."""

    def timed(self, text: str) -> Mapping[str, Any] | str:
        """Return what a reproduction says, or said before."""
        found: Mapping[str, Any] | str | None = self._known(text)
        if found is None:
            if text in self._compiling:
                self._compiling.pop(text).result()
            how = {"seconds": _BLOCKS_S, "compiles": (), "within": _WITHIN_S}
            found = self._timer.run(text, "results", self._limit_s, **how)
            if isinstance(found, Mapping):
                self._keep(text, found)
        return found

    def close(self) -> None:
        """End all processes, those that still begin too."""
        self._timer.kill()
        super().close()
        self._alone.shutdown()

    def _place(self, text: str) -> Path:
        said = self._machine.result()
        machine = (said["gpu"], *said["with"]) if isinstance(said, Mapping) else ()
        return self._kept / f"{graph_key(text, machine)}.json"

    def _known(self, text: str) -> Mapping[str, Any] | None:
        with contextlib.suppress(OSError, ValueError, TracemineError):
            found = json.loads(read_file(self._place(text), _LARGEST_BYTES))
            return found if isinstance(found, Mapping) else None
        return None

    def _keep(self, text: str, found: Mapping[str, Any]) -> None:
        """Keep results for another time; where the folder cannot be written to, none."""
        with contextlib.suppress(OSError, TracemineError):
            make_folder(self._kept)
            kept = {name: value for name, value in found.items() if name not in _MADE}
            write_file(self._place(text), json.dumps(kept), named=False)


def _compiled(text: str, runner: Runner) -> None:
    runner.run(text, "compile_only", _LIMIT_S, compiles=(), within=_COMPILE_S)


def kept_in(environment: Mapping[str, str]) -> Path:
    """Return the folder where results are kept.

    >>> kept_in({"XDG_CACHE_HOME": "/caches"}).as_posix()
    '/caches/tracemine/verified'
    """
    cache = environment.get("XDG_CACHE_HOME", "")
    folder = Path(cache) if Path(cache).is_absolute() else Path("~/.cache").expanduser()
    return folder / "tracemine" / "verified"


def graph_key(text: str, machine: Iterable[str]) -> str:
    """Return a name for what a reproduction checks, whatever finding of whatever trace it is of.

    machine: the GPU, and what it runs with.
    """
    tree = ast.parse(text)
    tree.body = tree.body[1:]  # what it says of the finding
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords = [each for each in node.keywords if each.arg not in _NAMES]
    return hashlib.sha256("\0".join([ast.unparse(tree), harness_text(), *machine]).encode()).hexdigest()
