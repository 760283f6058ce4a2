"""Reproductions compiled side by side before each is timed alone: compilers want cores, a timing a quiet GPU."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from tracemine.verify import alone

MOST_AT_ONCE = 8  # each holds a chain's tensors on the GPU, and some two cores
_CORES_EACH = 2


def at_once() -> int:
    """How many reproductions this machine compiles at a time.

    >>> 1 <= at_once() <= MOST_AT_ONCE
    True
    """
    return max(1, min(MOST_AT_ONCE, (os.cpu_count() or 1) // _CORES_EACH))


class Ahead:
    """Processes that compile, and the folder where compilers keep what they made; gone at the end.

    What one cannot compile in time costs nothing but this: it is compiled while it is timed then.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._folder = Path(tempfile.mkdtemp(prefix="tracemine-"))
        self._pool = ThreadPoolExecutor(at_once())
        self._running: list[Future[object]] = []

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def environment(self) -> dict[str, str]:
        """For processes that compile here, or use what was compiled."""
        own = {"TORCHINDUCTOR_CACHE_DIR": self._folder / "inductor", "TRITON_CACHE_DIR": self._folder / "triton"}
        return {**os.environ, **{name: str(path) for name, path in own.items()}, "TORCHINDUCTOR_COMPILE_THREADS": "1"}

    def start(self, texts: Iterable[str]) -> None:
        """Compile these from now on."""
        for text in texts:
            self._running.append(self._pool.submit(self._compile, text))

    def wait(self) -> None:
        """Until all is compiled. What torch.compile chose beside other processes it chooses again, alone."""
        for each in self._running:
            each.result()
        self._running.clear()
        for path in self._folder.rglob("*.best_config"):
            path.unlink(missing_ok=True)

    def _compile(self, text: str) -> object:
        options = ["--compile-only"]
        return alone.run(text, options, self._limit_s, what="compiling", slow="compiling", environment=self.environment)


@contextmanager
def compilers(gpu: str | None, limit_s: float) -> Iterator[Ahead | None]:
    """For as long as it lasts; None where there is no GPU to compile for."""
    if gpu is None:
        yield None
        return
    with Ahead(limit_s) as found:
        yield found
