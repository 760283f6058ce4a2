"""Traces of other projects and machines, torch 1.8 to 2.13: no activity is lost, and each has an owner or a reason."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow.compute as pc
import pytest

from tests.screens import Events
from tracemine.formats import open_trace
from tracemine.timeline import Timeline

_ROOT = Path(os.environ.get("TRACEMINE_COMPAT_TRACES", "/nowhere"))
_TRACES = sorted(
    path
    for folder in ("kineto", "h200", "dist")
    for path in (_ROOT / folder).rglob("*.json*")
    if not path.name.startswith("meta") and "et" not in path.stem.replace(".json", "").split("_")
)

# Activities whose launch lies in no operator of its thread; in every other trace nesting finds them all.
_OUTSIDE_ANY_OP = {"hta_negative_queue_rank0": 90, "tracelens_sglang_qwen3-8b_decode": 3, "tracelens_b200_eager": 2}

pytestmark = pytest.mark.skipif(not _TRACES, reason="TRACEMINE_COMPAT_TRACES names no folder of traces")


@pytest.mark.parametrize("path", _TRACES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_activity_is_lost_each_has_an_owner_or_a_reason_and_references_hold(
    path: Path, gpu_events: Callable[[Path], Events]
) -> None:
    t = open_trace(path)
    assert_none_is_lost(path, t, gpu_events(path))
    assert_every_reference_points_at_a_row_that_encloses_or_precedes(t)


def assert_none_is_lost(path: Path, t: Timeline, events: Events) -> None:
    count, dur_ns = events.count, events.exact_ns
    rows = t.activities.select(["op_row", "owner_evidence", "unowned_reason", "launch_row", "step_row"]).to_pylist()
    assert len(rows) == count
    assert (pc.sum(t.activities["dur_ns"]).as_py() or 0) == dur_ns

    assert all((row["op_row"] is None) == (row["unowned_reason"] is not None) for row in rows)
    assert all((row["op_row"] is None) == (row["owner_evidence"] is None) for row in rows)
    unowned = Counter(row["unowned_reason"] for row in rows if row["unowned_reason"])
    assert dict(unowned) == t.meta.ingest.unowned
    launched = sum(row["launch_row"] is not None for row in rows)
    print(f"{path.name}: {count} activities, {launched} with their launch, unowned {dict(unowned)}, {t.meta.producer}")

    # What was launched in the window has an owner, but for replays and the launches known to lie outside.
    assert launched == count - unowned["before_window"]
    assert unowned["no_launch_call"] == unowned["no_host_events"] == 0
    assert unowned["outside_any_op"] == _OUTSIDE_ANY_OP.get(path.name.partition(".")[0], 0)


def assert_every_reference_points_at_a_row_that_encloses_or_precedes(t: Timeline) -> None:
    start = {name: getattr(t, name)["start_ns"].to_pylist() for name in ("activities", "ops", "api", "steps")}
    end = {
        name: [s + d for s, d in zip(start[name], getattr(t, name)["dur_ns"].to_pylist(), strict=True)]
        for name in start
    }
    thread = {
        name: list(zip(getattr(t, name)["pid"].to_pylist(), getattr(t, name)["tid"].to_pylist(), strict=True))
        for name in ("ops", "api")
    }
    assert all(earlier <= later for s in start.values() for earlier, later in pairwise(s))
    for row, parent in enumerate(t.ops["parent_row"].to_pylist()):
        if parent is not None:
            assert parent < row
            assert thread["ops"][parent] == thread["ops"][row]
            assert start["ops"][parent] <= start["ops"][row] <= end["ops"][row] <= end["ops"][parent]
    for row, op in enumerate(t.api["op_row"].to_pylist()):
        if op is not None:
            assert thread["ops"][op] == thread["api"][row]
            assert start["ops"][op] <= start["api"][row] <= end["api"][row] <= end["ops"][op]
    for row, parent in enumerate(t.stacks["parent_row"].to_pylist()):
        assert parent is None or parent < row
    for name, rows in (("op_row", t.ops.num_rows), ("launch_row", t.api.num_rows), ("step_row", t.steps.num_rows)):
        assert (pc.max(t.activities[name]).as_py() or 0) < max(rows, 1)
    for host in (t.ops, t.api):
        assert (pc.max(host["stack_row"]).as_py() or 0) < max(t.stacks.num_rows, 1)
