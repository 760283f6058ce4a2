"""Dataflow between activities, as a table for others to read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tracemine.columns import from_numbers, texts
from tracemine.flow.record import Evidence, Flow
from tracemine.timeline import EDGES

_EVIDENCE = [evidence.name.lower() for evidence in Evidence]


def activity_edges(flow: Flow) -> pa.Table:
    """Return edges as `edges.parquet` holds them: from the last activity of a tensor's producer to the first of its
    consumer. Which of an operator's own activities did it is not recorded.

    >>> from tracemine.flow import flow
    >>> from tracemine.timeline import Meta, Timeline
    >>> activity_edges(flow(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto")))).num_rows
    0
    """
    edges, nodes = flow.edges, flow.nodes
    producer = nodes.activity[nodes.activity_begin[1:][edges.producer] - 1]
    consumer = nodes.activity[nodes.activity_begin[edges.consumer]]
    order = np.lexsort((np.arange(len(producer)), producer, consumer))
    # Rows of inferred tensors are in no table that is stored.
    inferred = bool((flow.reads.evidence < Evidence.PROVEN).any())
    rows_of = flow.writes.tensor_row[edges.write], flow.reads.tensor_row[edges.read]
    # Without dtypes a tensor's elements are counted, and its bytes are unknown.
    unsized = bool(flow.timeline.tensors["itemsize_bytes"].null_count)
    columns = [
        *(from_numbers(values[order], pa.int64()) for values in (producer, consumer)),
        pa.nulls(len(order), pa.int64()) if unsized else from_numbers(edges.bytes[order], pa.int64()),
        texts(flow.reads.evidence[edges.read][order], _EVIDENCE),
        from_numbers(flow.reads.buffer[edges.read][order], pa.int64()),
        *(pa.nulls(len(rows), pa.int64()) if inferred else from_numbers(rows[order], pa.int64()) for rows in rows_of),
    ]
    return pa.Table.from_arrays(columns, schema=EDGES.schema)
