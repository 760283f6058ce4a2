"""Reproductions on this GPU within seconds: no torch.compile, and what is known of a graph is not timed again.

Processes begin before a trace is read. Each file is timed as soon as it is compiled, in one process for all.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from tracemine.errors import TracemineError
from tracemine.files import make_folder, read_file, write_file
from tracemine.tables import table_beside
from tracemine.verify.repro.harness import harness_text
from tracemine.verify.workers.ahead import Ahead, Runner

LEFT_OUT: Final = "left out by --quick"
_LIMIT_S = 60.0  # where something hangs
_COMPILE_S, _WITHIN_S, _BLOCKS_S = 4.0, 2.0, 0.5  # of a graph: other tile configs, all of it, samples beyond the least
_LARGEST_BYTES = 1 << 24
_NAMES: Final = frozenset({"fingerprint", "title"})  # by which a reproduction names its finding
_MADE: Final = frozenset({"fingerprint", "source_sha256"})
_TEXTS = table_beside(__file__, "quick.toml")
_WARM: str = _TEXTS["warm"]


class Quick(Ahead):
    """As `Ahead`, for eager and what replaces it alone. Processes begin at once."""

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
