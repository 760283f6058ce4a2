"""Standard input without an end, and children of a program that is gone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.attack.harness import FIXTURES, ROOT, Attack, orphans
from tracemine.cli import request
from tracemine.cli.request import STDIN, from_standard_input
from tracemine.errors import UsageError


class Endless(BytesIO):
    """As `yes`."""

    def read(self, size: int | None = -1, /) -> bytes:
        assert size is not None and 0 < size < 1 << 24
        return b"y\n" * size


@pytest.mark.parametrize(("free", "most"), [(1 << 40, 3_000_000), (4_000_000, 1 << 40)])
def test_standard_input_has_a_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, most: int) -> None:
    monkeypatch.setattr(request, "_MOST_BYTES", most)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Endless(), isatty=lambda: False))
    bound = f"standard input: brings more than {min(most, free // 2):,} bytes"
    with pytest.raises(UsageError, match=bound), from_standard_input(STDIN):
        pass
    assert not list(tmp_path.iterdir())


def test_what_fits_comes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "_MOST_BYTES", 5_000_000)
    for count in (0, 1, 5_000_000):
        content = os.urandom(count)
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(content), isatty=lambda: False))
        with from_standard_input(STDIN) as path:
            assert path.read_bytes() == content


SLOW = """
import sys, time
if any("worker" in one for one in sys.orig_argv):
    class Slow:
        def find_spec(self, name, path=None, target=None):
            if name in ("numpy", "pyarrow"):
                time.sleep(60)
    sys.meta_path.insert(0, Slow())
"""


def test_a_worker_that_is_still_loaded_does_not_outlive_a_fleet(attacks: Callable[..., Attack], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW)
    mark = f"ATTACK_ORPHANS={tmp_path}"
    name, _, value = mark.partition("=")
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", name: value}
    trace = str(FIXTURES / "kineto/chain.json.gz")
    command = [sys.executable, "-P", "-m", "tracemine", "fleet", trace, "-o", str(tmp_path / "set"), "-j", "1", "-q"]
    fleet = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)

    def workers() -> list[str]:
        return [line for line in orphans(mark) if "worker" in line]

    end = time.monotonic() + 60
    while not workers() and time.monotonic() < end:
        time.sleep(0.05)
    assert workers()
    time.sleep(2)  # it has begun to load
    os.kill(fleet.pid, signal.SIGKILL)
    fleet.wait()
    end = time.monotonic() + 10
    while (left := workers()) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left
