"""A bar for what takes longer than a second, on a terminal and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Timer
from typing import TYPE_CHECKING

from tracemine.report.escape import line

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE_S = 1.0


class Bar:
    """Shows how much is done: draws nothing in the first second, and loads rich only after it.

    It is drawn by a clock, not by the calls: the first part may take long.
    """

    def __init__(self, name: str) -> None:
        self._name = line(name, longest=40)
        self._told = (0, 1)
        self._drawn: Progress | None = None
        self._lock = Lock()
        self._clock = Timer(PATIENCE_S, self._draw)
        self._clock.daemon = True
        self._clock.start()

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        with self._lock:
            self._told = (done_bytes, max(total_bytes, 1))
            self._update()

    def close(self) -> None:
        """Take the bar off the screen."""
        self._clock.cancel()
        with self._lock:
            if self._drawn is not None:
                self._drawn.stop()

    def _draw(self) -> None:
        with self._lock:
            if not self._clock.finished.is_set():
                self._drawn = bar_of(self._name)
                self._update()

    def _update(self) -> None:
        if self._drawn is not None:
            done, total = self._told
            self._drawn.update(self._drawn.task_ids[0], completed=done, total=total)


@contextmanager
def reading(path: Path, *, quiet: bool, position: str = "") -> Iterator[Bar | None]:
    """Yield what shows that `path` is read; None where it would not be seen. position: stands before its name."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    bar = Bar(f"{position}{path.name}")
    try:
        yield bar
    finally:
        bar.close()


def bar_of(name: str) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    progress.add_task(name)
    progress.start()
    return progress
