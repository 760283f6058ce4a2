"""Dataflow of recordings with an execution trace: everything joined, nearly everything resolved, steps equal."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks.dataflow.steps import compare_steps
from tracemine.flow import Flow, flow
from tracemine.formats import open_trace
from tracemine.timeline import Timeline

CAPTURES = Path(__file__).parents[2] / "fixtures" / "captures"
TRACES = os.environ.get("TRACEMINE_COMPAT_TRACES")
_RECORDED = sorted(path.name for path in CAPTURES.iterdir())
_ELSEWHERE = {
    "h200/seed_chains/eager.json.gz": "h200/seed_chains/et.json.gz",
    "h200/splade_head/eager.json.gz": "h200/splade_head/et.json.gz",
    "dist/tp_infer_rank0.json.gz": "dist/tp_infer_et_rank0.json.gz",
    "dist/tp_infer_rank1.json.gz": "dist/tp_infer_et_rank1.json.gz",
}

recordings = pytest.mark.parametrize("name", [*_RECORDED, *_ELSEWHERE])


@cache
def _opened(name: str) -> tuple[Timeline, Flow]:
    if name in _ELSEWHERE:
        if TRACES is None:
            pytest.skip("TRACEMINE_COMPAT_TRACES is not set")
        trace, execution_trace = Path(TRACES) / name, Path(TRACES) / _ELSEWHERE[name]
    else:
        trace, execution_trace = CAPTURES / name, None
    timeline = open_trace(trace, execution_trace=execution_trace)
    return timeline, flow(timeline)


def _names(timeline: Timeline, found: Flow, nodes: np.ndarray) -> set[str]:
    return {timeline.ops.column("name")[int(row)].as_py() for row in found.nodes.op_row[nodes]}


@recordings
def test_every_activity_that_has_an_operator_has_its_node_in_the_execution_trace(name: str) -> None:
    timeline, found = _opened(name)
    has_operator = [row is not None for row in timeline.activities.column("op_row").to_pylist()]
    assert (found.activity_node >= 0).tolist() == has_operator
    assert found.nodes.known.all()


@recordings
def test_all_that_is_read_comes_from_a_writer_or_from_outside(name: str) -> None:
    _, found = _opened(name)
    assert len(found.reads.node)
    assert found.reads.resolved.all()


@recordings
def test_two_steps_read_the_same_but_for_what_is_written_in_place(name: str) -> None:
    timeline, found = _opened(name)
    pairs = compare_steps(timeline, found)
    assert pairs
    assert all(pair.aligned and not pair.different for pair in pairs)
    step = found.nodes.step_row
    across = step[found.edges.producer] != step[found.edges.consumer]
    assert not found.writes.fresh[found.edges.write[across]].any()
    if name == "convnet_train":
        (pair,) = pairs
        assert pair.carried  # parameters, momenta and running statistics
        assert _names(timeline, found, found.edges.producer[across]) <= {
            "aten::_foreach_add_",
            "aten::_foreach_mul_",
            "aten::add_",
            "aten::mul_",
            "aten::cudnn_batch_norm",
        }
    else:
        assert not any(pair.carried for pair in pairs)


@recordings
def test_a_reader_lies_inside_what_its_writers_wrote(name: str) -> None:
    _, found = _opened(name)
    reads, writes, edges = found.reads, found.writes, found.edges
    begin = np.full(len(reads.node), np.iinfo(np.int64).max)
    end = np.full(len(reads.node), -1)
    np.minimum.at(begin, edges.read, writes.begin_byte[edges.write])
    np.maximum.at(end, edges.read, writes.end_byte[edges.write])
    read = np.unique(edges.read)
    assert ((begin[read] <= reads.begin_byte[read]) & (reads.end_byte[read] <= end[read])).all()


@recordings
def test_data_and_order_go_from_the_earlier_to_the_later_node(name: str) -> None:
    _, found = _opened(name)
    assert (found.edges.producer < found.edges.consumer).all()
    assert (found.order_before < found.order_after).all()
    assert (found.edges.bytes > 0).all()


@recordings
def test_dataflow_is_the_same_each_time(name: str) -> None:
    timeline, found = _opened(name)
    again = flow(timeline)
    assert again.edges.write.tolist() == found.edges.write.tolist()
    assert again.writes.live_out.tolist() == found.writes.live_out.tolist()


def test_an_order_of_names_joins_what_has_no_ids() -> None:
    """The same steps recorded without stacks: another window of the same process, whose ids are others."""
    if TRACES is None:
        pytest.skip("TRACEMINE_COMPAT_TRACES is not set")
    folder = Path(TRACES) / "h200" / "seed_chains"
    timeline = open_trace(folder / "nostack.json.gz", execution_trace=folder / "et.json.gz")
    _, expected = _opened("h200/seed_chains/eager.json.gz")
    found = flow(timeline)
    assert timeline.ops.column("record_function_id").null_count == timeline.ops.num_rows
    assert any("matched by their order" in warning for warning in timeline.meta.ingest.warnings)
    assert found.edges.producer.tolist() == expected.edges.producer.tolist()
