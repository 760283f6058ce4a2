"""Inferred dataflow of real recordings: what is called consistent is right, and no trace is too odd."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tracemine.columns import numbers
from tracemine.flow import Evidence, Flow, Source, flow
from tracemine.formats import open_trace
from tracemine.timeline import Timeline

CAPTURES = Path(__file__).parents[2] / "fixtures" / "captures"
TRACES = os.environ.get("TRACEMINE_COMPAT_TRACES")
# Share of all proven reads that are called consistent, at least; a rule that tells less shows here.
_LEAST = {"convnet_train": 0.25, "decoder_decode": 0.65, "decoder_prefill": 0.65}


@pytest.mark.parametrize("name", list(_LEAST))
def test_what_is_called_consistent_is_what_the_execution_trace_proves(name: str) -> None:
    timeline = open_trace(CAPTURES / name)
    proven = _reads(flow(timeline))
    inferred = _reads(flow(_without_execution_trace(timeline)))
    consistent = [place for place, (_, _, evidence) in inferred.items() if evidence == Evidence.CONSISTENT]
    right = [place for place in consistent if inferred[place][:2] == proven[place][:2]]
    assert set(inferred) <= set(proven)
    assert len(right) >= 0.97 * len(consistent)
    assert len(consistent) >= _LEAST[name] * len(proven)


def test_inferred_dataflow_is_the_same_each_time_and_has_the_same_nodes() -> None:
    timeline = open_trace(CAPTURES / "decoder_prefill")
    bare = _without_execution_trace(timeline)
    found, again = flow(bare), flow(bare)
    assert found.edges.read.tolist() == again.edges.read.tolist()
    assert found.nodes.op_row.tolist() == flow(timeline).nodes.op_row.tolist()
    assert (found.edges.producer < found.edges.consumer).all()


def test_every_kineto_trace_gives_dataflow_or_none() -> None:
    if TRACES is None:
        pytest.skip("TRACEMINE_COMPAT_TRACES is not set")
    told = 0
    for path in sorted((Path(TRACES) / "kineto").iterdir()):
        found = flow(open_trace(path))
        assert (found.reads.evidence < Evidence.PROVEN).all()
        told += len(found.reads.node) > 0
    assert told


def _without_execution_trace(timeline: Timeline) -> Timeline:
    ops = timeline.ops
    for name in ("execution_node_id", "op_schema"):
        place = ops.schema.get_field_index(name)
        field = ops.schema.field(place)
        ops = ops.set_column(place, field, pa.nulls(ops.num_rows, field.type))
    return replace(timeline, ops=ops, tensors=None)


def _reads(found: Flow) -> dict[tuple[int, int, int], tuple[frozenset[int], bool, int]]:
    """(operator, position, place in a list) → operators that wrote it, whether it is from outside, evidence."""
    tensors = found.timeline.tensors
    op_row, position, index = (numbers(tensors.column(name), -1) for name in ("op_row", "position", "list_index"))
    producers: list[set[int]] = [set() for _ in found.reads.node]
    for read, node in zip(found.edges.read.tolist(), found.edges.producer.tolist(), strict=True):
        producers[read].add(int(found.nodes.op_row[node]))
    outside = np.isin(found.reads.source, (Source.OUTSIDE, Source.PARTLY_OUTSIDE)).tolist()
    return {
        (int(op_row[row]), int(position[row]), int(index[row])): (frozenset(producers[at]), outside[at], int(evidence))
        for at, (row, evidence) in enumerate(
            zip(found.reads.tensor_row.tolist(), found.reads.evidence.tolist(), strict=True)
        )
    }
