"""Run programs with and without `tracemine capture`, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = "tracemine capture: "


@dataclass(frozen=True)
class Ran:
    """What a process printed, and how it ended; `said` are our lines of standard error, `err` the program's."""

    code: int
    out: str
    err: str
    said: list[str]


def python(*words: str, cwd: Path, **environment: str) -> Ran:
    """Run `python WORDS`."""
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=cwd, env=os.environ | own, capture_output=True, text=True, timeout=60)
    lines = done.stderr.splitlines(keepends=True)
    said = [line.removeprefix(OURS).rstrip("\n") for line in lines if line.startswith(OURS)]
    err = "".join(line for line in lines if not line.startswith(OURS))
    return Ran(done.returncode, done.stdout, err, said)


def captured(*words: str, cwd: Path, options: Sequence[str] = (), **environment: str) -> Ran:
    """Run `tracemine capture OPTIONS -- python WORDS`."""
    return python("-m", "tracemine", "capture", *options, "--", "python", *words, cwd=cwd, **environment)
