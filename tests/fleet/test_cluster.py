"""Ray makes the data set that this machine's processes make, row for row, also where a worker is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.fleet.made import folder_of, scanning
from tests.fleet.test_run import filled, made, rows
from tracemine.errors import UsageError
from tracemine.fleet.dataset import TABLES
from tracemine.fleet.machine import Limits, on_ray
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
    for pid in scanning():
        os.kill(pid, signal.SIGKILL)
    found = total((one for one in (first, *outcomes)), known, ())
    assert (found.scanned, found.refused, found.failed) == (5, 2, 0)
    for table in TABLES:
        assert rows(tmp_path / "here", table.name) == rows(tmp_path / "there", table.name)


@pytest.mark.filterwarnings("ignore")
def test_a_node_that_is_lost_loses_and_doubles_nothing(tmp_path: Path) -> None:
    utils = pytest.importorskip("ray.cluster_utils", reason="Ray runs clusters")
    traces = folder_of(tmp_path / "traces")
    store = {"object_store_memory": 100 << 20}
    cluster = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **store})
    try:
        nodes = [cluster.add_node(num_cpus=1, **store) for _ in range(2)]
        filled(traces, tmp_path / "here")
        given, known = made(traces, tmp_path / "there")
        outcomes = on_ray(cluster.address)(given, Limits())
        first = next(outcomes)
        assert len(scanning()) >= 1
        cluster.remove_node(nodes[0], allow_graceful=False)
        found = total((one for one in (first, *outcomes)), known, ())
    finally:
        cluster.shutdown()
    # What the lost node had written before Ray heard of it is done again, and known then.
    assert (found.scanned + found.refused + found.known, found.failed) == (7, 0)
    for table in TABLES:
        assert rows(tmp_path / "here", table.name) == rows(tmp_path / "there", table.name)
