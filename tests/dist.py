"""The wheel and the sdist of this checkout, built once in a run, offline."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import folder_of_run
from tracemine.files import locked

ROOT = Path(__file__).parents[1]


def build(source: Path, to: Path, *more: str) -> None:
    """Build both files of a source tree, with what is installed. more: `-t` and the only one."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(to), *more]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def built_once(factory: pytest.TempPathFactory) -> Path:
    """A folder with both, which whichever process comes first has built."""
    folder = folder_of_run(factory) / "dist"
    folder.mkdir(exist_ok=True)
    with locked(folder):
        if not list(folder.glob("*.whl")):
            build(ROOT, folder)
    return folder
