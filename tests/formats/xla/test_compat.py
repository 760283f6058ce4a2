"""Figures of recorded programs, as a reader that shares no code with this one found them.

Needs TRACEMINE_COMPAT_TRACES, the folder in which `jax/` lies. Sums are over three steps.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tracemine.columns import numbers, uncovered
from tracemine.errors import InputError
from tracemine.formats import open_trace
from tracemine.timeline import Timeline

TRACES = Path(os.environ.get("TRACEMINE_COMPAT_TRACES", ""))
pytestmark = pytest.mark.skipif(not (TRACES / "jax").is_dir(), reason="TRACEMINE_COMPAT_TRACES is not set")

# Of each program: activities of a GPU, their sum and busy time in ms on each GPU, and which share of the span is idle.
FIGURES = {
    "train_spelled": (798, [45.178], [44.884], [4.8]),
    "train_cudnn": (699, [30.630], [30.443], [7.4]),
    "eager_chain": (324, [8.945], [8.942], [69.1]),
    "sync_each": (120, [0.303], [0.303], [96.7]),
    "scan_lstm": (4617, [11.204], [10.669], [38.7]),
    "data_parallel": (
        780,
        [16.619, 16.332, 16.428, 16.505],
        [12.789, 12.652, 12.717, 12.711],
        [19.1, 19.8, 19.4, 19.5],
    ),
}
GRAPH_LAUNCHES = {"train_spelled": 3, "train_cudnn": 3, "scan_lstm": 768, "data_parallel": 72}
WAITS = {
    "sync_each": {"np.asarray(jax.Array)": 24, "jax.block_until_ready": 3},
    "train_cudnn": {"jax.block_until_ready": 3},
}


def figures(timeline: Timeline) -> tuple[int, list[float], list[float], list[float]]:
    start, dur, device = (numbers(timeline.activities[name]) for name in ("start_ns", "dur_ns", "device"))
    total, busy, idle, counts = [], [], [], set()
    for ordinal in np.unique(device):
        rows = device == ordinal
        at, end = start[rows], (start + dur)[rows]
        total.append(dur[rows].sum() / 1e6)
        busy.append(uncovered(at, end).sum() / 1e6)
        idle.append(100 - 100 * busy[-1] / ((end.max() - at.min()) / 1e6))
        counts.add(int(rows.sum()))
    (count,) = counts
    return count, total, busy, idle


def of(name: str) -> Timeline:
    return open_trace(TRACES / "jax" / name / "host.xplane.pb.gz")


@pytest.mark.parametrize("name", FIGURES)
def test_counts_sums_and_busy_times(name: str) -> None:
    timeline = of(name)
    count, total, busy, idle = FIGURES[name]
    found = figures(timeline)
    assert found[0] == count
    for one, known in zip(found[1:3], (total, busy), strict=True):
        assert one == pytest.approx(known, abs=0.0006)
    assert found[3] == pytest.approx(idle, abs=0.35 if name == "data_parallel" else 0.06)
    assert timeline.steps["number"].to_pylist() == [0, 1, 2]
    assert set(timeline.activities["step_row"].to_pylist()) == {0, 1, 2}
    assert not timeline.activities["launch_row"].null_count
    assert timeline.meta.devices[0].name == "NVIDIA H100 80GB HBM3"
    assert not timeline.meta.ingest.truncated


@pytest.mark.parametrize("name", FIGURES)
def test_launches_and_waits(name: str) -> None:
    names = of(name).api["name"].to_pylist()
    assert names.count("cuGraphLaunch") == GRAPH_LAUNCHES.get(name, 0)
    for wait, count in WAITS.get(name, {}).items():
        assert names.count(wait) == count


@pytest.mark.parametrize("name", FIGURES)
def test_every_kernel_but_copies_of_arguments_has_its_instruction(name: str) -> None:
    activities = of(name).activities.to_pylist()
    without = [row for row in activities if row["op_row"] is None]
    assert {row["kind"] for row in without} <= {"memcpy"}
    assert len(without) == {"eager_chain": 60, "sync_each": 24}.get(name, 0)
    assert {row["owner_evidence"] for row in activities if row["op_row"] is not None} == {"compiler"}


@pytest.mark.parametrize("name", FIGURES)
def test_the_json_alone_has_the_same_activities(name: str, tmp_path: Path) -> None:
    whole = of(name)
    path = shutil.copy(TRACES / "jax" / name / "host.trace.json.gz", tmp_path)
    alone = open_trace(path)
    assert (numbers(alone.activities["start_ns"]) + whole.meta.base_ns == numbers(whole.activities["start_ns"])).all()
    for column in ("dur_ns", "name", "device", "stream", "grid", "correlation", "step_row"):
        assert alone.activities[column].to_pylist() == whole.activities[column].to_pylist()


def test_a_profile_of_a_cpu_is_refused() -> None:
    for path in sorted((TRACES / "compilers" / "jax_cpu").glob("jax_cpu.*")):
        with pytest.raises(InputError, match="is a JAX profile of a CPU"):
            open_trace(path)
