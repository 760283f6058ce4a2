"""Traces of other projects and machines, torch 1.8 to 2.13: no activity is lost, and each has an owner or a reason."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.screens import OWNERS, Events, Reading, misplaced
from tracemine.formats import open_trace
from tracemine.timeline import Meta, Timeline

_ROOT = Path(os.environ.get("TRACEMINE_COMPAT_TRACES", "/nowhere"))
_FIXTURE = Path(__file__).parents[2] / "fixtures" / "kineto" / "convnet_train.json.gz"
_TRACES = sorted(
    path
    for folder in ("kineto", "h200", "dist")
    for path in (_ROOT / folder).rglob("*.json*")
    if not path.name.startswith("meta") and "et" not in path.stem.replace(".json", "").split("_")
)

# Activities whose launch lies in no operator of its thread; in every other trace nesting finds them all.
_OUTSIDE_ANY_OP = {"hta_negative_queue_rank0": 90, "tracelens_sglang_qwen3-8b_decode": 3, "tracelens_b200_eager": 2}


@pytest.mark.skipif(not _TRACES, reason="TRACEMINE_COMPAT_TRACES names no folder of traces")
@pytest.mark.parametrize("path", _TRACES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_activity_is_lost_each_has_an_owner_or_a_reason_and_references_hold(
    path: Path, gpu_events: Callable[[Path], Events], reading: Callable[[Path], Reading]
) -> None:
    found = reading(path)
    assert_none_is_lost(path, found.activities, found.meta, gpu_events(path))
    assert not found.misplaced


def assert_none_is_lost(path: Path, activities: pa.Table, meta: Meta, events: Events) -> None:
    assert activities.num_rows == events.count
    assert (pc.sum(activities["dur_ns"]).as_py() or 0) == events.exact_ns

    owned, proved, excused, launched = (np.array(activities[name].is_valid(), np.bool_) for name in OWNERS)
    assert (owned != excused).all()
    assert (owned == proved).all()
    unowned = Counter(activities["unowned_reason"].drop_null().to_pylist())
    assert dict(unowned) == meta.ingest.unowned
    counts = f"{events.count} activities, {launched.sum()} with their launch, unowned {dict(unowned)}"
    print(f"{path.name}: {counts}, {meta.producer}")

    # What was launched in the window has an owner, but for replays and the launches known to lie outside.
    assert launched.sum() == events.count - unowned["before_window"]
    assert unowned["no_launch_call"] == unowned["no_host_events"] == 0
    assert unowned["outside_any_op"] == _OUTSIDE_ANY_OP.get(path.name.partition(".")[0], 0)


def assert_every_reference_points_at_a_row_that_encloses_or_precedes(t: Timeline) -> None:
    start = {name: whole(getattr(t, name)["start_ns"]) for name in ("activities", "ops", "api", "steps")}
    end = {name: begin + whole(getattr(t, name)["dur_ns"]) for name, begin in start.items()}
    for begin in start.values():
        assert (begin[:-1] <= begin[1:]).all()
    for name, column in (("ops", "parent_row"), ("api", "op_row")):
        around = whole(getattr(t, name)[column])
        rows = np.flatnonzero(around >= 0)
        around = around[rows]
        assert name == "api" or (around < rows).all()
        for thread in ("pid", "tid"):
            assert (whole(t.ops[thread])[around] == whole(getattr(t, name)[thread])[rows]).all()
        assert (start["ops"][around] <= start[name][rows]).all()
        assert (start[name][rows] <= end[name][rows]).all()
        assert (end[name][rows] <= end["ops"][around]).all()
    parents = whole(t.stacks["parent_row"])
    assert (parents < np.arange(len(parents))).all()
    for name, count in (("op_row", t.ops.num_rows), ("launch_row", t.api.num_rows), ("step_row", t.steps.num_rows)):
        assert (pc.max(t.activities[name]).as_py() or 0) < max(count, 1)
    for host in (t.ops, t.api):
        assert (pc.max(host["stack_row"]).as_py() or 0) < max(t.stacks.num_rows, 1)


def whole(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """A column of integers; −1 where null."""
    return np.array(column.fill_null(-1), np.int64)


def spoiled(t: Timeline, table: str, column: str, value: int) -> Timeline:
    """The timeline with another number in the last row of a column."""
    found = getattr(t, table)
    values = pa.array([*found[column].to_pylist()[:-1], value], found.schema.field(column).type)
    return msgspec.structs.replace(
        t, **{table: found.set_column(found.schema.names.index(column), found.schema.field(column), values)}
    )


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [("ops", "parent_row", 10**6), ("ops", "tid", -5), ("ops", "dur_ns", 2**60), ("api", "op_row", 0),
     ("activities", "start_ns", 0), ("activities", "launch_row", 10**6), ("stacks", "parent_row", 10**6)],
)  # fmt: skip
def test_a_reference_that_points_elsewhere_is_seen(table: str, column: str, value: int) -> None:
    t = open_trace(_FIXTURE)
    assert_every_reference_points_at_a_row_that_encloses_or_precedes(t)
    assert misplaced(spoiled(t, table, column, value))
