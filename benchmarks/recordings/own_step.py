"""Record a step that a module's `build` makes, in a process of its own: a profiler leaves traces in it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path


def record(
    source: Path,
    name: str,
    out: Path,
    *,
    steps: int = 0,
    timed: int = 10,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Record some steps of SOURCE/NAME.py into a folder.

    steps: 0: as many as there are batches. around: entered while they are recorded.
    """
    import torch

    from tracemine.recording import capture

    sys.path.insert(0, str(source))
    torch.manual_seed(0)
    step = import_module(name).build()
    batches = itertools.cycle(step.batches)
    for _ in range(6):
        step.run(next(batches))
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    with around(), capture(out, steps=steps or len(step.batches), timed=timed, quiet=True) as run:
        for batch in run.steps(batches):
            step.run(batch)
