"""Ray makes the data set that this machine's processes make, row for row, also where a worker is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.fleet.made import folder_of
from tests.fleet.test_run import filled, made, rows
from tracemine.errors import UsageError
from tracemine.fleet.cluster import on_ray
from tracemine.fleet.dataset import TABLES
from tracemine.fleet.machine import Limits
from tracemine.fleet.run import total


def test_without_ray_its_option_says_what_to_install() -> None:
    try:
        import ray  # noqa: F401
    except ImportError:
        with pytest.raises(UsageError, match="not installed"):
            on_ray("auto")


@pytest.mark.filterwarnings("ignore")
def test_ray_makes_the_same_data_set_and_a_lost_process_changes_nothing(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray runs clusters")
    traces = folder_of(tmp_path / "traces")
    filled(traces, tmp_path / "here")
    given, known = made(traces, tmp_path / "there")
    outcomes = on_ray("local")(given, Limits())
    first = next(outcomes)
    for pid in _scanning():
        os.kill(pid, signal.SIGKILL)
    found = total((one for one in (first, *outcomes)), known, ())
    assert (found.scanned, found.refused, found.failed) == (5, 2, 0)
    for table in TABLES:
        assert rows(tmp_path / "here", table.name) == rows(tmp_path / "there", table.name)


def _scanning() -> list[int]:
    """Processes of this machine that scan traces."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"tracemine.fleet.worker" in command:
            found.append(int(path.parent.name))
    return found
