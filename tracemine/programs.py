"""Other programs that are started: all of them here, so that none runs or imports a file of the current folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_PACKAGE = str(Path(__file__).absolute().parents[1])  # the folder that this package was found in
# Folders that this process searches for modules because PYTHONPATH said so when it began.
_ASKED = [str(Path(folder).absolute()) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]


def python(*arguments: str) -> tuple[str, ...]:
    """Return the command that runs something with this Python.

    With -P neither the current folder nor the script's is searched for modules: a trace may lie next to a `torch.py`.
    """
    return sys.executable, "-P", *arguments


def program(name: str) -> str | None:
    """Return where a program lies on PATH; None: nowhere. Entries that depend on the current folder are passed over."""
    for folder in _absolute(os.environ.get("PATH", os.defpath)):
        if found := shutil.which(str(Path(folder, name))):
            return found
    return None


def environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what a program is started with, this process's own environment by default: Python imports nothing from the
    current folder, neither there nor in what is started from there.

    An empty entry of PYTHONPATH is the current folder, and "." and "lib" depend on it: those are left out.
    """
    found = dict(os.environ if given is None else given)
    folders = _absolute(found.pop("PYTHONPATH", ""))
    if _PACKAGE not in folders and (_PACKAGE not in sys.path[1:] or _PACKAGE in _ASKED):
        # This process has it from the current folder or by PYTHONPATH, and the child would not have it.
        folders.insert(0, _PACKAGE)
    if folders:
        found["PYTHONPATH"] = os.pathsep.join(folders)
    return {**found, "PYTHONSAFEPATH": "1"}


def start(command: Sequence[str], given: Mapping[str, str] | None = None, **how: Any) -> subprocess.Popen[bytes]:
    """Begin a program. given: as in `environment`; how: as in `subprocess.Popen`."""
    return subprocess.Popen(command, env=environment(given), **how)  # noqa: S603 - commands are made here or by us


def run(command: Sequence[str], limit_s: float) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and keep what it prints. Raises OSError and subprocess.SubprocessError."""
    return subprocess.run(  # noqa: S603 - as above
        command,
        env=environment(),
        capture_output=True,
        check=False,
        encoding="utf-8",
        errors="replace",
        stdin=subprocess.DEVNULL,
        timeout=limit_s,
    )


def _absolute(path: str) -> list[str]:
    return [folder for folder in path.split(os.pathsep) if Path(folder).is_absolute()]
