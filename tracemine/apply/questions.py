"""What a process with a step in it is asked, and what it says. Lines of JSON: `tracemine.processes`."""

from __future__ import annotations

from pathlib import Path

import msgspec

CHILD, RANKS = "tracemine.apply.child", "tracemine.apply.ranks"  # who answers: of one process, of several
LOOK, QUEUED = b"look", b"queued"
CURVE, LEAST_CURVE, CURVE_S = 50, 16, 3.0  # steps of the short training run: as many as take so long, in these bounds


class TrialJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is to do.

    out: where what was computed is written. start: a file of the parameters to begin with: the first process writes it,
    that of the unchanged step, and others wait for it. nudge: parameters and inputs begin that much off, relative, or
    by a rounding of their own if that is more.
    """

    entry: str
    folder: str
    start: str
    first: bool = False
    out: str = ""
    variants: tuple[str, ...] = ()
    seed: int = 0
    nudge: float | None = None
    curve: int = 0  # steps of the short training run; 0: what the first process finds fit
    ranks: int = 1  # processes that the step is made of


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What a process says of a step that it built and ran."""

    error: str | None = None
    device: str = "cpu"
    first_s: float = 0.0  # of building, and running each batch once: compiling is in it
    step_ns: int = 0
    free_bytes: int = 0  # of the GPU's memory
    peak_bytes: int = 0  # in steps, when all is compiled; on a GPU with what CUDA graphs hold
    grown_bytes: int = 0  # over the second half of the short training run
    losses: tuple[float | None, ...] = ()  # None: no finite number
    curve: int = CURVE


def of_rank(file: Path, rank: int) -> Path:
    """Return the file of one rank: that of the first is the one named.

    >>> of_rank(Path("3.pt"), 0).name, of_rank(Path("3.pt"), 2).name
    ('3.pt', '3.pt.2')
    """
    return file.with_name(f"{file.name}.{rank}") if rank else file
