"""A loop over independent products, as what its operators move and compute in all iterations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracemine.causes.small_products_apart.batching import LoopOperator
from tracemine.ops.arithmetic import unit_of
from tracemine.rows.graph import NodeGraph
from tracemine.rows.library import recorded_call
from tracemine.rows.table import FloatArray, IntArray
from tracemine.timeline import Timeline


def loop_operators(
    timeline: Timeline,
    graph: NodeGraph,
    members: IntArray,
    durations_ns: FloatArray,
    written: IntArray,
    kernels: Sequence[str],
    turns: int,
) -> list[LoopOperator] | None:
    """Return each operator of a loop's iterations; None where there are not so many, or shapes do not tell. `members`:
    activities of all iterations in time order, with what each takes and writes (−1: not known) and its kernel's name.
    """
    node_of = graph.activity_node[members]
    nodes, at = np.unique(node_of, return_index=True)
    if not turns or len(nodes) % turns or nodes[0] < 0:
        return None
    spent = np.bincount(np.searchsorted(nodes, node_of), weights=durations_ns)
    period = len(nodes) // turns
    op_row = timeline.activities["op_row"]
    found = []
    for slot in range(period):
        own = nodes[slot::period]
        reads, each_reads = _read(graph, own)
        row = int(members[at[slot]])
        call = recorded_call(timeline, op_row[row].as_py())
        writes: int | None
        if call is not None and call.operation == "product":
            writes = max(call.nbytes - each_reads, 0) * turns
        else:
            own_writes = written[at[slot::period]]
            call, writes = None, None if (own_writes < 0).any() else int(own_writes.sum())
        tf32 = any(unit_of(kernels[k]) == "matrix" for k in np.flatnonzero(node_of == own[0]).tolist())
        found.append(
            LoopOperator(dur_ns=float(spent[slot::period].sum()), reads=reads, writes=writes, call=call, tf32=tf32)
        )
    return found


def _read(graph: NodeGraph, nodes: IntArray) -> tuple[int, int]:
    """Return the bytes that these nodes read, equal reads counted once; and what the first of them reads."""
    parts = [np.arange(graph.read_begin[node], graph.read_begin[node + 1]) for node in nodes.tolist()]
    reads = np.concatenate(parts)
    ranges = np.stack(
        [graph.read_buffer[reads], graph.read_writer[reads], graph.read_first[reads], graph.read_last[reads]]
    )
    distinct = np.unique(ranges, axis=1)
    own = ranges[:, : len(parts[0])]
    return int((distinct[3] - distinct[2]).sum()), int((own[3] - own[2]).sum())
