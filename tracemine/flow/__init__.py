"""Find def-use edges: operators as nodes, tensors as edges between them, with their evidence.

flow(timeline)         → Flow: nodes, what they read and write, edges, live-outs, and what must keep its order
may_read(flow)         → what nodes may read of which it is a guess what they read
activity_edges(flow)   → the table edges.parquet: the same between activities
"""

from __future__ import annotations

from tracemine.flow.build import flow, may_read
from tracemine.flow.edges import activity_edges
from tracemine.flow.record import Evidence, Flow, Source

__all__ = ["Evidence", "Flow", "Source", "activity_edges", "flow", "may_read"]
