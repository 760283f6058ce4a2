"""A fresh machine: an environment with the wheel in it, an empty home, and nothing of this checkout on a path."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.test_action import step

EXTRAS = "[tickets,mcp]"
PROGRAMS = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # `python3` is the one of the tests
# How packages are fetched here is the machine's; compiling what nothing imports is not waited for.
FETCHING = {name: os.environ[name] for name in os.environ if name.upper().startswith(("PIP_", "SSL_", "HTTP"))}
FETCHING |= {"PATH": PROGRAMS, "PIP_COMPILE": "0"}


@dataclass
class Machine:
    """Where tracemine is installed, and a folder in which a user works; what was run there, with its seconds."""

    environment: Path
    folder: Path
    lines: list[str] = field(default_factory=list)

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    def variables(self, **more: str) -> dict[str, str]:
        path = os.pathsep.join([str(self.environment / "bin"), "/usr/bin", "/bin"])
        return {"PATH": path, "HOME": str(self.folder), "NO_COLOR": "1", "LC_ALL": "C.UTF-8", **more}

    @contextmanager
    def timed(self, shown: str) -> Iterator[None]:
        begin = time.monotonic()
        yield
        self.lines.append(f"{time.monotonic() - begin:6.1f} s  {shown}")

    def run(self, command: str, **more: str) -> str:
        """Run a command line as a user types it; return what it prints."""
        with self.timed(f"$ {command}"):
            done = subprocess.run(
                ["bash", "-euc", command], cwd=self.folder, env=self.variables(**more), capture_output=True, text=True
            )
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    @property
    def seconds(self) -> float:
        return sum(float(line.split()[0]) for line in self.lines)


def installed(folder: Path, wheel: Path) -> str:
    """Install the wheel as the GitHub Action does. Return the line that says how long that took.

    Skips where no package index can be reached.
    """
    for name in ("workspace", "temporary"):
        (folder / name).mkdir(exist_ok=True)
    begin = time.monotonic()
    ran = step(folder, "Install tracemine", {"package": f"{wheel}{EXTRAS}"}, **FETCHING)
    if ran.code:
        reached = pip("download", "--no-deps", "--dest", str(folder / "probe"), "hatchling")
        if reached.returncode:
            pytest.skip(f"no package index can be reached: {reached.stderr.strip().splitlines()[-1]}")
    assert ran.code == 0, ran.said[-2000:]
    return f"{time.monotonic() - begin:6.1f} s  $ pip install {wheel.name}{EXTRAS}"


def pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", *arguments, "--quiet"]
    own = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, env=own, capture_output=True, text=True)
