"""How long collectives run alone: nothing else of their device hides them meanwhile."""

from __future__ import annotations

from tracemine.columns import uncovered
from tracemine.findings.host_spans import Spans
from tracemine.rows.table import IntArray


def exposed(begin: IntArray, end: IntArray, computing: Spans) -> IntArray:
    """Return of each collective how long nothing else ran; of several that overlap, the earlier is charged.

    Arguments in order of their begin.

    >>> import numpy as np
    >>> exposed(np.array([0, 5]), np.array([10, 20]), Spans.of(np.array([8]), np.array([12]))).tolist()
    [8, 8]
    """
    if not len(begin):
        return begin
    alone = uncovered(begin, end)
    own = end - alone  # what is left of each is its end
    bare: IntArray = alone - computing.within(own, end)
    return bare
