"""A bar for what takes longer than a second, on a terminal and nowhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tracemine.report.escape import line

if TYPE_CHECKING:
    from rich.progress import Progress

_PATIENCE_S = 1.0


class _Bar:
    """Told how many bytes are read; draws nothing in the first second, and loads rich only after it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.begin = time.monotonic()
        self.drawn: Progress | None = None

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        if self.drawn is None:
            if time.monotonic() - self.begin < _PATIENCE_S:
                return
            self.drawn = _drawn(line(self.name, longest=40))
        self.drawn.update(self.drawn.task_ids[0], completed=done_bytes, total=max(total_bytes, 1))

    def close(self) -> None:
        """Take the bar off the screen."""
        if self.drawn is not None:
            self.drawn.stop()


@contextmanager
def reading(path: Path, *, quiet: bool) -> Iterator[_Bar | None]:
    """What to tell about the reading of `path`; None where nobody would see it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    bar = _Bar(path.name)
    try:
        yield bar
    finally:
        bar.close()


def _drawn(name: str) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    progress.add_task(name)
    progress.start()
    return progress
